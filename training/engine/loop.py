"""The steps of a run, alike for one process and for many.

Everything that a step depends on is in the checkpoint or a function of the step's number: the batch, its views and
masks, the schedules. So a run that was killed continues with the losses that it would have had; with another number of
ranks they differ only by the order of sums.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from pipeline.storage import Storage
from training.data.batch import Batch
from training.data.corpus import Corpus
from training.data.loader import PretrainLoader
from training.data.sampler import BatchPlan
from training.engine.journal import Journal, Report
from training.engine.keeper import Keeper
from training.engine.parallel import Parallel, StepResult
from training.engine.state import RunState
from training.engine.stop import StopSignal
from training.engine.totals import StepTotals
from training.objectives.collapse import CollapseStats
from training.objectives.distillation import teacher_temperature_at, update_centre
from training.objectives.ema import momentum_at
from training.objectives.schedules import warmup_cosine
from training.pretraining.config import PretrainConfig
from training.watch import names
from training.watch.guard import Guard, Verdict
from training.watch.incidents import incident_record, stop_error, write_incident
from training.watch.stopwatch import Stopwatch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a run, or this part of it, ended.

    Attributes:
        steps: that are done since the beginning of the run.
        ended: "finished" after the last step; "stopped" early, with a checkpoint.
        reason: why it was stopped.
        checkpoint: name of the newest one, on rank 0.
    """

    steps: int
    ended: Literal["finished", "stopped"]
    reason: str
    checkpoint: str


