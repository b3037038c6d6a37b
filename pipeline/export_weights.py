"""`populace export-weights`: a checkpoint of a training run -> safetensors that other code loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from pipeline.finetune_figures import best_checkpoint
from pipeline.rundir import FINETUNE, PRETRAIN, RUN_FILE, finetune_folder
from pipeline.storage import Storage
from training.engine.checkpoint import FOLDER, Checkpoint, complete_checkpoints, load_whole
from training.finetuning.config import FinetuneConfig
from training.finetuning.model import task_model
from training.models.checkpoints import Format, save_weights
from training.models.rope import RopeEmbed, rope_periods
from training.models.task_model import MultiTaskModel, TaskModel
from training.models.zoo import create

Model = TypeVar("Model", bound=nn.Module)
MULTI = "multi"
"""Stands for the task in the name of a folder of several."""


class ExportError(ValueError):
    """There is nothing to export, or it cannot go there. The message says what to give."""


@dataclass(frozen=True)
class Exported:
    """What was written: where, which model of which checkpoint, how many parameters."""

    path: Path
    which: str
    checkpoint: str
    parameters: int


def export_weights(
    run: str,
    which: str | None = None,
    format: Format = "sapiens2",
    step: int | None = None,
    output: str | None = None,
    dtype: str = "float32",
    task: str | None = None,
) -> Exported:
    """Write the backbone of a checkpoint, or a whole task model.

    Args:
        run: a run's output folder, or its pretrain folder or one that was fine-tuned; path or fsspec URL.
        which: "teacher" or "student"; None: the teacher of pretraining. Task models have a student only.
        format: as `save_weights` has it.
        step: of the checkpoint; None: the newest, or of a task model that with the best metric.
        output: a `.safetensors` file or a folder; None: `exports/` in the training run's folder, or the working
            folder where that is not on this machine.
        dtype: "float32" or "bfloat16".
        task: fine-tuned in `run`, alone or with others; None: what the folder is of, else the pretraining. Of several
            tasks the backbone and the head of this one are written.

    Raises:
        ExportError: `run` is no training run, or has no such checkpoint, or no head for the task.
        CheckpointError: the checkpoint is damaged.
        WeightsError: the format cannot be written there.
    """
    storage = _training_run(run, task)
    identity = (storage.read_json(RUN_FILE) or {})["identity"]
    tasks = tasks_of(identity)
    if task is None and len(tasks) > 1:
        raise ExportError(
            f"{storage.root} is of several tasks, and released names have room for one head: give --task, one of "
            f"{', '.join(tasks)}"
        )
    if task is not None and task not in tasks:
        raise ExportError(f"{storage.root} is no run of the task {task}, but of {', '.join(tasks) or 'pretraining'}")
    if tasks and which == "teacher":
        raise ExportError("a task model has no teacher: leave --which out, or give student")
    if not tasks:
        checkpoint, which = _checkpoint(storage, step), which or "teacher"
        model = backbone_of(storage, checkpoint, which, identity["model"])
    else:
        best = best_checkpoint(storage) if step is None else None
        checkpoint, which = best or _checkpoint(storage, step), task or tasks[0]
        model = task_model_of(storage, checkpoint, identity)
        if isinstance(model, MultiTaskModel):
            model = model.single(which)
    target = output or _default_output(storage, checkpoint, which, format, dtype)
    path = save_weights(model, target, format, dtype=getattr(torch, dtype))
    return Exported(path, which, checkpoint.name, sum(parameter.numel() for parameter in model.parameters()))


def tasks_of(identity: dict[str, Any]) -> list[str]:
    """Names of the tasks of a run by its identity, as `run.json` has it; none for pretraining."""
    section = identity.get("task", {})
    return [part["kind"] for part in section.get("tasks", [section] if section else [])]


def backbone_of(storage: Storage, checkpoint: Checkpoint, which: str, settings: dict[str, Any]) -> nn.Module:
    """The backbone of the teacher or the student, float32.

    Args:
        settings: the model section of the run's identity: `backbone` and `overrides`.
    """
    model = create(settings["backbone"], device="meta", **settings["overrides"])
    return _filled(model, storage, checkpoint, f"{which}/backbone.")


def task_model_of(storage: Storage, checkpoint: Checkpoint, identity: dict[str, Any]) -> TaskModel | MultiTaskModel:
    """The model of a fine-tuning run, float32.

    Args:
        identity: of the run, as `run.json` has it.
    """
    config = finetune_config_of(identity)
    return _filled(task_model(config, torch.device("meta")), storage, checkpoint, "student/")


def finetune_config_of(identity: dict[str, Any]) -> FinetuneConfig:
    """The section of a fine-tuning run, but for what its identity leaves out: `batch.micro` is 1, the engine's
    settings and the like are the defaults; `data` is the default where pictures were labelled ones, which may be
    anywhere.

    Raises:
        ValueError: a file that it names is gone, such as that of a keypoint set.
    """
    fields = {name: identity[name] for name in FinetuneConfig.model_fields if name in identity}
    if fields["data"].get("kind") == "labelled":
        del fields["data"]
    return FinetuneConfig.model_validate({**fields, "batch": {**fields["batch"], "micro": 1}})


def _filled(model: Model, storage: Storage, checkpoint: Checkpoint, prefix: str) -> Model:
    """A module on the meta device with the tensors of a checkpoint."""
    stored = load_whole(storage, checkpoint, prefix)
    missing = {name for name, _ in model.named_parameters()} ^ stored.keys()
    if missing:
        raise ExportError(
            f"{storage.path(checkpoint.name)} and {RUN_FILE} disagree about {', '.join(sorted(missing)[:3])}: one of "
            "them is of another run"
        )
    for name, _ in list(model.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, nn.Parameter(stored.pop(name)))
    for module in model.modules():
        if isinstance(module, RopeEmbed):  # computed, and in no checkpoint
            module.periods = rope_periods(module.config)
    return model


def _training_run(run: str, task: str | None) -> Storage:
    given = Storage(run)
    folder = PRETRAIN if task is None else finetune_folder(task)
    several = given.child(finetune_folder(MULTI))
    together = tasks_of((several.read_json(RUN_FILE) or {}).get("identity", {}))
    for storage in (given.child(folder), *([several] if task in together else []), given):
        if storage.exists(RUN_FILE) and storage.names(FOLDER):
            return storage
    names = [name.removeprefix(FINETUNE) for name in given.names() if name.startswith(FINETUNE) and ".old-" not in name]
    tasks = [*(name for name in names if name != MULTI), *together]
    hint = f"; it has fine-tuned {', '.join(tasks)}: give --task {tasks[0]}" if tasks else ""
    raise ExportError(
        f"{run} holds no checkpoint{'' if task is None else f' of the task {task}'}: give the output folder of a run "
        f"that trains, or its {folder} folder{hint}"
    )


def _checkpoint(storage: Storage, step: int | None) -> Checkpoint:
    found = complete_checkpoints(storage)
    if step is None and found:
        return found[-1]
    for checkpoint in found:
        if checkpoint.step == step:
            return checkpoint
    steps = ", ".join(str(checkpoint.step) for checkpoint in found)
    raise ExportError(
        f"{storage.root} has no complete checkpoint"
        + (f" of step {step}; it has those of steps {steps}" if found else "")
    )


def _default_output(storage: Storage, checkpoint: Checkpoint, which: str, format: str, dtype: str) -> str:
    name = f"{which}-step-{checkpoint.step:09d}-{format}-{dtype}"
    folder = storage.path("exports") if storage.local else "."
    return f"{folder}/{name}" + ("" if format == "transformers" else ".safetensors")
