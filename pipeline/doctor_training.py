"""What `populace doctor CONFIG` says of the pretrain section: packages, GPUs, shared memory and disk.

The findings that a finetune section has as well are functions of the section's name.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import torch

from pipeline.config import PopulaceConfig
from pipeline.doctor import Finding
from pipeline.pretrain import training_settings
from pipeline.storage import Storage
from training.data.corpus import open_corpus
from training.data.errors import DataError
from training.engine.config import TrainConfig
from training.models.cost import readable_bytes
from training.pretraining.config import PretrainConfig
from training.pretraining.model import PretrainModel

STATE_BYTES = 4
"""Of each number of a checkpoint: weights, two moments and the teacher are float32."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not written to


def training_findings(config: PopulaceConfig) -> list[Finding]:
    """The checks, in the order in which a person would mend them."""
    settings = config.pretrain
    assert settings is not None
    need = batch_bytes(settings)
    return [
        engine_finding("pretrain", settings),
        _corpus(config),
        memory_finding("pretrain", settings, need, "views", "data.workers, data.prefetch or batch.micro"),
        disk_finding("pretrain", settings, config.output, checkpoint_bytes(settings)),
    ]


def engine_finding(section: str, settings: TrainConfig) -> Finding:
    """Whether the packages and GPUs that the engine wants are here."""
    engine, check = settings.engine, f"{section} engine"
    if engine.kind == "zero3" and importlib.util.find_spec("deepspeed") is None:
        return Finding(check, False, "zero3, without deepspeed", "pip install 'populace[train]'")
    if not engine.use_gpu:
        return Finding(check, True, f"{engine.kind}, {engine.workers} on CPUs")
    here = torch.cuda.device_count()
    # A cluster may have them elsewhere: no GPU at all on this machine is said, and is no failure.
    fits = here == 0 or here >= engine.workers
    return Finding(
        check,
        True,
        f"{engine.kind}, {engine.workers} GPUs wanted, {here} on this machine",
        "" if fits and here else "the Ray cluster (ray.address) has to have them, or give engine.workers fewer",
    )


def _corpus(config: PopulaceConfig) -> Finding:
    try:
        settings, own = training_settings(config, Storage(config.output))
        corpus = open_corpus(settings.data)
    except (DataError, ValueError) as error:
        # What `populace run` is about to write need not be there yet.
        return Finding("pretrain corpus", config.source is not None, str(error))
    whose = "this run's own shards" if own else f"{len(settings.data.corpora)} corpora"
    return Finding("pretrain corpus", True, f"{whose}: {len(corpus):,} images in {len(corpus.tars)} shards")


def batch_bytes(settings: PretrainConfig) -> int:
    """Bytes of shared memory that loaded micro-batches take at most on one machine with all workers."""
    views, data = settings.views, settings.data
    pixels = views.global_count * views.global_size[0] * views.global_size[1]
    pixels += views.local_count * views.local_size[0] * views.local_size[1]
    waiting = data.workers * (data.prefetch + 1)
    return 3 * pixels * settings.batch.micro * waiting * settings.engine.workers


def memory_finding(section: str, settings: TrainConfig, need: int, what: str, keys: str) -> Finding:
    """Whether loaded micro-batches fit into shared memory.

    Args:
        need: bytes of those that wait at most, of all workers together.
        what: they hold.
        keys: of the configuration that lower it.
    """
    check = f"{section} batches"
    if not need or not SHARED_MEMORY.exists():
        return Finding(check, True, "loaded without shared memory")
    have = shutil.disk_usage(SHARED_MEMORY).free
    found = (
        f"{readable_bytes(need)} of {what} wait in /dev/shm, if all workers are here; {readable_bytes(have)} are free"
    )
    fix = f"raise it (--shm-size, or a larger tmpfs), or lower {keys}"
    # Workers on several machines share the need: a machine without GPUs of its own is not judged.
    return Finding(check, have >= need or settings.engine.use_gpu, found, "" if have >= need else fix)


def checkpoint_bytes(settings: PretrainConfig) -> int:
    """Bytes of one checkpoint: of each trained number itself and two moments, and the teacher."""
    model = PretrainModel(settings, device=torch.device("meta"))
    trained = sum(parameter.numel() for parameter in model.student.parameters())
    averaged = sum(parameter.numel() for parameter in model.teacher.parameters())
    return STATE_BYTES * (3 * trained + averaged)


def disk_finding(section: str, settings: TrainConfig, output: str, each: int) -> Finding:
    """Whether the checkpoints of a run, of `each` bytes, fit where they go."""
    check, keep = f"{section} disk", settings.checkpoint
    # One more than is kept is there while the newest is written.
    count = keep.keep_last + keep.keep_best + 1
    if keep.keep_every is not None:
        count += settings.steps // keep.keep_every
    found = (
        f"a checkpoint has {readable_bytes(each)}, and {count} of them are kept at most: {readable_bytes(count * each)}"
    )
    storage = Storage(output)
    if not storage.local:
        return Finding(check, True, found)
    place = Path(storage.root)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    fits = free >= count * each
    return Finding(
        check, fits, f"{found}; {readable_bytes(free)} are free",
        "" if fits else "give an output with more, or keep fewer (checkpoint.keep_last, checkpoint.keep_every)",
    )  # fmt: skip