class Trainer:
    """A run on one rank.

    Args:
        config: of the run.
        storage: the run's folder, shared by all ranks.
        parallel: the model, and how it is stepped.
        corpus: what is read.
        stop: asked after every step.
        report: told of every step, on rank 0.
    """

    def __init__(
        self,
        config: PretrainConfig,
        storage: Storage,
        parallel: Parallel,
        corpus: Corpus,
        stop: StopSignal,
        report: Report | None = None,
    ) -> None:
        self.config, self.storage, self.parallel, self.corpus = config, storage, parallel, corpus
        self.stop, self.report = stop, report
        self.plan = BatchPlan(config.batch.size, config.batch.micro, parallel.world)
        centre = None
        if config.trains_distillation:
            centre = torch.zeros(config.model.prototypes, device=parallel.device)
        self.state = RunState(Guard(config.watch.guard), centre)
        self.collapse = CollapseStats(
            config.model.prototypes if config.trains_distillation else 1,
            config.model.backbone_config().width,
            config.koleo.group,
            parallel.device,
        )
        self.stopwatch = Stopwatch(parallel.device, config.watch.synchronise_timings)
        parallel.model.stopwatch = self.stopwatch
        self.keeper = Keeper(config, storage, parallel, corpus.fingerprint, self.stopwatch)

    def run(self) -> Outcome:
        """Resume from the newest checkpoint, or begin; train to the last step, or until asked to stop.

        Raises:
            GuardStopError: a loss that the guard stops at; the batch is on record.
            CheckpointError: see `Keeper.resume`.
        """
        self.keeper.resume(self.state)
        journal = None
        if self.parallel.rank == 0:
            journal = Journal(
                self.config, self.storage, self.state.step, self.parallel.world, self.parallel.device, self.report
            )
            self.keeper.before_publishing = journal.sync
        try:
            with self._loader() as loader:
                reason = self._steps(iter(loader), journal)
        finally:
            self.keeper.close()
            if journal is not None:
                journal.close()
        finished = self.state.step >= self.config.steps
        return Outcome(self.state.step, "finished" if finished else "stopped", reason or "", self.keeper.newest)

    def _loader(self) -> PretrainLoader:
        config = self.config
        views = config.views
        if not config.uses_locals:
            views = views.model_copy(update={"local_count": 0})
        return PretrainLoader(
            self.corpus,
            self.corpus.order(config.seed),
            data=config.data,
            views=views,
            mask=config.mask,
            grid=config.model.backbone_config().grid_of(*views.global_size),
            plan=self.plan,
            rank=self.parallel.rank,
            start_step=self.state.step,
            stop_step=config.steps,
            pin_memory=self.parallel.device.type == "cuda",
        )

    def _steps(self, batches: Iterator[Batch], journal: Journal | None) -> str | None:
        """Train; returns why it ended early."""
        reason = None
        self.stopwatch.lap()
        while self.state.step < self.config.steps and reason is None:
            reason = self._step(batches, journal)
            step = self.state.step
            if step % self.config.checkpoint.every == 0 or step == self.config.steps or reason is not None:
                self.keeper.save(self.state)
        self.keeper.finish()
        return reason

    def _step(self, batches: Iterator[Batch], journal: Journal | None) -> str | None:
        """One optimizer step; returns why the run should end now."""
        step, model = self.state.step, self.parallel.model
        temperature = teacher_temperature_at(self.config.distillation, step)
        totals = StepTotals(self.parallel, self.collapse)
        for micro in range(self.plan.accumulation):
            with self.stopwatch.part("data"):
                batch = next(batches)
                inputs = model.prepare(batch.to(self.parallel.device))
            output = self.parallel.micro_step(
                inputs, temperature, self.state.centre, micro + 1 == self.plan.accumulation
            )
            totals.add(batch, output)
        if journal is not None and journal.wants_picture(step):
            with self.stopwatch.part("log"):
                journal.picture(step, inputs, output)
        with self.stopwatch.part("metrics"):
            reduced = totals.reduce(self.stop.reason, self.keeper.written)
        named = dict(zip((f"loss/{name}" for name in model.terms), reduced.terms, strict=True))
        loss = sum(weight * value for weight, value in zip(model.weights(), reduced.terms, strict=True))
        verdict = Verdict("ok")

        def accept(norm: float) -> bool:
            nonlocal verdict
            verdict = self.state.guard.check(step, loss, norm)
            return verdict.action == "ok"

        rates = self._rates(step)
        with self.stopwatch.part("optimiser"):
            result = self.parallel.step(rates[names.LEARNING_RATE], rates["head"], rates[names.MOMENTUM], accept)
        if result.applied and reduced.centre is not None and self.state.centre is not None:
            rows = self.config.views.global_count * self.config.batch.size
            momentum = self.config.distillation.centre_momentum
            self.state.centre = update_centre(self.state.centre, reduced.centre, rows, momentum)
        self.state.images_replaced += reduced.replaced
        if verdict.action != "ok":
            self._incident(step, verdict, totals.batches, {names.LOSS: loss, **named}, result)
        if reduced.written:
            self.keeper.publish()
        self.state.step += 1
        if journal is not None:
            journal.step(step, lambda: self._numbers({names.LOSS: loss, **named}, result, rates))
        return reduced.stop

    def _rates(self, step: int) -> dict[str, float]:
        optimiser = self.config.optimiser
        lr = warmup_cosine(
            step, peak=optimiser.lr, final=optimiser.final_lr, warmup=optimiser.warmup, total=self.config.steps
        )
        return {
            names.LEARNING_RATE: lr,
            "head": 0.0 if step < optimiser.freeze_last_layer else lr,
            names.MOMENTUM: momentum_at(self.config.ema, step, self.config.steps),
        }

    def _numbers(self, losses: dict[str, float], result: StepResult, rates: dict[str, float]) -> dict[str, Any]:
        return {
            **losses,
            names.GRAD_NORM: result.grad_norm,
            names.LEARNING_RATE: rates[names.LEARNING_RATE],
            names.MOMENTUM: rates[names.MOMENTUM],
            **{f"collapse/{name}": value for name, value in self.collapse.values().items()},
            "data/replaced": self.state.images_replaced,
            "optimiser/skipped": self.state.guard.skipped,
            **self.stopwatch.lap(),
        }

    def _incident(
        self, step: int, verdict: Verdict, batches: list[Batch], losses: dict[str, float], result: StepResult
    ) -> None:
        """Put the whole global batch on record; ends the run where the guard says so."""
        own = [(int(place), id_) for batch in batches for place, id_ in zip(batch.position, batch.ids, strict=True)]
        everyone = sorted(tuple(item) for items in self.parallel.gather_objects(own) for item in items)
        record = incident_record(
            step,
            verdict,
            ids=[id_ for _, id_ in everyone],
            positions=[position for position, _ in everyone],
            losses=losses,
            grad_norm=result.grad_norm,
        )
        path = write_incident(self.storage, record) if self.parallel.rank == 0 else ""
        if verdict.action == "stop":
            path = self.parallel.gather_objects(path)[0]
            self.keeper.finish()  # what was written until here is sound
            raise stop_error(verdict, path)
        log.warning("skipped: %s", verdict.reason)
