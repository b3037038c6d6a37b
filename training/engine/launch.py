"""Starts training: in this process, or on Ray Train workers that are started again when one is lost.

Workers find the newest checkpoint of the run's folder themselves, whatever their number, so a restart needs nothing but
the same function again. Checkpoints are not passed through Ray: all ranks write them to the run's folder, which has to
be storage that all nodes see.

A named actor ties the workers to the process that started them: rank 0 tells it of its steps, and hears from it when
SIGTERM came to the starting process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import ray

from pipeline.causes import cause_line
from pipeline.resources import limit_native_threads
from pipeline.storage import Storage
from training.engine import stop as stops
from training.engine.checkpoint import complete_checkpoints
from training.engine.config import TrainConfig
from training.engine.journal import MESSAGE, Report
from training.engine.loop import Outcome
from training.engine.stop import StopSignal
from training.watch.guard import GuardStopError

log = logging.getLogger(__name__)

POLL_S = 0.25
ASKED = "asked to end: "
"""Begins the reasons that come from the starting process: workers then end for good."""


class TrainingFailedError(RuntimeError):
    """Training ended with an error; the run's checkpoints are as they were. The message says what happened."""


class PreemptedError(RuntimeError):
    """A worker was asked to go, and the state is saved: Ray Train starts the workers again."""


def train(config: TrainConfig, storage: Storage, stop: StopSignal, report: Report | None = None) -> Outcome:
    """Train to the end, or until `stop` asks; resumes from the folder's newest checkpoint.

    Args:
        config: of the run; for engine.kind zero3, Ray has to be initialised.
        storage: the run's folder.
        stop: asks for a checkpoint and an early end.
        report: told of steps, in this process.

    Raises:
        GuardStopError: a loss that the guard stops at.
        TrainingFailedError: workers failed more often than engine.max_failures allows.
    """
    if config.engine.kind == "single":
        return train_here(config, storage, stop, report)
    return train_on_ray(config, storage, stop, report)


def train_here(config: TrainConfig, storage: Storage, stop: StopSignal, report: Report | None = None) -> Outcome:
    """Train in this process, with plain torch."""
    from training.engine.single import SingleProcess

    return config.make_trainer(storage, SingleProcess(_to_build(config, storage)), stop, report).run()


def _to_build(config: TrainConfig, storage: Storage) -> TrainConfig:
    """The configuration to construct the model from: what it starts from is read at the beginning only."""
    return config.resumed() if complete_checkpoints(storage) else config


# Ray Train ------------------------------------------------------------------------------------------------------------


class Link:
    """Actor between the starting process and rank 0."""

    def __init__(self) -> None:
        self._stop: str | None = None
        self._starts = 0
        self._news: list[tuple[int, dict[str, Any], bool]] = []
        self._failure: str | None = None

    def request(self, reason: str) -> None:
        """The starting process wants the run saved and ended."""
        self._stop = reason

    def tell(self, step: int, values: dict[str, Any], shown: bool) -> str | None:
        """Rank 0 did a step; the answer is why it should stop."""
        if not shown and self._news and not self._news[-1][1]:
            self._news.pop()  # only the newest of steps without numbers matters
        self._news.append((step, values, shown))
        return self._stop

    def started(self, workers: int) -> None:
        """Rank 0 begins; again where a worker was lost, or their number changed."""
        self._starts += 1
        if self._starts > 1:
            text = f"workers were lost or changed: {workers} start, the {self._starts}. time"
            self._news.append((0, {MESSAGE: text}, False))

    def guard_stopped(self, message: str) -> None:
        """The guard ended the run: to start workers again would come to the same batch."""
        self._failure = message

    def news(self) -> tuple[list[tuple[int, dict[str, Any], bool]], str | None]:
        """What was told since the last time, and what the guard said."""
        news, self._news = self._news, []
        return news, self._failure


