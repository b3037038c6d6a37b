"""Shared loss terms against loops over pixels in float64, and what they do with masks, nan, sizes and dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.tasks import dense_losses as terms

SHAPE = (3, 3, 5, 4)
TERMS = [terms.l1, terms.l2, terms.gradient, terms.cosine]


def maps(key: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Prediction, target and a mask whose last image is empty; junk in the target outside of the mask."""
    rng = np.random.Generator(np.random.Philox(key=key))
    prediction, target = (torch.from_numpy(rng.normal(size=SHAPE)).to(dtype) for _ in range(2))
    mask = torch.from_numpy(rng.random((SHAPE[0], 1, *SHAPE[2:])) < 0.6)
    mask[-1] = False
    return prediction, torch.where(mask, target, torch.tensor(-1000.0, dtype=dtype)), mask


def pixels(mask: Tensor) -> list[tuple[int, int, int]]:
    batch, _, height, width = mask.shape
    return [(b, y, x) for b in range(batch) for y in range(height) for x in range(width) if mask[b, 0, y, x]]


def slow_l1(p: Tensor, t: Tensor, mask: Tensor) -> float:
    valid = pixels(mask)
    return sum(float(abs(p[b, c, y, x] - t[b, c, y, x])) for b, y, x in valid for c in range(3)) / max(1, len(valid))


def slow_l2(p: Tensor, t: Tensor, mask: Tensor) -> float:
    valid = pixels(mask)
    return sum(float(p[b, c, y, x] - t[b, c, y, x]) ** 2 for b, y, x in valid for c in range(3)) / max(1, len(valid))


def slow_gradient(p: Tensor, t: Tensor, mask: Tensor) -> float:
    total = 0.0
    valid = set(pixels(mask))
    for down, right in ((0, 1), (1, 0)):
        pairs = [(b, y, x) for b, y, x in valid if (b, y + down, x + right) in valid]
        errors = 0.0
        for b, y, x in pairs:
            for c in range(3):
                slope = float(p[b, c, y + down, x + right] - p[b, c, y, x])
                errors += (slope - float(t[b, c, y + down, x + right] - t[b, c, y, x])) ** 2
        total += errors / max(1, len(pairs))
    return total


def slow_cosine(p: Tensor, t: Tensor, mask: Tensor) -> float:
    valid, total = pixels(mask), 0.0
    for b, y, x in valid:
        first, second = p[b, :, y, x].tolist(), t[b, :, y, x].tolist()
        lengths = max(math.hypot(*first), 1e-6) * max(math.hypot(*second), 1e-6)
        total += 1 - sum(i * j for i, j in zip(first, second, strict=True)) / lengths
    return total / max(1, len(valid))


SLOW = {terms.l1: slow_l1, terms.l2: slow_l2, terms.gradient: slow_gradient, terms.cosine: slow_cosine}


@pytest.mark.parametrize("term", TERMS)
def test_equals_the_loop(term: Callable[..., Tensor]) -> None:
    prediction, target, mask = maps(1)
    assert float(term(prediction, target, mask)) == pytest.approx(SLOW[term](prediction, target, mask), abs=1e-12)


@pytest.mark.parametrize("term", TERMS)
def test_is_zero_for_a_perfect_prediction_and_not_for_another(term: Callable[..., Tensor]) -> None:
    prediction, target, mask = maps(2)
    assert float(term(target, target, mask)) == pytest.approx(0.0, abs=1e-12)
    assert float(term(prediction, target, mask)) > 0.1


@pytest.mark.parametrize("term", TERMS)
def test_junk_outside_the_mask_reaches_neither_value_nor_gradient(term: Callable[..., Tensor]) -> None:
    prediction, target, mask = maps(3)
    expected = term(prediction, target, mask)
    for junk in (math.nan, math.inf):
        dirty = torch.where(mask, prediction, junk).requires_grad_()
        loss = term(dirty, torch.where(mask, target, junk), mask)
        loss.backward()
        assert float(loss.detach()) == float(expected)
        assert dirty.grad is not None
        assert bool(dirty.grad.isfinite().all())
        assert bool((dirty.grad[~mask.expand_as(dirty)] == 0).all())


@pytest.mark.parametrize("term", TERMS)
def test_an_empty_mask_gives_zero_with_zero_gradients(term: Callable[..., Tensor]) -> None:
    prediction, target, mask = maps(4)
    prediction.requires_grad_()
    loss = term(prediction, target, torch.zeros_like(mask))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert prediction.grad is not None
    assert bool((prediction.grad == 0).all())


def test_cosine_has_finite_gradients_for_zero_vectors() -> None:
    _, target, mask = maps(5)
    prediction = torch.zeros(SHAPE, dtype=torch.float64, requires_grad=True)
    terms.cosine(prediction, target, mask).backward()
    assert prediction.grad is not None
    assert bool(prediction.grad.isfinite().all())


def test_resizes_only_where_sizes_differ() -> None:
    prediction, _, _ = maps(6)
    target = torch.zeros(3, 1, 10, 12)
    assert terms.resized_to(prediction, torch.zeros(3, 3, 5, 4)) is prediction
    resized = terms.resized_to(prediction, target)
    # A pixel of the larger map, by hand: column 3 of 12 over 4 columns lies at (3 + 0.5) / 3 - 0.5 = 2 / 3.
    row = 0.75 * prediction[:, :, 1] + 0.25 * prediction[:, :, 0]  # row 2 of 10 over 5: 0.75
    torch.testing.assert_close(resized[:, :, 2, 3], row[:, :, 0] / 3 + row[:, :, 1] * 2 / 3)
    with pytest.raises(ValueError, match="batch size"):
        terms.resized_to(prediction[:2], target)


def test_total_sums_losses_only_and_wants_one() -> None:
    losses = {"loss_a": torch.tensor([1.0, 3.0]), "loss_b": torch.tensor(0.5), "acc_seg": torch.tensor(90.0)}
    assert float(terms.total_loss(losses)) == 2.5
    with pytest.raises(ValueError, match="weight above 0"):
        terms.total_loss({"acc_seg": torch.tensor(1.0)})


@pytest.mark.parametrize("guard", [False, True])
def test_terms_with_a_weight_are_weighed_resized_and_guarded_on_request(guard: bool) -> None:
    target, mask = torch.ones(1, 3, 4, 4), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    used = (("l1", 2.0, terms.l1), ("l2", 0.0, terms.l2))
    found = terms.weighted_terms(used, torch.zeros(1, 3, 2, 2), target, mask, guard)
    assert {name: float(value) for name, value in found.items()} == {"loss_l1": 6.0}  # 3 channels a pixel, twice
    bad = terms.weighted_terms(used, torch.full((1, 3, 2, 2), torch.nan), target, mask, guard)["loss_l1"]
    assert float(bad) == 0 if guard else bool(bad.isnan())


def test_guard_turns_what_is_not_finite_to_zero() -> None:
    values = torch.tensor([math.nan, math.inf, -math.inf, 2.0])
    assert terms.guarded(values).tolist() == [0.0, 0.0, 0.0, 2.0]


def test_unit_agrees_with_division_by_length() -> None:
    prediction, _, _ = maps(7)
    length = prediction.square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(terms.unit(prediction), prediction / length)
    assert float(F.mse_loss(terms.unit(torch.zeros(1, 3, 2, 2)), torch.zeros(1, 3, 2, 2))) == 0.0


def test_half_precision_is_raised_and_double_kept() -> None:
    assert terms.full_precision(torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.float32
    assert terms.full_precision(torch.zeros(1, dtype=torch.float64)).dtype == torch.float64
