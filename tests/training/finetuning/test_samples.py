"""Samples are a function of seed and place; every epoch shows every picture once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.finetuning import finetune_config
from training.data.errors import DataError
from training.data.labelled import Picture
from training.data.sampler import BatchPlan
from training.finetuning.pictures import open_pictures
from training.finetuning.samples import ATTEMPTS, Samples, TaskBatch, open_samples, order_of


@given(st.integers(0, 2**31 - 1), st.integers(1, 150), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_an_epoch_is_a_permutation(seed: int, count: int, epoch: int) -> None:
    places = np.arange(epoch * count, (epoch + 1) * count)
    rows, epochs = order_of(count, seed).row(places)
    assert sorted(rows.tolist()) == list(range(count))
    assert set(epochs.tolist()) == {epoch}


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return [int(row) for row in order_of(100, seed).row(np.arange(100 * epoch, 100 * (epoch + 1)))[0]]

    assert order(0, 0) == order(0, 0)
    orders = [order(0, 0), order(0, 1), order(1, 0), list(range(100))]
    # Two random orders agree in one place on average.
    assert max(sum(a == b for a, b in zip(x, y, strict=True)) for x in orders for y in orders if x is not y) < 12


def samples(task: str, world: int = 1, rank: int = 0, micro: int = 2) -> tuple[Samples, BatchPlan]:
    config = finetune_config(task, task={"augmentation": None, "frames": {"flip_probability": 0.5}})
    plan = BatchPlan(4, micro, world)
    return Samples(open_pictures(config.data)[0], config.setup(), config.seed, plan, rank), plan


def same(one: TaskBatch, other: TaskBatch) -> bool:
    return (
        torch.equal(one.images, other.images)
        and one.targets.keys() == other.targets.keys()
        and all(torch.equal(value, other.targets[name]) for name, value in one.targets.items())
        and one[2:] == other[2:]
    )


def test_batches_do_not_depend_on_who_loads_them() -> None:
    made, plan = samples("normal")
    with open_samples(made, 0, plan, 1, 3) as here:
        own = list(here)
    with open_samples(made, 1, plan, 1, 3) as loaded:
        theirs = list(loaded)
    assert len(own) == len(theirs) == 4
    assert all(same(one, other) for one, other in zip(own, theirs, strict=True))


def test_ranks_share_the_pictures_of_a_step() -> None:
    whole, plan = samples("seg", micro=4)
    (everything,) = [whole[0, 0]]
    halves = [samples("seg", world=2, rank=rank)[0][0, 0] for rank in range(2)]
    assert torch.equal(torch.cat([half.images for half in halves]), everything.images)
    assert [place for half in halves for place in half.places] == everything.places == [0, 1, 2, 3]
    assert plan.accumulation == 1


def test_a_picture_has_other_augmentations_in_another_epoch() -> None:
    made, _ = samples("normal")
    by_id: dict[str, list[torch.Tensor]] = {}
    for step in range(6):  # two epochs of twelve pictures
        for micro in range(2):
            batch = made[step, micro]
            for image, id_ in zip(batch.images, batch.ids, strict=True):
                by_id.setdefault(id_, []).append(image)
    assert sum(len(images) for images in by_id.values()) == 24
    twice = [images for images in by_id.values() if len(images) > 1]
    assert twice
    assert not all(torch.equal(images[0], images[1]) for images in twice)


class Choosy:
    """A task that takes pictures with an even number only."""

    name = "choosy"

    def __init__(self, none: bool = False) -> None:
        self.none = none

    def sample(self, picture: Picture, rng: np.random.Generator) -> Any:
        if self.none or int(picture.id.rsplit("-", 1)[1]) % 2:
            return None
        return picture.image, {"drawn": torch.tensor(rng.random())}


def test_pictures_of_no_use_are_passed_over_and_counted() -> None:
    pictures = open_pictures(finetune_config().data)[0]
    batch = Samples(pictures, Choosy(), 3, BatchPlan(12, 12), 0)[0, 0]  # type: ignore[arg-type]
    assert all(int(id_.rsplit("-", 1)[1]) % 2 == 0 for id_ in batch.ids)
    assert batch.replaced >= 6
    with pytest.raises(DataError, match=f"none of {ATTEMPTS} pictures for place 0 is of use to choosy"):
        Samples(pictures, Choosy(none=True), 3, BatchPlan(1, 1), 0)[0, 0]  # type: ignore[arg-type]
