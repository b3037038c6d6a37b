"""What `populace doctor CONFIG` says of the finetune section: packages, pictures, weights, shared memory and disk."""

from __future__ import annotations

import torch

from pipeline.config import ConfigError, PopulaceConfig
from pipeline.doctor import Finding
from pipeline.doctor_training import STATE_BYTES, disk_finding, engine_finding, memory_finding
from pipeline.finetune import check_initial_weights, finetune_pictures, own_pretraining
from pipeline.storage import Storage
from training.finetuning.config import FinetuneConfig
from training.finetuning.model import blank_picture, task_model
from training.finetuning.pictures import LabelledConfig

PREFETCH = 2
"""Micro-batches that a loader worker has ready (torch's default)."""


def finetune_findings(config: PopulaceConfig) -> list[Finding]:
    """The checks, in the order in which a person would mend them."""
    settings = config.finetune
    assert settings is not None
    need, keys = waiting_bytes(settings), "workers or batch.micro"
    return [
        engine_finding("finetune", settings),
        _pictures(settings),
        _weights(config, settings),
        memory_finding("finetune", settings, need, "images and targets", keys),
        disk_finding("finetune", settings, config.output, task_checkpoint_bytes(settings)),
    ]


def _pictures(settings: FinetuneConfig) -> Finding:
    """All names of files are looked at, a few pictures are read."""
    try:
        train, held_out = finetune_pictures(settings)
    except ConfigError as error:
        return Finding("finetune data", False, str(error), "`populace check-data` with this configuration lists all")
    kind = "your own pictures" if isinstance(settings.data, LabelledConfig) else "people, rendered"
    return Finding("finetune data", True, f"{kind}: {len(train):,} to train on, {len(held_out):,} held out")


def _weights(config: PopulaceConfig, settings: FinetuneConfig) -> Finding:
    model = settings.model
    try:
        check_initial_weights(settings)
        if model.from_pretrain:
            found = own_pretraining(settings, Storage(config.output))
            return Finding("finetune weights", True, f"of the run's own pretraining, {found['name']}")
    except ConfigError as error:
        # What `populace run` is about to train need not be there yet.
        return Finding("finetune weights", model.from_pretrain and config.pretrain is not None, str(error))
    return Finding("finetune weights", True, model.initial_weights or "random")


def waiting_bytes(settings: FinetuneConfig) -> int:
    """Bytes of shared memory that loaded micro-batches take at most on one machine with all workers."""
    height, width = settings.size
    each = 0
    for part in settings.setup().parts.values():
        targets = part.task.targets(blank_picture(part))
        each += 3 * height * width + sum(value.numel() * value.element_size() for value in targets.values())
    return each * settings.batch.micro * settings.workers * PREFETCH * settings.engine.workers


def task_checkpoint_bytes(settings: FinetuneConfig) -> int:
    """Bytes of one checkpoint: every number, and two moments of those that are trained."""
    count = 0
    for name, parameter in task_model(settings, device=torch.device("meta")).named_parameters():
        frozen = settings.model.freeze_backbone and name.startswith("backbone.")
        count += parameter.numel() * (1 if frozen else 3)
    return STATE_BYTES * count
