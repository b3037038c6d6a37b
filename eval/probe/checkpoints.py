"""Probes checkpoints of a run; `probe.json` beside each is what `checkpoint.keep_best` goes by."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from curation.config import fingerprint
from eval.probe.config import ProbeConfig
from eval.probe.labelled import Labelled
from eval.probe.probe import linear_probe
from pipeline.storage import Storage
from training.engine.checkpoint import MARKER, Checkpoint, CheckpointError, complete_checkpoints, load_whole
from training.models.backbone import Backbone
from training.models.config import BackboneConfig

Part = Literal["teacher", "student"]
PROBE_FILE = "probe.json"


@dataclass(frozen=True)
class Probed:
    """A checkpoint and what its probe says.

    Attributes:
        step: optimizer steps that were done.
        record: what `probe.json` holds: "score" (mIoU), "step", "part", "probe" (fingerprint of settings and
            pictures), "metrics".
    """

    step: int
    record: dict[str, Any]

    @property
    def score(self) -> float:
        """Mean intersection over union."""
        return float(self.record["score"])


def checkpoint_backbone(
    storage: Storage, checkpoint: Checkpoint, config: BackboneConfig, part: Part = "teacher"
) -> Backbone:
    """The encoder of a checkpoint, float32, on the CPU.

    Args:
        config: the run's, `PretrainConfig.model.backbone_config()`.
        part: a run without distillation has a teacher, too: the moving average of its encoder.

    Raises:
        CheckpointError: its encoder is of another shape, or its bytes are damaged.
    """
    weights = load_whole(storage, checkpoint, f"{part}/backbone.")
    # Weights drawn on the way are overwritten: the caller's random numbers must not notice.
    with torch.random.fork_rng(devices=[]):
        backbone = Backbone(config)
    shapes = {name: tuple(value.shape) for name, value in backbone.named_parameters()}
    wrong = sorted(name for name in shapes.keys() | weights.keys() if _shape(weights, name) != shapes.get(name))
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{checkpoint.name} does not fit the given backbone: {len(wrong)} tensors of the {part} differ, such as "
            f"{name}, {_shape(weights, name)} in the checkpoint and {shapes.get(name)} in the backbone. Give the "
            "configuration that the run was started with"
        )
    backbone.load_state_dict(weights, strict=False)  # all but the RoPE periods, which the configuration fixes
    return backbone.requires_grad_(False).eval()


def probe_checkpoint(
    storage: Storage,
    checkpoint: Checkpoint,
    backbone: BackboneConfig,
    train: Labelled,
    test: Labelled,
    config: ProbeConfig | None = None,
    part: Part = "teacher",
) -> Probed:
    """Probe one checkpoint and write its `probe.json`, unless one for the same settings and pictures is there.

    Raises:
        CheckpointError: see `checkpoint_backbone`; or the run removed the checkpoint meanwhile.
    """
    config = config or ProbeConfig()
    identity = fingerprint(config, part, train.fingerprint(), test.fingerprint())
    known = storage.read_json(f"{checkpoint.name}/{PROBE_FILE}")
    if known is not None and known.get("probe") == identity:
        return Probed(checkpoint.step, known)
    metrics = linear_probe(checkpoint_backbone(storage, checkpoint, backbone, part), train, test, config)
    record = {
        "score": metrics["miou"],
        "step": checkpoint.step,
        "part": part,
        "probe": identity,
        "metrics": metrics,
    }
    # A run that trains on may have removed it; a file written now would bring its folder back.
    if not storage.exists(f"{checkpoint.name}/{MARKER}"):
        raise CheckpointError(f"{checkpoint.name} was removed while it was probed: keep more with checkpoint.keep_last")
    storage.write_bytes(
        f"{checkpoint.name}/{PROBE_FILE}", json.dumps(record, sort_keys=True, indent=1).encode() + b"\n"
    )
    return Probed(checkpoint.step, record)


def probe_run(
    storage: Storage,
    backbone: BackboneConfig,
    train: Labelled,
    test: Labelled,
    config: ProbeConfig | None = None,
    part: Part = "teacher",
    told: Callable[[Probed], None] | None = None,
) -> list[Probed]:
    """Probe every complete checkpoint of a run's folder, oldest first; those that are already probed are not again.

    Args:
        storage: the run's folder.
        backbone: of the run.
        told: called after each checkpoint.
    """
    found = []
    for checkpoint in complete_checkpoints(storage):
        try:
            probed = probe_checkpoint(storage, checkpoint, backbone, train, test, config, part)
        except (CheckpointError, OSError):
            if storage.exists(f"{checkpoint.name}/{MARKER}"):
                raise
            continue  # the run went on and removed it
        found.append(probed)
        if told is not None:
            told(probed)
    return found


def _shape(weights: dict[str, torch.Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(weights[name].shape) if name in weights else None
