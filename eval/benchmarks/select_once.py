"""One whole selection in a process of its own, with what each step took: time, CPU, memory of every process, files.

Run as `python -m eval.benchmarks.select_once GIVEN ANSWER`; used through `select_apart`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from eval.benchmarks.select_pool import pool_scores
from pipeline.progress import RunProgress
from pipeline.resources import RayConfig, ray_cluster
from pipeline.select import SelectConfig, Selector, Steps
from pipeline.select.corpora import Corpora
from pipeline.select.run import MOST_LINKS
from pipeline.select.steps import Item, Summary
from pipeline.storage import Storage
from pipeline.tasks import run_tasks

MIB = 2**20


@dataclass(frozen=True)
class Task:
    """A selection to measure.

    Attributes:
        folder: of a pool (`eval.benchmarks.select_pool.write_pool`).
        name: of the selection's folder in it; must not be there yet.
        config: `SelectConfig`, as JSON.
    """

    folder: str
    name: str
    rows: int
    chunk_rows: int
    embedding: bool
    config: dict[str, Any]
    workers: int
    most_links: int = MOST_LINKS


@dataclass(frozen=True)
class StepCost:
    """What one step took.

    Attributes:
        tasks: how many there were.
        cpu_seconds: of the driver and all its descendants, Ray's own processes among them.
        written: bytes of the files that it published.
        driver_mib, worker_mib: largest memory of the driver, and of any one Ray worker, shared pages left out.
    """

    name: str
    tasks: int
    seconds: float
    cpu_seconds: float
    written: int
    driver_mib: float
    worker_mib: float


@dataclass(frozen=True)
class Cost:
    """What a selection took: its steps in order, and its summary."""

    steps: tuple[StepCost, ...]
    summary: dict[str, Any]

    def sum(self, *names: str) -> StepCost:
        """Some steps together, or all."""
        steps = [step for step in self.steps if not names or step.name in names]
        return StepCost(
            "all" if not names else names[0],
            sum(step.tasks for step in steps),
            sum(step.seconds for step in steps),
            sum(step.cpu_seconds for step in steps),
            sum(step.written for step in steps),
            max((step.driver_mib for step in steps), default=0.0),
            max((step.worker_mib for step in steps), default=0.0),
        )


class TreeMeter:
    """Samples CPU and memory of this process and its descendants while open.

    A process that has ended counts with its last sample.
    """

    def __init__(self, every: float = 0.1) -> None:
        self._every = every
        self._cpu: dict[int, float] = {}
        self._driver = self._worker = 0.0
        self._own = psutil.Process()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TreeMeter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def start(self) -> float:
        """Begin a window: memory is counted from here. Returns the CPU seconds so far."""
        with self._lock:
            self._driver = self._worker = 0.0
        self._sample()
        return sum(self._cpu.values())

    def stop(self) -> tuple[float, float, float]:
        """End a window: CPU seconds so far, largest memory of the driver and of a Ray worker in the window, MiB."""
        self._sample()
        return sum(self._cpu.values()), self._driver, self._worker

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            for process in [self._own, *self._own.children(recursive=True)]:
                try:
                    with process.oneshot():
                        times, memory, name = process.cpu_times(), process.memory_info(), "".join(process.cmdline()[:1])
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                self._cpu[process.pid] = times.user + times.system
                own = max(memory.rss - memory.shared, 0) / MIB
                if process.pid == self._own.pid:
                    self._driver = max(self._driver, own)
                elif name.startswith("ray::"):
                    self._worker = max(self._worker, own)


@dataclass(frozen=True)
class MeteredSteps(Steps):
    """Steps that note what each of them took."""

    meter: TreeMeter = field(default_factory=TreeMeter)
    costs: list[StepCost] = field(default_factory=list)

    def run(
        self,
        name: str,
        label: str,
        task: Callable[[Item], Summary],
        items: Sequence[Item],
        num_cpus: float = 1.0,
        threads: int = 1,
    ) -> list[Summary]:
        """Run a step."""
        before = file_sizes(Path(self.storage.root))
        cpu, started = self.meter.start(), time.perf_counter()
        records = super().run(name, label, task, items, num_cpus, threads)
        seconds = time.perf_counter() - started
        after, driver, worker = self.meter.stop()
        sizes = file_sizes(Path(self.storage.root))
        written = sum(size for path, size in sizes.items() if path not in before)
        self.costs.append(StepCost(name, len(items), seconds, after - cpu, written, driver, worker))
        return records


def file_sizes(folder: Path) -> dict[str, int]:
    """Path -> bytes of all files below a folder."""
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def select_here(task: Task) -> Cost:
    """Select on the cluster that this process is connected to."""
    read = pool_scores(Path(task.folder), task.rows, task.chunk_rows, task.embedding)
    storage = Storage(task.folder).child(task.name)
    with TreeMeter() as meter:
        steps = MeteredSteps(storage, RunProgress(Console(stderr=True), quiet=True), meter)
        config = SelectConfig.model_validate(task.config)
        selector = Selector(steps, read, config, None, Corpora(), most_links=task.most_links)
        selection = selector()
    return Cost(tuple(steps.costs), selection.summary)


def select_apart(task: Task) -> Cost:
    """Select in a child process, so that its memory is that of a driver and of nothing else.

    Raises:
        RuntimeError: it failed; the message ends with what it printed.
    """
    with _files(Path(task.folder), task.name) as (given, answer, log):
        given.write_text(json.dumps(asdict(task)))
        with open(log, "wb") as output:
            code = subprocess.call(
                [sys.executable, "-m", "eval.benchmarks.select_once", str(given), str(answer)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if code:
            raise RuntimeError(f"selection failed:\n{log.read_text()[-3000:]}")
        record = json.loads(answer.read_text())
    return Cost(tuple(StepCost(**step) for step in record["steps"]), record["summary"])


@contextmanager
def _files(folder: Path, name: str) -> Iterator[tuple[Path, Path, Path]]:
    paths = tuple(folder / f"{name}-{part}" for part in ("given.json", "answer.json", "log.txt"))
    try:
        yield paths[0], paths[1], paths[2]
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def _wake_up(_: int) -> str:
    """What the first task of a worker spends its time on; here it is not to count."""
    import scipy.sparse

    import pipeline.select

    time.sleep(0.5)  # or one worker would take all of these tasks
    return f"{scipy.sparse.__name__} {pipeline.select.__name__}"


def main(given: str, answer: str) -> None:
    """The child process."""
    task = Task(**json.loads(Path(given).read_text()))
    SelectConfig.model_validate(task.config)  # before a cluster is started for nothing
    with ray_cluster(RayConfig(num_cpus=task.workers), None):
        for _ in run_tasks(_wake_up, list(range(task.workers))):
            pass
        cost = select_here(task)
    Path(answer).write_text(json.dumps({"steps": [asdict(step) for step in cost.steps], "summary": cost.summary}))


if __name__ == "__main__":
    main(*sys.argv[1:])
