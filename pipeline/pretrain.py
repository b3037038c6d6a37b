"""Pretrain: bring `{output}/pretrain` to the state that the configuration asks for.

run.json       what the training run is about: the settings that fix its losses, and the fingerprint of its corpus
checkpoints/   see `training/engine/checkpoint.py`
metrics.jsonl  one line per logged step; tensorboard/ has the same
pictures/      reconstructions
lineage.json   written when the last step is saved
logs/, work/   messages; what Ray Train keeps of its workers
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ray
import torch
from rich.console import Console

from pipeline.config import ConfigError, PopulaceConfig
from pipeline.lineage import LINEAGE, own_manifest
from pipeline.logs import run_log
from pipeline.pretrain_lineage import pretrain_lineage, publish_pretrain_lineage
from pipeline.resources import ray_cluster
from pipeline.rundir import PRETRAIN, RunDirectory, RunKind, lock_folder
from pipeline.storage import Storage
from training.data.config import CorpusConfig
from training.data.corpus import Corpus, open_corpus
from training.data.errors import DataError
from training.engine.checkpoint import FOLDER, complete_checkpoints
from training.engine.journal import MESSAGE
from training.engine.launch import ASKED, train
from training.engine.loop import Outcome
from training.engine.stop import save_on_sigterm
from training.pretraining.config import PretrainConfig
from training.watch.console import TrainingConsole

log = logging.getLogger(__name__)

PRETRAINING = RunKind(
    "a training run with other settings or another corpus, and its checkpoints do not fit these",
    "engine, checkpoint and watch settings and batch.micro may change inside a run, except engine.precision. "
    "`populace pretrain CONFIG --new` sets aside this folder only.",
    lambda storage: bool(storage.names(FOLDER)),
)


@dataclass(frozen=True)
class PretrainResult:
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


def pretrain(config: PopulaceConfig, console: Console, quiet: bool = False, new: bool = False) -> PretrainResult:
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
    settings, own_shards = training_settings(config, root)
    _check_engine(settings)
    try:
        corpus = open_corpus(settings.data)
    except DataError as error:
        raise ConfigError(f"pretrain.{error}" if str(error).startswith("data.") else str(error)) from None
    # Also against curation: it would take the shards away that this trains on.
    lock = lock_folder(root.root) if root.local else None
    try:
        identity = {**settings.identity(), "corpus": corpus.fingerprint}
        run = RunDirectory(root.path(PRETRAIN), identity, new, PRETRAINING)
        try:
            return _Pretrain(config, settings, corpus, own_shards, root, run, console, quiet)()
        finally:
            run.close()
    finally:
        if lock is not None:
            os.close(lock)


def training_settings(config: PopulaceConfig, root: Storage) -> tuple[PretrainConfig, bool]:
    """The pretrain section with its corpora filled in, and whether they are the run's own.

    Raises:
        ConfigError: there is no such section, or nothing is curated yet.
    """
    settings = config.pretrain
    if settings is None:
        raise ConfigError("pretrain: missing; give the section, for example from configs/pretrain-tiny.yaml")
    if settings.data.corpora:
        return settings, False
    manifest = own_manifest(root)
    if manifest is None:
        raise ConfigError(
            f"{root.path('shards')} holds no finished corpus: run `populace curate` with this configuration first, or "
            "`populace run`, which does both; or list other corpora in pretrain.data.corpora."
        )
    corpora = (CorpusConfig(path=root.path(manifest), storage_options=root.options),)
    return settings.model_copy(update={"data": settings.data.model_copy(update={"corpora": corpora})}), True


def _check_engine(settings: PretrainConfig) -> None:
    engine = settings.engine
    if engine.kind == "zero3" and importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "pretrain.engine.kind zero3 needs DeepSpeed: pip install 'populace[train]'; kind single does without"
        )
    if engine.kind == "single" and engine.use_gpu and not torch.cuda.is_available():
        raise ConfigError("pretrain.engine.use_gpu is true, but torch finds no GPU here: set it to false")


@dataclass
class _Pretrain:
    config: PopulaceConfig
    settings: PretrainConfig
    corpus: Corpus
    own_shards: bool
    root: Storage
    run: RunDirectory
    console: Console
    quiet: bool

    def __call__(self) -> PretrainResult:
        settings, storage = self.settings, self.run.storage
        checkpoints = complete_checkpoints(storage)
        before = checkpoints[-1].step if checkpoints else 0
        if before >= settings.steps:
            self._finish()
            return self._result(Outcome(before, "finished", "", checkpoints[-1].name), before)
        with run_log(self.run.log_folder):
            self._introduce(before)
            if settings.engine.kind == "single":
                outcome = self._train(before)
            else:
                with ray_cluster(self.config.ray, self.run.log_folder):
                    _check_cluster(self.config, settings)
                    outcome = self._train(before)
            if outcome.ended == "finished":
                self._finish()
        return self._result(outcome, before)

    def _introduce(self, before: int) -> None:
        settings, engine = self.settings, self.settings.engine
        spec = settings.model.backbone_config()
        height, width = settings.views.global_size
        how = (
            "this process"
            if engine.kind == "single"
            else f"{engine.workers} worker{'s' * (engine.workers > 1)}, ZeRO-3"
        )
        self._say(
            f"pretrain  {settings.model.backbone}: {spec.depth} blocks of width {spec.width}, {height}x{width}, "
            f"{len(self.corpus):,} images, {settings.batch.size} a step, "
            f"{settings.steps:,} steps, {how}"
        )

    def _say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _train(self, before: int) -> Outcome:
        steps = self.settings.steps
        with TrainingConsole(self.console, "pretrain", steps, before, self.quiet) as shown:

            def report(step: int, values: Mapping[str, Any], new: bool) -> None:
                if new:
                    shown.report(step, values)
                elif MESSAGE in values:
                    shown.message(f"          {values[MESSAGE]}")
                else:
                    shown.advance(step)

            with save_on_sigterm(shown.message) as stop:
                return train(self.settings, self.run.storage, stop, report)

    def _finish(self) -> None:
        """Write where the result came from; a run that was finished before keeps what was written then."""
        storage = self.run.storage
        record = storage.read_json(LINEAGE)
        newest = complete_checkpoints(storage)[-1]
        if record is None or record["checkpoint"]["name"] != newest.name:
            record = pretrain_lineage(self.settings, self.corpus, self.own_shards, storage, newest)
        publish_pretrain_lineage(self.root, storage, record)

    def _result(self, outcome: Outcome, before: int) -> PretrainResult:
        return PretrainResult(
            self.run.storage.root,
            outcome.steps,
            self.settings.steps,
            outcome.ended,
            outcome.reason.removeprefix(ASKED),
            outcome.checkpoint,
            outcome.steps - before,
        )


def _check_cluster(config: PopulaceConfig, settings: PretrainConfig) -> None:
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
                f"pretrain.engine.workers {fewest} with {key} need {fewest * needed:g} {name}, but Ray has "
                f"{have.get(name, 0):g} here: give fewer workers, or the address of a larger cluster (ray.address)"
            )
