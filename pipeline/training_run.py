"""What the stages that train share: one folder, locked, brought to its last step, from wherever it stands.

run.json       what the training run is about: the settings that fix its losses, and the fingerprint of its data
checkpoints/   see `training/engine/checkpoint.py`
metrics.jsonl  one line per logged step; tensorboard/ has the same
lineage.json   written when the last step is saved
logs/, work/   messages; what Ray Train keeps of its workers
"""

from __future__ import annotations

import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
import torch
from rich.console import Console

from pipeline.config import ConfigError, PopulaceConfig
from pipeline.logs import run_log
from pipeline.resources import ray_cluster
from pipeline.rundir import RunDirectory, RunKind, hold_folder
from pipeline.storage import Storage
from training.engine.checkpoint import FOLDER, Checkpoint, CheckpointError, complete_checkpoints, damage_of
from training.engine.config import TrainConfig
from training.engine.journal import MESSAGE
from training.engine.launch import ASKED, train
from training.engine.loop import Outcome
from training.engine.stop import save_on_sigterm
from training.watch.console import TrainingConsole

LINEAGE = "lineage.json"


@dataclass(frozen=True)
class TrainingResult:
    """What a training run is after a call.

    Attributes:
        folder: of the training run.
        steps: done, of `total`.
        ended: "finished", or "stopped" with a checkpoint.
        reason: why it was stopped.
        checkpoint: name of the newest.
        trained: steps of this call.
    """

    folder: str
    steps: int
    total: int
    ended: Literal["finished", "stopped"]
    reason: str
    checkpoint: str
    trained: int


