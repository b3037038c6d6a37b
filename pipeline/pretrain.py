"""Pretrain: bring `{output}/pretrain` to the state that the configuration asks for.

The folder is as `pipeline/training_run.py` has it, with reconstructions in pictures/.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pipeline.config import ConfigError, PopulaceConfig
from pipeline.lineage import LINEAGE, own_manifest
from pipeline.pretrain_lineage import pretrain_lineage, publish_pretrain_lineage
from pipeline.rundir import PRETRAIN
from pipeline.storage import Storage
from pipeline.training_run import TrainingResult, TrainingStage, check_engine, run_training, where_it_trains
from training.data.config import CorpusConfig
from training.data.corpus import Corpus, open_corpus
from training.data.errors import DataError
from training.engine.checkpoint import Checkpoint
from training.pretraining.config import PretrainConfig


def pretrain(config: PopulaceConfig, console: Console, quiet: bool = False, new: bool = False) -> TrainingResult:
    """Train a backbone; arguments and errors as `run_training` has them."""
    root = Storage(config.output)
    settings, own_shards = training_settings(config, root)
    check_engine(settings, "pretrain")
    try:
        corpus = open_corpus(settings.data)
    except DataError as error:
        raise ConfigError(f"pretrain.{error}" if str(error).startswith("data.") else str(error)) from None
    return run_training(config, _Pretraining(settings, corpus, own_shards, root), console, quiet, new)


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


class _Pretraining(TrainingStage):
    name, folder = "pretrain", PRETRAIN
    settings: PretrainConfig

    def __init__(self, settings: PretrainConfig, corpus: Corpus, own_shards: bool, root: Storage) -> None:
        self.settings, self.corpus, self.own_shards, self.root = settings, corpus, own_shards, root

    def identity(self) -> dict[str, Any]:
        return {**self.settings.identity(), "corpus": self.corpus.fingerprint}

    def introduction(self) -> str:
        settings = self.settings
        spec = settings.model.backbone_config()
        height, width = settings.views.global_size
        return (
            f"pretrain  {settings.model.backbone}: {spec.depth} blocks of width {spec.width}, {height}x{width}, "
            f"{len(self.corpus):,} images, {settings.batch.size} a step, "
            f"{settings.steps:,} steps, {where_it_trains(settings)}"
        )

    def lineage(self, storage: Storage, newest: Checkpoint) -> None:
        record = storage.read_json(LINEAGE)
        if record is None or record["checkpoint"]["name"] != newest.name:
            record = pretrain_lineage(self.settings, self.corpus, self.own_shards, storage, newest)
        publish_pretrain_lineage(self.root, storage, record)