def train_on_ray(config: TrainConfig, storage: Storage, stop: StopSignal, report: Report | None = None) -> Outcome:
    """Train on Ray Train workers with DeepSpeed ZeRO-3."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from training.engine.ray_backend import SavingTorchConfig

    engine = config.engine
    engine.check_workers(config.batch.size, config.batch.micro)
    config.check()
    link = ray.remote(num_cpus=0)(Link).remote()
    resources: dict[str, float] = {"CPU": engine.cpus_per_worker} | ({"GPU": 1} if engine.use_gpu else {})
    fewest = engine.min_workers or engine.workers
    # The types of Ray Train 1, which mypy sees, know neither results nor elastic numbers of workers.
    trainer: Any = cast("Any", TorchTrainer)(
        _work,
        train_loop_config={
            "config": config,  # as it is: a dump masks the credentials of corpora
            "root": storage.root,
            "options": storage.options,
            "link": link,
        },
        scaling_config=cast("Any", ScalingConfig)(
            num_workers=engine.workers if fewest == engine.workers else (fewest, engine.workers),
            use_gpu=engine.use_gpu,
            resources_per_worker=resources,
        ),
        torch_config=SavingTorchConfig(backend="nccl" if engine.use_gpu else "gloo"),
        run_config=RunConfig(
            name="ray_train",
            storage_path=storage.path("work"),
            failure_config=FailureConfig(max_failures=engine.max_failures),
        ),
    )
    with _Listener(link, stop, report) as listener:
        try:
            result = trainer.fit()
        except Exception as error:
            listener.catch_up()
            if listener.guard:
                raise GuardStopError(listener.guard) from None
            raise TrainingFailedError(cause_of(error)) from error
        listener.catch_up()
    if listener.guard:
        raise GuardStopError(listener.guard)
    return Outcome(**result.return_value)


def cause_of(error: BaseException) -> str:
    """The innermost error that Ray wraps, in one line."""
    failures = getattr(error, "worker_failures", None)
    if failures:
        error = next(iter(failures.values()))
    return cause_line(error)


class _Listener:
    """Passes what rank 0 tells to `report`, and the wish to stop to rank 0, from a thread of its own."""

    def __init__(self, link: Any, stop: StopSignal, report: Report | None) -> None:
        self._link, self._stop, self._report = link, stop, report
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training-news", daemon=True)
        self._lock = threading.Lock()
        self.guard: str | None = None

    def __enter__(self) -> _Listener:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        ray.kill(self._link)

    def _run(self) -> None:
        asked = False
        while not self._end.wait(POLL_S):
            if not asked and self._stop.reason is not None:
                self._link.request.remote(ASKED + self._stop.reason)
                asked = True
            self.catch_up()

    def catch_up(self) -> None:
        """Take what there is."""
        with self._lock:
            try:
                news, guard = ray.get(self._link.news.remote(), timeout=30)
            except Exception:  # noqa: BLE001 - the cluster is going down: what it says matters, not this
                return
            self.guard = guard or self.guard
            if self._report is not None:
                for step, values, shown in news:
                    self._report(step, values, shown)


class _Teller:
    """Rank 0's end of the link: never waits for an answer."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._answer: Any = None
        self._reason: str | None = None

    def __call__(self, step: int, values: Mapping[str, Any], shown: bool) -> None:
        self._hear()
        if values or self._answer is None:
            self._answer = self._link.tell.remote(step, dict(values), shown)

    def _hear(self) -> None:
        if self._answer is not None and ray.wait([self._answer], timeout=0)[0]:
            self._reason = ray.get(self._answer) or self._reason
            self._answer = None

    def reason(self) -> str | None:
        """Why the starting process wants the run to end."""
        self._hear()
        return self._reason


def _preempted() -> str | None:
    """What Ray knows of this worker's node being taken back. Asked without waiting for other ranks."""
    from ray.train.v2._internal.execution.context import get_train_context

    info = get_train_context().preemption_context.preemption_info
    return None if info is None else "a node is being taken back"


def _work(job: dict[str, Any]) -> dict[str, Any]:
    """What every Ray Train worker runs."""
    config: TrainConfig = job["config"]
    storage = Storage(job["root"], job["options"])
    limit_native_threads(max(1, int(config.engine.cpus_per_worker)))
    from training.engine.zero import ZeroThree

    stop = stops.PROCESS
    teller = _Teller(job["link"])
    parallel = ZeroThree(_to_build(config, storage))
    if parallel.rank == 0:
        job["link"].started.remote(parallel.world)
        stop.watch(teller.reason)
    stop.watch(_preempted)
    try:
        outcome = config.make_trainer(storage, parallel, stop, teller if parallel.rank == 0 else None).run()
    except GuardStopError as error:
        if parallel.rank == 0:
            ray.get(job["link"].guard_stopped.remote(str(error)))
        return asdict(Outcome(0, "stopped", "the guard stopped the run", ""))
    finally:
        parallel.close()
    if outcome.ended == "stopped" and not outcome.reason.startswith(ASKED):
        raise PreemptedError(f"{outcome.reason}: the state after {outcome.steps} steps is saved")
    return asdict(outcome)
