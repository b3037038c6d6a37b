"""Batches: samples stacked in order, moved and joined without loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.data.batch import Batch, Sample, Views, collate, concatenate


def sample(position: int, colour: bool = False, side: int = 8) -> Sample:
    value = position % 200
    views = Views(
        global_views=torch.full((2, 3, side, 6), value, dtype=torch.uint8),
        local_views=torch.full((4, 3, 4, 3), value + 1, dtype=torch.uint8),
        boxes=torch.full((6, 4), value),
        flipped=torch.arange(6) % 2 == position % 2,
        colour=torch.full((6, 11), value / 10) if colour else None,
    )
    return Sample(position, 10 * position, f"id{position}", views, np.arange(10).reshape(2, 5) + position, position % 3)


def assert_equal(one: Batch, other: Batch) -> None:
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        wanted = getattr(other, name)
        if isinstance(value, torch.Tensor):
            assert value.dtype == wanted.dtype
            assert torch.equal(value, wanted), name
        else:
            assert value == wanted, name


def test_samples_are_stacked_in_their_order_with_the_documented_types() -> None:
    batch = collate([sample(7), sample(3), sample(5)])

    assert len(batch) == 3
    assert batch.ids == ["id7", "id3", "id5"]
    assert batch.position.tolist() == [7, 3, 5]
    assert batch.index.tolist() == [70, 30, 50]
    assert batch.replaced.tolist() == [1, 0, 2]
    assert batch.global_views.shape == (3, 2, 3, 8, 6)
    assert batch.local_views.shape == (3, 4, 3, 4, 3)
    assert batch.global_views[:, 1, 2, 7, 5].tolist() == [7, 3, 5]
    assert batch.local_views[:, 3, 0, 0, 0].tolist() == [8, 4, 6]
    assert batch.boxes[:, 5, 3].tolist() == [7, 3, 5]
    assert batch.keep[:, 1, 4].tolist() == [16, 12, 14]
    assert batch.colour is None
    assert batch.global_views.dtype == batch.local_views.dtype == torch.uint8
    assert batch.position.dtype == batch.index.dtype == batch.keep.dtype == batch.replaced.dtype == torch.int64
    assert batch.flipped.dtype == torch.bool


def test_colour_parameters_come_along_where_the_device_applies_them() -> None:
    batch = collate([sample(7, colour=True), sample(3, colour=True)])

    assert batch.colour is not None
    assert batch.colour.shape == (2, 6, 11)
    torch.testing.assert_close(batch.colour[:, 0, 0], torch.tensor([0.7, 0.3]))


def test_moving_and_pinning_keep_every_value() -> None:
    batch = collate([sample(1, colour=True), sample(2, colour=True)])

    assert_equal(batch.to("cpu"), batch)
    assert_equal(batch.pin_memory(), batch)
    moved = batch.to("meta")
    assert moved.ids == batch.ids
    assert all(value.device.type == "meta" for value in vars(moved).values() if isinstance(value, torch.Tensor))


def test_nbytes_counts_every_tensor() -> None:
    tensors = [value for value in vars(collate([sample(1)])).values() if isinstance(value, torch.Tensor)]

    assert collate([sample(1)]).nbytes == sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("colour", [False, True])
def test_concatenated_batches_equal_the_batch_of_all_samples(colour: bool) -> None:
    samples = [sample(position, colour) for position in range(5)]

    assert_equal(concatenate([collate(samples[:2]), collate(samples[2:3]), collate(samples[3:])]), collate(samples))


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        collate([])
    with pytest.raises(ValueError, match="1 of 2 samples have colour"):
        collate([sample(1), sample(2, colour=True)])
    with pytest.raises(ValueError, match="global_views differs in shape"):
        collate([sample(1), sample(2, side=9)])
    with pytest.raises(ValueError, match="at least one batch"):
        concatenate([])
    with pytest.raises(ValueError, match="colour is missing in 1 of 2"):
        concatenate([collate([sample(1)]), collate([sample(1, colour=True)])])
    with pytest.raises(ValueError, match="global_views differs in shape"):
        concatenate([collate([sample(1)]), collate([sample(1, side=9)])])
