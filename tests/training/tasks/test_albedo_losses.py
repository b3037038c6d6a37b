"""Albedo's own terms against loops, and what each is blind to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from training.tasks.albedo_losses import chromaticity, low_frequency, rgb_mean

SHAPE = (3, 3, 8, 6)


def maps(key: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.Generator(np.random.Philox(key=key))
    prediction = torch.from_numpy(rng.normal(0.5, 0.5, SHAPE))  # leaves 0..1
    mask = torch.from_numpy(rng.random((SHAPE[0], 1, *SHAPE[2:])) < 0.7)
    mask[-1] = False
    return prediction, torch.where(mask, torch.from_numpy(rng.random(SHAPE)), 0.0), mask


def slow_chromaticity(p: Tensor, t: Tensor, mask: Tensor) -> float:
    total, count = 0.0, 0
    for b, _, y, x in np.ndindex(*mask.shape):
        if mask[b, 0, y, x]:
            count += 1
            first, second = p[b, :, y, x].numpy().clip(0, 1), t[b, :, y, x].numpy()
            total += float(np.abs(first / (first.sum() + 1e-6) - second / (second.sum() + 1e-6)).sum())
    return total / max(1, count)


def slow_rgb_mean(p: Tensor, t: Tensor, mask: Tensor) -> float:
    errors = []
    for b in range(len(p)):
        valid = mask[b, 0].numpy()
        if valid.any():
            means = [m[b].numpy()[:, valid].mean(axis=1) for m in (p, t)]
            errors.append(float(np.abs(means[0] - means[1]).sum()))
    return sum(errors) / len(errors)


def test_chromaticity_and_mean_equal_their_loops() -> None:
    p, t, mask = maps(1)
    assert float(chromaticity(p, t, mask)) == pytest.approx(slow_chromaticity(p, t, mask), rel=1e-12)
    assert float(rgb_mean(p, t, mask)) == pytest.approx(slow_rgb_mean(p, t, mask), rel=1e-12)


def test_low_frequency_equals_a_blur_by_hand() -> None:
    p, t, mask = maps(2)
    p, t, mask = p[:1], t[:1], mask[:1]
    error = 0.0
    # One row and one column of factor 4 x 3: two areas down, one across, so only rows are interpolated.
    weight = mask[0, 0].double().numpy()
    areas = {}
    for name, m in (("p", p), ("t", t)):
        values = torch.where(mask, m, 0.0)[0].numpy()
        areas[name] = [values[:, :4].mean(axis=(1, 2)), values[:, 4:].mean(axis=(1, 2))]
    weights = [weight[:4].mean(), weight[4:].mean()]
    for y, x in np.ndindex(*SHAPE[2:]):
        if not weight[y, x]:
            continue
        share = min(max((y + 0.5) / 4 - 0.5, 0.0), 1.0)
        below = (1 - share) * weights[0] + share * weights[1] + 1e-6
        blurred = {n: ((1 - share) * a[0] + share * a[1]) / below for n, a in areas.items()}
        error += float(np.abs(blurred["p"] - blurred["t"]).sum())
    assert float(low_frequency(p, t, mask, factor=4)) == pytest.approx(error / weight.sum(), rel=1e-10)


def test_chromaticity_is_blind_to_brightness_only() -> None:
    _, t, mask = maps(3)
    assert float(chromaticity(0.5 * t, t, mask)) < 1e-4
    assert float(chromaticity(t.flip(1), t, mask)) > 0.1


def test_perfect_predictions_give_zero_and_empty_masks_zero_gradients() -> None:
    p, t, mask = maps(4)
    for term in (chromaticity, low_frequency, rgb_mean):
        assert float(term(t, t, mask)) == pytest.approx(0, abs=1e-12)
        free = p.clone().requires_grad_()
        loss = term(free, t, torch.zeros_like(mask))
        loss.backward()
        assert float(loss.detach()) == 0.0
        assert free.grad is not None
        assert bool((free.grad == 0).all())
