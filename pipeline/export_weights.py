"""`populace export-weights`: a checkpoint of a training run -> safetensors that other code loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.rundir import PRETRAIN, RUN_FILE
from pipeline.storage import Storage
from training.engine.checkpoint import FOLDER, Checkpoint, complete_checkpoints, load_whole
from training.models.checkpoints import Format, save_weights
from training.models.rope import RopeEmbed, rope_periods
from training.models.zoo import create


class ExportError(ValueError):
    """There is nothing to export, or it cannot go there. The message says what to give."""


@dataclass(frozen=True)
class Exported:
    """What was written: where, from which checkpoint, how many parameters."""

    path: Path
    checkpoint: str
    parameters: int


def export_weights(
    run: str,
    which: str = "teacher",
    format: Format = "sapiens2",
    step: int | None = None,
    output: str | None = None,
    dtype: str = "float32",
) -> Exported:
    """Write the backbone of a checkpoint.

    Args:
        run: a run's output folder, or its pretrain folder; path or fsspec URL.
        which: "teacher" or "student".
        format: as `save_weights` has it.
        step: of the checkpoint; None: the newest.
        output: a `.safetensors` file or a folder; None: `exports/` in the training run's folder, or the working
            folder where that is not on this machine.
        dtype: "float32" or "bfloat16".

    Raises:
        ExportError: `run` is no training run, or has no such checkpoint.
        CheckpointError: the checkpoint is damaged.
        WeightsError: the format cannot be written there.
    """
    storage = _training_run(run)
    checkpoint = _checkpoint(storage, step)
    settings = (storage.read_json(RUN_FILE) or {})["identity"]["model"]
    model = backbone_of(storage, checkpoint, which, settings)
    target = output or _default_output(storage, checkpoint, which, format, dtype)
    path = save_weights(model, target, format, dtype=getattr(torch, dtype))
    return Exported(path, checkpoint.name, sum(parameter.numel() for parameter in model.parameters()))


def backbone_of(storage: Storage, checkpoint: Checkpoint, which: str, settings: dict[str, Any]) -> nn.Module:
    """The backbone of the teacher or the student, float32.

    Args:
        settings: the model section of the run's identity: `backbone` and `overrides`.
    """
    stored = load_whole(storage, checkpoint, f"{which}/backbone.")
    model = create(settings["backbone"], device="meta", **settings["overrides"])
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


def _training_run(run: str) -> Storage:
    for storage in (Storage(run).child(PRETRAIN), Storage(run)):
        if storage.exists(RUN_FILE) and storage.names(FOLDER):
            return storage
    raise ExportError(
        f"{run} holds no checkpoint: give the output folder of a run that pretrains, or its {PRETRAIN} folder"
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
