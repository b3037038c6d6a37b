"""Fine-tune: bring `{output}/finetune-<task>` to the state that the configuration asks for.

The folder is as `pipeline/training_run.py` has it, and with it:

measured/      the task's figures over held-out pictures, for the untrained model and for every checkpoint
work/          the backbone that it begins with, where that is the run's own (`finetune.model.from_pretrain`)
"""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pipeline.config import ConfigError, PopulaceConfig
from pipeline.export_weights import backbone_of
from pipeline.finetune_lineage import finetune_lineage, pictures_record, publish_finetune_lineage
from pipeline.lineage import LINEAGE
from pipeline.rundir import PRETRAIN, RUN_FILE, finetune_folder
from pipeline.storage import Storage
from pipeline.training_run import TrainingResult, TrainingStage, check_engine, run_training, where_it_trains
from training.data.errors import DataError
from training.engine.checkpoint import Checkpoint, complete_checkpoints
from training.finetuning.config import FinetuneConfig
from training.finetuning.fit import checked_pictures
from training.finetuning.pictures import LabelledConfig, PictureSource
from training.models.checkpoints import save_weights
from training.models.tensor_files import WeightsError, open_tensors
from training.models.zoo import model_spec

INITIAL = "work/initial.safetensors"


def finetune(config: PopulaceConfig, console: Console, quiet: bool = False, new: bool = False) -> TrainingResult:
    """Train a task model; arguments and errors as `run_training` has them."""
    settings = finetune_settings(config)
    check_engine(settings, "finetune")
    pictures = finetune_pictures(settings)
    return run_training(config, _Finetuning(settings, pictures, Storage(config.output)), console, quiet, new)


def finetune_settings(config: PopulaceConfig) -> FinetuneConfig:
    """The section; ConfigError where there is none."""
    settings = config.finetune
    if settings is None:
        raise ConfigError("finetune: missing; give the section, for example from configs/finetune-tiny-seg.yaml")
    return settings


def finetune_pictures(settings: FinetuneConfig) -> tuple[PictureSource, PictureSource]:
    """The pictures to train on and those that are held out; ConfigError where they cannot be used, or lack labels."""
    try:
        return checked_pictures(settings.setup(), settings.data)
    except DataError as error:
        raise ConfigError(f"finetune.data: {error}") from None


class _Finetuning(TrainingStage):
    name = "finetune"
    changeable = "workers, engine, checkpoint and watch settings, and for pose and seg batch.micro,"
    settings: FinetuneConfig

    def __init__(self, settings: FinetuneConfig, pictures: tuple[PictureSource, PictureSource], root: Storage) -> None:
        self.settings, self.pictures, self.root = settings, pictures_record(*pictures), root
        self.left_out = str(getattr(pictures[0], "left_out", ""))
        self.folder = finetune_folder(settings.task.kind)
        self.pretrained = own_pretraining(settings, root) if settings.model.from_pretrain else None
        check_initial_weights(settings)

    def identity(self) -> dict[str, Any]:
        identity = {**self.settings.identity(), "pretrained": self.pretrained}
        # What people that are rendered show is in their settings.
        own = isinstance(self.settings.data, LabelledConfig)
        return {**identity, "pictures": self.pictures} if own else identity

    def introduction(self) -> str:
        settings, model = self.settings, self.settings.model
        spec = model.backbone_config()
        height, width = settings.size
        begins = "random weights" if model.initial_weights is None else model.initial_weights
        if self.pretrained is not None:
            begins = f"{self.root.path(PRETRAIN)}/{self.pretrained['name']}"
        tasks = " + ".join(section.kind for section in settings.sections)
        left_out = f"; annotations left out: {self.left_out}" if self.left_out else ""
        return (
            f"finetune  {tasks} on {model.backbone}{' (frozen)' * model.freeze_backbone}: {spec.depth} "
            f"blocks of width {spec.width}, {height}x{width}, {self.pictures['train']['pictures']:,} images, "
            f"{settings.batch.size} a step, {settings.steps:,} steps, {where_it_trains(settings)}; begins with {begins}"
            f"{left_out}"
        )

    def prepared(self, storage: Storage) -> FinetuneConfig:
        """With the run's own backbone written out, where it begins with that."""
        if self.pretrained is None:
            return self.settings
        source = self.root.child(PRETRAIN)
        (checkpoint,) = (item for item in complete_checkpoints(source) if item.name == self.pretrained["name"])
        backbone = backbone_of(source, checkpoint, "teacher", _trained_model(source))
        path = save_weights(backbone, storage.path(INITIAL))
        model = self.settings.model.model_copy(update={"from_pretrain": False, "initial_weights": str(path)})
        return self.settings.model_copy(update={"model": model})

    def lineage(self, storage: Storage, newest: Checkpoint) -> None:
        record = storage.read_json(LINEAGE)
        if record is None or record["checkpoint"]["name"] != newest.name:
            record = finetune_lineage(self.settings, self.pictures, self.pretrained, storage, newest)
        publish_finetune_lineage(self.root, storage, record)


def check_initial_weights(settings: FinetuneConfig) -> None:
    """ConfigError where the file to begin with cannot be read."""
    path = settings.model.initial_weights
    if path is not None:
        try:
            with open_tensors(path):
                pass
        except WeightsError as error:
            raise ConfigError(f"finetune.model.initial_weights: {error}") from None


def own_pretraining(settings: FinetuneConfig, root: Storage) -> dict[str, Any]:
    """The finished pretraining of the same run: {"name": checkpoint, "sha256": of its files}.

    Raises:
        ConfigError: there is none, it is of another backbone, or it is where weights cannot be written out.
    """
    key = "finetune.model.from_pretrain"
    if not root.local:
        raise ConfigError(
            f"{key} writes the backbone into the output, which has to be a path, not {root.root}: use `populace "
            "export-weights` and give the file in finetune.model.initial_weights"
        )
    storage = root.child(PRETRAIN)
    record = storage.read_json(LINEAGE)  # written with the last step
    if record is None:
        raise ConfigError(
            f"{key} is true, but {storage.root} holds no finished pretraining: run `populace pretrain` with this "
            "output first, or `populace run` with a pretrain section; or give finetune.model.initial_weights"
        )
    found: dict[str, Any] = record["checkpoint"]
    if found["name"] not in [checkpoint.name for checkpoint in complete_checkpoints(storage)]:
        raise ConfigError(f"{key} is true, but {storage.path(found['name'])}, its last checkpoint, is gone or damaged")
    trained = _trained_model(storage)
    theirs = model_spec(trained["backbone"], **trained["overrides"]).config.replace(image_size=settings.size)
    ours = settings.model.backbone_config().replace(image_size=settings.size)
    if theirs != ours:
        raise ConfigError(
            f"{key} is true, but {storage.root} trained {trained['backbone']} with overrides {trained['overrides']}, "
            f"and finetune.model is {settings.model.backbone} with {settings.model.overrides}: give the same"
        )
    return found


def _trained_model(storage: Storage) -> dict[str, Any]:
    model: dict[str, Any] = (storage.read_json(RUN_FILE) or {})["identity"]["model"]
    return model
