"""What `populace doctor CONFIG` says of the pretrain section: packages, GPUs, shared memory and disk."""

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
    return [_engine(settings), _corpus(config), _shared_memory(settings), _disk(config, settings)]


def _engine(settings: PretrainConfig) -> Finding:
    engine = settings.engine
    if engine.kind == "zero3" and importlib.util.find_spec("deepspeed") is None:
        return Finding("pretrain engine", False, "zero3, without deepspeed", "pip install 'populace[train]'")
    if not engine.use_gpu:
        return Finding("pretrain engine", True, f"{engine.kind}, {engine.workers} on CPUs")
    here = torch.cuda.device_count()
    # A cluster may have them elsewhere: no GPU at all on this machine is said, and is no failure.
    fits = here == 0 or here >= engine.workers
    return Finding(
        "pretrain engine",
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


def _shared_memory(settings: PretrainConfig) -> Finding:
    need = batch_bytes(settings)
    if not need or not SHARED_MEMORY.exists():
        return Finding("pretrain batches", True, "loaded without shared memory")
    have = shutil.disk_usage(SHARED_MEMORY).free
    found = (
        f"{readable_bytes(need)} of views wait in /dev/shm, if all workers are here; {readable_bytes(have)} are free"
    )
    fix = "raise it (--shm-size, or a larger tmpfs), or lower data.workers, data.prefetch or batch.micro"
    # Workers on several machines share the need: a machine without GPUs of its own is not judged.
    return Finding("pretrain batches", have >= need or settings.engine.use_gpu, found, "" if have >= need else fix)


def checkpoint_bytes(settings: PretrainConfig) -> int:
    """Bytes of one checkpoint: of each trained number itself and two moments, and the teacher."""
    model = PretrainModel(settings, device=torch.device("meta"))
    trained = sum(parameter.numel() for parameter in model.student.parameters())
    averaged = sum(parameter.numel() for parameter in model.teacher.parameters())
    return STATE_BYTES * (3 * trained + averaged)


def _disk(config: PopulaceConfig, settings: PretrainConfig) -> Finding:
    keep, each = settings.checkpoint, checkpoint_bytes(settings)
    # One more than is kept is there while the newest is written.
    count = keep.keep_last + keep.keep_best + 1
    if keep.keep_every is not None:
        count += settings.steps // keep.keep_every
    found = (
        f"a checkpoint has {readable_bytes(each)}, and {count} of them are kept at most: {readable_bytes(count * each)}"
    )
    storage = Storage(config.output)
    if not storage.local:
        return Finding("pretrain disk", True, found)
    place = Path(storage.root)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    fits = free >= count * each
    return Finding(
        "pretrain disk", fits, f"{found}; {readable_bytes(free)} are free",
        "" if fits else "give an output with more, or keep fewer (checkpoint.keep_last, checkpoint.keep_every)",
    )  # fmt: skip
