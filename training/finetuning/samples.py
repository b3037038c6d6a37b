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

from training.data.errors import DataError
from training.data.keys import Purpose, generator
from training.data.loader import start_worker
from training.data.order import SampleOrder
from training.data.sampler import BatchPlan, MicroSteps
from training.finetuning.pictures import Pictures
from training.finetuning.tasks import Setup

ATTEMPTS = 16


class TaskBatch(NamedTuple):
    """A micro-batch.

    Attributes:
        images: uint8 [m, 3, H, W]; of T tasks [m, T, 3, H, W].
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

    def __init__(self, pictures: Pictures, setup: Setup, seed: int, plan: BatchPlan, rank: int) -> None:
        self._pictures, self._setup, self._seed, self._plan, self._rank = pictures, setup, seed, plan, rank
        self._order = order_of(len(pictures), seed)

    def __getitem__(self, place: tuple[int, int]) -> TaskBatch:
        places = self._plan.positions(*place, self._rank).tolist()
        images, targets, ids, replaced = [], [], [], 0
        for position in places:
            image, target, id_, tried = self._sample(position)
            images.append(torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, -3))))
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
            index = self._order.substitute(position, attempt) if attempt else int(self._order.row([position])[0][0])
            picture = self._pictures[index]
            rng = generator(self._seed, Purpose.AUGMENTATION, position, attempt)
            made = self._setup.sample(picture, rng)
            if made is not None:
                return *made, picture.id, attempt
        raise DataError(
            f"none of {ATTEMPTS} pictures for place {position} is of use to {self._setup.name}: give pictures that "
            "show people, with the task's labels"
        )


def order_of(count: int, seed: int) -> SampleOrder:
    """The order of `count` pictures: each once per epoch, all shuffled together."""
    return SampleOrder([np.array([count], np.int64)], seed, 1)


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
