"""Places in the order -> batches of augmented images and their targets.

Like pretraining's: every sample is a function of (seed, place), so batches do not depend on who loads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from curation.mixing import mix64
from training.data.errors import DataError
from training.data.loader import start_worker
from training.data.sampler import BatchPlan, MicroSteps
from training.finetuning.pictures import Pictures
from training.finetuning.tasks import TaskSetup

ATTEMPTS = 16


class TaskBatch(NamedTuple):
    """A micro-batch.

    Attributes:
        images: uint8 [m, 3, H, W].
        targets: as the task makes them, batched.
        places: of the samples in the endless order.
        ids: of their pictures.
        replaced: how many pictures were no use, and were passed over.
    """

    images: Tensor
    targets: dict[str, Tensor]
    places: list[int]
    ids: list[str]
    replaced: int


class Samples(Dataset[TaskBatch]):
    """(step, micro-step) -> the micro-batch of a rank. Picklable."""

    def __init__(self, pictures: Pictures, setup: TaskSetup, seed: int, plan: BatchPlan, rank: int) -> None:
        self._pictures, self._setup, self._seed, self._plan, self._rank = pictures, setup, seed, plan, rank

    def __getitem__(self, place: tuple[int, int]) -> TaskBatch:
        places = self._plan.positions(*place, self._rank).tolist()
        images, targets, ids, replaced = [], [], [], 0
        for position in places:
            image, target, id_, tried = self._sample(position)
            images.append(torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))))
            targets.append(target)
            ids.append(id_)
            replaced += tried
        return TaskBatch(
            torch.stack(images),
            {name: torch.stack([target[name] for target in targets]) for name in targets[0]},
            places,
            ids,
            replaced,
        )

    def _sample(self, position: int) -> tuple[np.ndarray, Mapping[str, Tensor], str, int]:
        for attempt in range(ATTEMPTS):
            index = order_index(self._seed, position, len(self._pictures), attempt)
            picture = self._pictures[index]
            key = int(mix64(mix64(np.uint64(self._seed)) ^ np.uint64(position * ATTEMPTS + attempt)))
            made = self._setup.sample(picture, np.random.Generator(np.random.Philox(key=key)))
            if made is not None:
                return *made, picture.id, attempt
        raise DataError(
            f"none of {ATTEMPTS} pictures for place {position} is of use to {self._setup.name}: give pictures that "
            "show people, with the task's labels"
        )


def order_index(seed: int, position: int, count: int, attempt: int = 0) -> int:
    """Which of `count` pictures has this place: each once per epoch, in an order of its own; further attempts anywhere.

    The permutation is a Feistel network over the next power of 4, walked until it falls inside: no memory per epoch.
    """
    epoch, index = divmod(position, count)
    if attempt:
        return int(mix64(mix64(np.uint64(seed)) ^ np.uint64(position)) + np.uint64(attempt)) % count
    bits = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    mask = (1 << bits) - 1
    while True:
        left, right = index >> bits, index & mask
        for turn in range(4):
            key = mix64(np.uint64(seed)) ^ mix64(np.uint64(epoch * 4 + turn + 1))
            left, right = right, left ^ (int(mix64(key ^ np.uint64(right))) & mask)
        index = left << bits | right
        if index < count:
            return index


@contextmanager
def open_samples(
    samples: Samples, workers: int, plan: BatchPlan, start: int, stop: int
) -> Iterator[Iterator[TaskBatch]]:
    """The micro-batches of steps [start, stop), from worker processes."""
    loader: DataLoader[TaskBatch] = DataLoader(
        samples,
        batch_size=None,
        sampler=MicroSteps(plan.accumulation, start, stop),
        num_workers=workers,
        collate_fn=_as_it_is,
        multiprocessing_context="forkserver" if workers else None,
        worker_init_fn=start_worker if workers else None,
        generator=torch.Generator(),
    )
    running = iter(loader)
    try:
        yield running
    finally:
        end = getattr(running, "_shutdown_workers", None)
        if end is not None:
            end()


def _as_it_is(batch: Any) -> Any:
    return batch
