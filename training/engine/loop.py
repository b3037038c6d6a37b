"""The steps of a run, alike for every kind of run, for one process and for many.

Everything that a step depends on is in the checkpoint or a function of the step's number: the batch, its augmentations,
the schedules. So a run that was killed continues with the losses that it would have had; with another number of ranks
they differ only by the order of sums.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from torch import Tensor

from pipeline.storage import Storage
from training.data.sampler import BatchPlan
from training.engine.config import TrainConfig
from training.engine.journal import MESSAGE, Journal, Report
from training.engine.keeper import Keeper
from training.engine.parallel import Parallel, StepResult
from training.engine.state import RunState
from training.engine.stop import StopSignal
from training.engine.totals import StepTotals
from training.engine.trainable import Output
from training.watch import names
from training.watch.guard import Guard, Verdict
from training.watch.incidents import incident_record, stop_error, write_incident
from training.watch.stopwatch import Stopwatch

log = logging.getLogger(__name__)
Batch = TypeVar("Batch")


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


@dataclass(frozen=True)
class Rates:
    """What changes from step to step: learning rates (of heads apart), and the teacher's momentum."""

    lr: float
    head_lr: float
    momentum: float = 1.0


class Loop(ABC, Generic[Batch]):
    """A run on one rank. Kinds of runs say what a batch is, what is done with it, and what is logged.

    Args:
        config: of the run.
        storage: the run's folder, shared by all ranks.
        parallel: the model, and how it is stepped.
        data: fingerprint of what is read.
        stop: asked after every step.
        report: told of every step, on rank 0.
    """

    def __init__(
        self,
        config: TrainConfig,
        storage: Storage,
        parallel: Parallel,
        data: str,
        stop: StopSignal,
        report: Report | None = None,
    ) -> None:
        self.storage, self.parallel, self.stop, self.report = storage, parallel, stop, report
        self._config = config
        self.plan = BatchPlan(config.batch.size, config.batch.micro, parallel.world)
        self.state = RunState(Guard(config.watch.guard))
        self.stopwatch = Stopwatch(parallel.device, config.watch.synchronise_timings)
        parallel.model.stopwatch = self.stopwatch
        self.keeper = Keeper(config, storage, parallel, data, self.stopwatch)

    replaced_means = "could not be read"
    """Why others take the places of pictures."""

    # What kinds of runs say ------------------------------------------------------------------------------------------

    @abstractmethod
    def batches(self) -> AbstractContextManager[Iterator[Batch]]:
        """The micro-batches of this rank, from the first one of step `state.step` on."""

    @abstractmethod
    def journal(self) -> Journal:
        """The logs, opened at step `state.step`."""

    @abstractmethod
    def rates(self, step: int) -> Rates:
        """Schedules."""

    @abstractmethod
    def micro_step(self, batch: Batch, last: bool, drawn: bool) -> tuple[Output, int]:
        """Forward and backward of a micro-batch, and how many of its samples stand in for others that failed.

        Args:
            last: of the step.
            drawn: a picture of it is wanted, which `picture` is asked for.
        """

    @abstractmethod
    def places(self, batch: Batch) -> list[tuple[int, str]]:
        """(place in the order, id) of the samples."""

    def begin(self) -> None:
        """A step begins."""

    def sums(self) -> Sequence[Tensor]:
        """Vectors of this rank to add up over ranks."""
        return ()

    def absorb(self, sums: Sequence[Tensor], applied: bool) -> None:
        """Take the sums of all ranks; `applied`: the step was done, and not skipped."""

    def numbers(self) -> Mapping[str, float]:
        """More numbers to log."""
        return {}

    def picture(self, journal: Journal) -> None:
        """Draw what the last micro-batch gave."""

    def after_saving(self, journal: Journal | None) -> None:
        """A checkpoint was begun; every rank is here."""

    # The run ----------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Resume from the newest checkpoint, or begin; train to the last step, or until asked to stop.

        Raises:
            GuardStopError: a loss that the guard stops at; the batch is on record.
            CheckpointError: see `Keeper.resume`.
        """
        self.keeper.resume(self.state)
        journal = None
        if self.parallel.rank == 0:
            self._say_where()
            journal = self.journal()
            self.keeper.before_publishing = journal.sync
        try:
            with self.batches() as batches:
                reason = self._steps(batches, journal)
        finally:
            self.keeper.close()
            if journal is not None:
                journal.close()
        finished = self.state.step >= self._config.steps
        return Outcome(self.state.step, "finished" if finished else "stopped", reason or "", self.keeper.newest)

    def _say_where(self) -> None:
        """A word of a run that goes on; a later start after a lost worker says it again."""
        if self.report is None or not (self.state.step or self.keeper.passed_over):
            return
        workers = f" with {self.parallel.world} workers" if self.parallel.world > 1 else ""
        why = f": {self.keeper.passed_over}" if self.keeper.passed_over else ""
        self.report(self.state.step, {MESSAGE: f"goes on from step {self.state.step:,}{workers}{why}"}, False)

    def _say_replaced(self, step: int, replaced: int) -> None:
        """A word when pictures could not be read: the first time, and whenever there are twice as many."""
        before = self.state.images_replaced - replaced
        if self.report is None or not replaced or self.state.images_replaced < 2 * before:
            return
        count = self.state.images_replaced
        text = f"{count:,} pictures {self.replaced_means} so far, and others took their places"
        self.report(step, {MESSAGE: text}, False)

    def _steps(self, batches: Iterator[Batch], journal: Journal | None) -> str | None:
        """Train; returns why it ended early."""
        config, reason = self._config, None
        self.stopwatch.lap()
        while self.state.step < config.steps and reason is None:
            reason = self._step(batches, journal)
            step = self.state.step
            if step % config.checkpoint.every == 0 or step == config.steps or reason is not None:
                self.keeper.save(self.state)
                self.after_saving(journal)
        self.keeper.finish()
        return reason

    def _step(self, batches: Iterator[Batch], journal: Journal | None) -> str | None:
        """One optimizer step; returns why the run should end now."""
        step, model = self.state.step, self.parallel.model
        totals, seen = StepTotals(self.parallel), []
        drawn = journal is not None and journal.wants_picture(step)
        self.begin()
        for micro in range(1, self.plan.accumulation + 1):
            with self.stopwatch.part("data"):
                batch = next(batches)
            seen.append(batch)
            last = micro == self.plan.accumulation
            output, replaced = self.micro_step(batch, last, drawn and last)
            totals.add(output.terms, replaced)
        if drawn and journal is not None:
            with self.stopwatch.part("log"):
                self.picture(journal)
        with self.stopwatch.part("metrics"):
            reduced = totals.reduce(self.sums(), self.stop.reason, self.keeper.written)
        named = dict(zip((f"loss/{name}" for name in model.terms), reduced.terms, strict=True))
        loss = sum(weight * value for weight, value in zip(model.weights(), reduced.terms, strict=True))
        verdict = Verdict("ok")

        def accept(norm: float) -> bool:
            nonlocal verdict
            verdict = self.state.guard.check(step, loss, norm)
            return verdict.action == "ok"

        rates = self.rates(step)
        with self.stopwatch.part("optimiser"):
            result = self.parallel.step(rates.lr, rates.head_lr, rates.momentum, accept)
        self.absorb(reduced.sums, result.applied)
        self.state.images_replaced += reduced.replaced
        self._say_replaced(step, reduced.replaced)
        if verdict.action != "ok":
            self._incident(step, verdict, seen, {names.LOSS: loss, **named}, result)
        if reduced.written:
            self.keeper.publish()
        self.state.step += 1
        if journal is not None:
            journal.step(step, lambda: self._numbers({names.LOSS: loss, **named}, result, rates))
        return reduced.stop

    def _numbers(self, losses: dict[str, float], result: StepResult, rates: Rates) -> dict[str, Any]:
        teacher = {names.MOMENTUM: rates.momentum} if self.parallel.model.teacher_pairs() else {}
        return {
            **losses,
            names.GRAD_NORM: result.grad_norm,
            names.LEARNING_RATE: rates.lr,
            **teacher,
            **self.numbers(),
            "data/replaced": self.state.images_replaced,
            "optimiser/skipped": self.state.guard.skipped,
            **self.stopwatch.lap(),
        }

    def _incident(
        self, step: int, verdict: Verdict, batches: list[Batch], losses: dict[str, float], result: StepResult
    ) -> None:
        """Put the whole global batch on record; ends the run where the guard says so."""
        own = [place for batch in batches for place in self.places(batch)]
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