class TrainingStage(ABC):
    """What a stage that trains says of itself.

    Attributes:
        name: of its section and its command.
        folder: of the training run, below the output.
        settings: what is trained.
    """

    name: str
    folder: str
    settings: TrainConfig
    changeable = "engine, checkpoint and watch settings and batch.micro"

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What cannot change inside the folder."""

    @abstractmethod
    def introduction(self) -> str:
        """One line on what is trained."""

    @abstractmethod
    def lineage(self, storage: Storage, newest: Checkpoint) -> None:
        """Write where the result came from; a run that was finished before keeps what was written then."""

    def prepared(self, storage: Storage) -> TrainConfig:
        """The settings to train with, when the folder is locked and nothing is trained yet."""
        return self.settings

    def kind(self) -> RunKind:
        """Of the run directory."""
        return RunKind(
            "a training run with other settings or other data, and its checkpoints do not fit these",
            f"{self.changeable} may change inside a run, except engine.precision. `populace {self.name} CONFIG --new` "
            "sets aside this folder only.",
            lambda storage: bool(storage.names(FOLDER)),
        )


def run_training(
    config: PopulaceConfig, stage: TrainingStage, console: Console, quiet: bool = False, new: bool = False
) -> TrainingResult:
    """Train to the last step, or until SIGTERM asks to save and end; goes on from the newest checkpoint.

    Args:
        console: for progress.
        quiet: show none.
        new: set an existing training run aside first.

    Raises:
        ConfigError, RunConflictError: before any work starts.
        GuardStopError, TrainingFailedError, CheckpointError, DataError: the run failed; its checkpoints are kept.
    """
    root = Storage(config.output)
    # Also against curation: it would take the shards away that this trains on.
    lock = hold_folder(root.root) if root.local else None
    try:
        run = RunDirectory(root.path(stage.folder), stage.identity(), new, stage.kind())
        with run.working():
            return _Run(config, stage, run, console, quiet)()
    finally:
        if lock is not None:
            lock.close()


def check_engine(settings: TrainConfig, section: str) -> None:
    """See that what the section trains on is installed and here.

    Raises:
        ConfigError: it is not.
    """
    engine = settings.engine
    if engine.kind == "zero3" and importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            f"{section}.engine.kind zero3 needs DeepSpeed: pip install 'populace[train]'; kind single does without"
        )
    if engine.kind == "single" and engine.use_gpu and not torch.cuda.is_available():
        raise ConfigError(f"{section}.engine.use_gpu is true, but torch finds no GPU here: set it to false")


def where_it_trains(settings: TrainConfig) -> str:
    """For people."""
    engine = settings.engine
    if engine.kind == "single":
        return "this process"
    return f"{engine.workers} worker{'s' * (engine.workers > 1)}, ZeRO-3"


@dataclass
class _Run:
    config: PopulaceConfig
    stage: TrainingStage
    run: RunDirectory
    console: Console
    quiet: bool

    def __call__(self) -> TrainingResult:
        stage, storage = self.stage, self.run.storage
        settings = stage.settings
        checkpoints = complete_checkpoints(storage)
        before = checkpoints[-1].step if checkpoints else 0
        if before >= settings.steps:
            damaged = damage_of(storage, checkpoints[-1])
            if damaged is None:
                self._finish()
                return self._result(Outcome(before, "finished", "", checkpoints[-1].name), before)
            before = self._whole(checkpoints[:-1], damaged)
        with run_log(self.run.log_folder):
            if not before:
                settings = stage.prepared(storage)
            if not self.quiet:
                self.console.print(stage.introduction(), markup=False, highlight=False, soft_wrap=True)
            if settings.engine.kind == "single":
                outcome = self._train(settings, before)
            else:
                with ray_cluster(self.config.ray, self.run.log_folder):
                    _check_cluster(self.config, settings, stage.name)
                    outcome = self._train(settings, before)
            if outcome.ended == "finished":
                self._finish()
        return self._result(outcome, before)

    def _whole(self, earlier: Sequence[Checkpoint], damaged: str) -> int:
        """The step of the newest checkpoint that is whole: training passes over the damaged one, and saves it anew.

        Raises:
            CheckpointError: there is none.
        """
        storage = self.run.storage
        whole = next((item for item in reversed(earlier) if damage_of(storage, item) is None), None)
        if whole is None:
            raise CheckpointError(
                f"the run is finished, but its last checkpoint is not whole, nor is an earlier one: {damaged}. "
                f"Restore it in {storage.path(FOLDER)}, or train again with --new."
            )
        self.console.print(
            f"{damaged}\nThe steps from {whole.step:,} on are trained again.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
        # It has the hash of a checkpoint that is not there any more.
        storage.remove(LINEAGE)
        return whole.step

    def _train(self, settings: TrainConfig, before: int) -> Outcome:
        name = self.stage.name
        indent = " " * (len(name) + 2)
        with TrainingConsole(self.console, name, settings.steps, before, self.quiet) as shown:

            def report(step: int, values: Mapping[str, Any], new: bool) -> None:
                if new:
                    shown.report(step, values)
                elif MESSAGE in values:
                    shown.message(f"{indent}{values[MESSAGE]}")
                else:
                    shown.advance(step)

            with save_on_sigterm(shown.message) as stop:
                return train(settings, self.run.storage, stop, report)

    def _finish(self) -> None:
        storage = self.run.storage
        self.stage.lineage(storage, complete_checkpoints(storage)[-1])

    def _result(self, outcome: Outcome, before: int) -> TrainingResult:
        return TrainingResult(
            self.run.storage.root,
            outcome.steps,
            self.stage.settings.steps,
            outcome.ended,
            outcome.reason.removeprefix(ASKED),
            outcome.checkpoint,
            outcome.steps - before,
        )


def _check_cluster(config: PopulaceConfig, settings: TrainConfig, section: str) -> None:
    """Ray Train waits for resources without end; a cluster of this machine never gets more of them.

    Raises:
        ConfigError: it has too few.
    """
    engine = settings.engine
    if config.ray.address or os.environ.get("RAY_ADDRESS"):
        return  # it may grow
    have = ray.cluster_resources()
    for name, needed, key in (
        ("CPU", engine.cpus_per_worker, "engine.cpus_per_worker"),
        ("GPU", float(engine.use_gpu), "engine.use_gpu"),
    ):
        fewest = engine.min_workers or engine.workers
        if fewest * needed > have.get(name, 0):
            raise ConfigError(
                f"{section}.engine.workers {fewest} with {key} need {fewest * needed:g} {name}, but Ray has "
                f"{have.get(name, 0):g} here: give fewer workers, or the address of a larger cluster (ray.address)"
            )
