"""The batches of one rank, loaded by worker processes: the same ones for every number of workers and ranks.

A worker makes whole micro-batches; it is told (step, micro-step), from which the places follow. So nothing depends on
which worker made a batch, and resuming is starting at a step.

Workers are started by `forkserver`: a Ray worker has threads, which a fork would copy in the middle of what they hold,
and `spawn` would import torch again in each worker, seconds of a core and 200 MB each. The server process imports it
once, and has no threads and no device. Batches come through shared memory: containers need a large /dev/shm.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from training.data.batch import Batch
from training.data.config import DataConfig
from training.data.corpus import Corpus
from training.data.errors import Skipped
from training.data.order import SampleOrder
from training.data.sampler import BatchPlan, MicroSteps
from training.data.samples import SampleMaker
from training.data.views import ViewsConfig
from training.objectives.masks import MaskConfig

log = logging.getLogger(__name__)

Loaded = tuple[Batch, list[Skipped]]


class MicroBatches(Dataset[Loaded]):
    """(step, micro-step) -> the micro-batch of a rank. Picklable."""

    def __init__(self, maker: SampleMaker, plan: BatchPlan, rank: int) -> None:
        self.maker, self._plan, self._rank = maker, plan, rank

    def __getitem__(self, place: tuple[int, int]) -> Loaded:
        return self.maker.make(self._plan.positions(*place, self._rank).tolist())


class PretrainLoader:
    """Iterates over the micro-batches of a rank, from the first one of a step on. Each iteration starts there again.

    Args:
        corpus, order: from `open_corpus` and its `order`.
        data, views, mask: how samples are read, cut and masked.
        grid: (height, width) of a global view in tokens.
        plan: how steps are cut into micro-batches.
        rank: this process among the plan's ranks.
        start_step: first step.
        stop_step: the step to end before; None: no end.
        pin_memory: page-locked batches, for copies to a GPU that overlap with its work.

    Attributes:
        reasons: how many samples were passed over, by reason.
        skipped: the last thousand of them.

    Raises:
        ValueError: a rank that the plan does not have, or a negative step.
    """

    def __init__(
        self,
        corpus: Corpus,
        order: SampleOrder,
        *,
        data: DataConfig,
        views: ViewsConfig,
        mask: MaskConfig,
        grid: tuple[int, int],
        plan: BatchPlan,
        rank: int = 0,
        start_step: int = 0,
        stop_step: int | None = None,
        pin_memory: bool = False,
    ) -> None:
        plan.positions(start_step, 0, rank)
        self.reasons: Counter[str] = Counter()
        self.skipped: deque[Skipped] = deque(maxlen=1000)
        self._dataset = MicroBatches(SampleMaker(corpus, order, data, views, mask, grid), plan, rank)
        workers = data.workers
        if workers:
            # Ignored when the server is running already.
            multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
        self._loader: DataLoader[Loaded] = DataLoader(
            self._dataset,
            batch_size=None,
            sampler=MicroSteps(plan.accumulation, start_step, stop_step),
            num_workers=workers,
            collate_fn=_as_it_is,
            prefetch_factor=data.prefetch if workers else None,
            multiprocessing_context="forkserver" if workers else None,
            worker_init_fn=start_worker if workers else None,
            pin_memory=pin_memory,
            # Its own generator: making an iterator draws a number, which would shift the ones of the training process.
            generator=torch.Generator(),
        )
        self._running: Iterator[Loaded] | None = None

    def __iter__(self) -> Iterator[Batch]:
        self._stop()
        running = self._running = iter(self._loader)
        try:
            for batch, skipped in running:
                for one in skipped:
                    self.reasons[one.reason] += 1
                    self.skipped.append(one)
                    log.warning(
                        "passed over sample %s of %s at place %d: %s (%s)",
                        *(one.id, one.shard, one.position, one.reason, one.detail),
                    )
                yield batch
        finally:
            if self._running is running:
                self._stop()

    def close(self) -> None:
        """End the workers and close all files. Safe to call twice."""
        self._stop()
        self._dataset.maker.close()

    def __enter__(self) -> PretrainLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stop(self) -> None:
        running, self._running = self._running, None
        # torch ends its workers when the iterator is collected, which a traceback may hold up.
        end = getattr(running, "_shutdown_workers", None)
        if end is not None:
            end()


def _as_it_is(loaded: Any) -> Any:
    return loaded


def _end_with_the_trainer() -> None:
    """End this worker when the process that trains is gone, also by kill -9.

    torch's own watchdog looks at the parent, which is the server that forked this worker, and which lives on.
    """
    trainer = multiprocessing.parent_process()
    if trainer is None:
        return

    def watch() -> None:
        wait([trainer.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="trainer-watch", daemon=True).start()


def start_worker(number: int) -> None:
    """Hold the native libraries of a worker to one thread, or workers fight each other (torch's own are held)."""
    import cv2
    import pyarrow as pa
    from PIL import AvifImagePlugin

    cv2.setNumThreads(0)
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    _end_with_the_trainer()
    gc.freeze()  # what is imported is not walked through by every collection, which would also copy its pages
