"""What `populace predict` and `evaluate` take as --weights: a file, a folder of weights, or a run that fine-tuned.

A run says everything: its best checkpoint is read as it is, with the sizes, keypoints or classes, crops and the fit of
pictures that it was trained with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml
from pydantic import BaseModel, ValidationError

from pipeline.config import ConfigError
from pipeline.export_weights import MULTI, finetune_config_of, task_model_of, tasks_of
from pipeline.finetune_figures import best_checkpoint
from pipeline.rundir import FINETUNE, RUN_FILE, finetune_folder
from pipeline.storage import Storage
from training.engine.checkpoint import FOLDER, Checkpoint, complete_checkpoints
from training.finetuning.config import FinetuneConfig
from training.finetuning.tasks import DenseSetup
from training.models.task_model import MultiTaskModel, TaskModel
from training.prediction.boxes import Detector
from training.prediction.config import PredictorConfig
from training.prediction.predictor import Predictor
from training.prediction.tasks import TaskConfig
from training.tasks.frames import Size
from training.tasks.parts import PartClasses
from training.tasks.pose import PoseConfig
from training.tasks.segmentation import SegmentationConfig

Section = TypeVar("Section", bound=BaseModel)


@dataclass(frozen=True)
class LoadedTask:
    """A predictor, where its weights come from, and the section of the run if they are one's."""

    predictor: Predictor
    origin: str
    finetune: FinetuneConfig | None = None


@dataclass(frozen=True)
class WeightsOptions:
    """What may be given beside the weights; None: as the weights or the run say.

    Attributes:
        size: (height, width) in pixels of what the network sees.
        backbone: a name of the zoo, see `Predictor.load`.
        device: torch's name.
        keypoints: name or YAML file of a keypoint set.
        classes: YAML file with the fields of `PartClasses`.
        checkpoint: step of a run's checkpoint; None: the best.
        config: of the predictor.
        task: sections of a configuration file, which the options above replace.
    """

    size: Size | None = None
    backbone: str | None = None
    device: str | None = None
    keypoints: str | None = None
    classes: str | None = None
    checkpoint: int | None = None
    config: PredictorConfig = field(default_factory=PredictorConfig)
    pose: PoseConfig | None = None
    seg: SegmentationConfig | None = None


def load_task(
    task: str, weights: str, options: WeightsOptions | None = None, detector: Detector | None = None
) -> LoadedTask:
    """A predictor from weights or from a run.

    Args:
        task: one of `heads.TASKS`.
        weights: a safetensors file or folder as `load_weights` takes them; or the output folder of a run that has
            fine-tuned this task, or its folder of the task, also as an fsspec URL.

    Raises:
        ConfigError: options that do not fit, or a run without such a checkpoint.
        WeightsError, ValueError: see `Predictor.load`.
        CheckpointError: a damaged checkpoint.
    """
    options = options or WeightsOptions()
    if options.keypoints is not None and task != "pose":
        raise ConfigError(f"--keypoints are those of pose, not of {task}: leave them out")
    if options.classes is not None and task != "seg":
        raise ConfigError(f"--classes are those of seg, not of {task}: leave them out")
    if options.device is not None:
        try:
            torch.empty(1, device=options.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"--device is {options.device!r}, where no tensor can be made: {reason}") from None
    run = _run_of(task, weights)
    if run is not None:
        return _from_run(task, run, options, detector)
    if options.checkpoint is not None:
        raise ConfigError(f"--checkpoint is of a run, and {weights} is none that has fine-tuned {task}")
    predictor = Predictor.load(
        task, weights, options.backbone, options.size, options.device,
        config=options.config, task_config=_task_config(task, options), detector=detector,
    )  # fmt: skip
    return LoadedTask(predictor, weights)


def _run_of(task: str, weights: str) -> Storage | None:
    """The folder of the run that fine-tuned the task; None: `weights` is no run.

    Raises:
        ConfigError: it is a run, but not of this task.
    """
    if "://" not in weights and not Path(weights).is_dir():
        return None
    given = Storage(weights)
    for storage in (given.child(finetune_folder(task)), given.child(finetune_folder(MULTI)), given):
        if storage.names(FOLDER) and task in tasks_of(_identity(storage)):
            return storage
    if not given.exists(RUN_FILE) and not any(name.startswith(FINETUNE) for name in given.names()):
        return None
    names = [
        name
        for name in given.names()
        if name.startswith(FINETUNE) and ".old-" not in name and given.child(name).names(FOLDER)
    ]
    kinds = tasks_of(_identity(given)) or [kind for name in names for kind in tasks_of(_identity(given.child(name)))]
    has = f"it has {', '.join(kinds)}" if kinds else "it has fine-tuned nothing"
    raise ConfigError(f"{weights} holds no checkpoint of the task {task} ({has}): run `populace finetune` for it first")


def _identity(storage: Storage) -> dict[str, Any]:
    found = (storage.read_json(RUN_FILE) or {}).get("identity")
    return found if isinstance(found, dict) else {}


