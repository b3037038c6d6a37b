"""What fine-tuning adds to lineage.json, kept as `finetune-<task>/lineage.json`."""

from __future__ import annotations

import platform
from typing import Any

from pipeline.finetune_figures import best_checkpoint
from pipeline.lineage import LINEAGE, code_version, json_bytes, versions, write_lineage
from pipeline.pretrain_lineage import CODE, PACKAGES, checkpoint_sha256
from pipeline.storage import Storage
from training.engine.checkpoint import Checkpoint
from training.finetuning.config import FinetuneConfig
from training.finetuning.pictures import Pictures


def pictures_record(train: Pictures, held_out: Pictures) -> dict[str, Any]:
    """Which pictures those are: {"train": {"fingerprint": of what they show and how it is read, "pictures": their
    number}, "held_out": ...}."""
    sides = {"train": train, "held_out": held_out}
    return {name: {"fingerprint": pictures.fingerprint, "pictures": len(pictures)} for name, pictures in sides.items()}


def finetune_lineage(
    config: FinetuneConfig,
    pictures: dict[str, Any],
    pretrained: dict[str, Any] | None,
    storage: Storage,
    checkpoint: Checkpoint,
) -> dict[str, Any]:
    """The record of a finished fine-tuning run; the same run gives the same bytes.

    Args:
        pictures: `pictures_record` of what it trained on.
        pretrained: name and SHA-256 of the checkpoint of the same run that it began with.
        storage: the folder of the training run.
        checkpoint: its last.
    """
    best = best_checkpoint(storage) or checkpoint
    return {
        "format": 1,
        "configuration_hash": config.result_hash(),
        "configuration": config.identity(),
        "code_version": code_version((*CODE, "eval")),
        "python": platform.python_version(),
        "packages": versions(PACKAGES),
        "pretrained": pretrained,
        "data": pictures,
        "steps": checkpoint.step,
        "images": checkpoint.step * config.batch.size,
        "checkpoint": {"name": checkpoint.name, "sha256": checkpoint_sha256(storage, checkpoint)},
        "best": {"name": best.name, "sha256": checkpoint_sha256(storage, best)},
    }


def publish_finetune_lineage(run: Storage, storage: Storage, record: dict[str, Any]) -> None:
    """Write the record beside the checkpoints, and put it into that of the whole run."""
    storage.write_bytes(LINEAGE, json_bytes(record))
    write_lineage(run, run.read_json(LINEAGE) or {"format": 1})