def run_section(task: str, run: str) -> FinetuneConfig | None:
    """The `finetune` section of a run of this task, with its pictures; None: `run` is no run.

    Raises:
        ConfigError: it is a run, but not of this task; or its pictures may be anywhere.
    """
    storage = _run_of(task, run)
    if storage is None:
        return None
    identity = _identity(storage)
    if identity.get("data", {}).get("kind") == "labelled":
        raise ConfigError(
            f"{storage.root} was trained on labelled pictures, and does not record where they are: give the "
            "configuration with finetune.data"
        )
    return _section(storage, identity)


def _section(storage: Storage, identity: dict[str, Any]) -> FinetuneConfig:
    try:
        return finetune_config_of(identity)
    except ValidationError as error:
        raise ConfigError(f"{storage.path(RUN_FILE)}: {one_line(error)}") from None


def _from_run(task: str, storage: Storage, options: WeightsOptions, detector: Detector | None) -> LoadedTask:
    if options.backbone is not None:
        raise ConfigError(f"--backbone is for files: {storage.root} says itself what its model is; leave it out")
    identity = _identity(storage)
    trained = _section(storage, identity if options.keypoints is None else _with_keypoints(identity, options.keypoints))
    checkpoint = _checkpoint(storage, options.checkpoint)
    part = trained.setup().parts[task]
    size = options.size or trained.size
    if size != trained.size:
        if task == "pointmap":
            raise ConfigError(
                f"the pointmap of {storage.root} was trained at {trained.size} (height, width), and its scale branch "
                "fits no other size: leave --size out"
            )
        trained.model.backbone_config().replace(image_size=size).grid_of(*size)
    model = task_model_of(storage, checkpoint, {**identity, "task": trained.model_dump(mode="json")["task"]})
    if isinstance(model, MultiTaskModel):
        model = model.single(task)
    assert isinstance(model, TaskModel)
    place = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    config = options.config
    if config.fit is None and isinstance(part, DenseSetup):
        config = config.model_copy(update={"fit": part.frames.fit})
    # Keypoints alone are in `trained` already, beside what else the run says of its task.
    given = None if task == "pose" and options.pose is None else _task_config(task, options)
    adapter = part.task if given is None else type(part.task)(given)
    predictor = Predictor(model.to(place, getattr(torch, config.dtype)), adapter, size, config, detector)
    return LoadedTask(predictor, storage.path(checkpoint.name), trained)


def _with_keypoints(identity: dict[str, Any], keypoints: str) -> dict[str, Any]:
    """The set that a run was trained with may lie elsewhere now."""

    def changed(section: dict[str, Any]) -> dict[str, Any]:
        if section["kind"] == MULTI:
            return {**section, "tasks": [changed(part) for part in section["tasks"]]}
        return section if "pose" not in section else {**section, "pose": {**section["pose"], "keypoints": keypoints}}

    return {**identity, "task": changed(identity["task"])}


def _checkpoint(storage: Storage, step: int | None) -> Checkpoint:
    found = complete_checkpoints(storage)
    if step is not None:
        found = [checkpoint for checkpoint in found if checkpoint.step == step]
    else:
        best = best_checkpoint(storage)
        found = found if best is None else [best]
    if found:
        return found[-1]
    steps = ", ".join(str(checkpoint.step) for checkpoint in complete_checkpoints(storage))
    which = "" if step is None else f" of step {step}"
    raise ConfigError(f"{storage.root} has no complete checkpoint{which}; it has those of steps {steps or '(none)'}")


def _task_config(task: str, options: WeightsOptions) -> TaskConfig | None:
    """Of the task, where the options say something of it."""
    if task == "pose" and (options.keypoints is not None or options.pose is not None):
        base = options.pose or PoseConfig()
        if options.keypoints is None:
            return base
        return validated(PoseConfig, {**base.model_dump(), "keypoints": options.keypoints}, "--keypoints")
    if task == "seg" and (options.classes is not None or options.seg is not None):
        base_seg = options.seg or SegmentationConfig()
        if options.classes is None:
            return base_seg
        classes = validated(PartClasses, read_yaml(options.classes), f"--classes {options.classes}")
        return base_seg.model_copy(update={"classes": classes})
    return None


def read_yaml(path: str) -> Mapping[str, Any]:
    """A mapping from a YAML or JSON file.

    Raises:
        ConfigError: unreadable, or no mapping.
    """
    try:
        value = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a mapping, got {type(value).__name__}")
    return value


def validated(kind: type[Section], values: Mapping[str, Any], where: str) -> Section:
    """A section of a mapping.

    Raises:
        ConfigError: unknown keys and wrong values, in one line.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: {one_line(error)}") from None


def one_line(error: ValidationError) -> str:
    """What is wrong where."""
    found = []
    for item in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        found.append(f"{place}: {message}" if place else message)
    return "; ".join(found)
