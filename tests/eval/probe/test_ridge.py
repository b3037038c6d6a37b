"""The closed form against an iterative solution of the same problem, and its sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eval.probe.ridge import RidgeSums

RNG = np.random.default_rng(0)
FEATURES = torch.from_numpy(RNG.normal(3, [1, 10, 0.1, 1], (60, 4))).float()
TARGETS = torch.from_numpy(RNG.random((60, 2))).float() + FEATURES[:, 1:2] / 10
WEIGHTS = torch.from_numpy(RNG.choice([0.0, 0.5, 1.0], 60)).float()


def _sums(part: slice) -> RidgeSums:
    sums = RidgeSums(4, 2)
    sums.add(FEATURES[part], TARGETS[part], WEIGHTS[part])
    return sums


def test_solution_minimises_the_penalised_squares() -> None:
    l2 = 0.1
    readout = _sums(slice(None)).solve(l2)
    x, y, w = (
        FEATURES.double().numpy(),
        TARGETS.double().numpy(),
        WEIGHTS.double().numpy()[:, None] / WEIGHTS.sum().item(),
    )
    mean = (w * x).sum(0)
    std = np.sqrt((w * (x - mean) ** 2).sum(0))
    z = (x - mean) / std
    weight, bias = np.zeros((4, 2)), np.zeros(2)
    for _ in range(5000):  # gradient descent
        error = w * (z @ weight + bias - y)
        weight -= 0.3 * (z.T @ error + l2 * weight)
        bias -= 0.3 * error.sum(0)
    np.testing.assert_allclose(readout.weight.numpy() * std, weight.T, atol=1e-5)
    maps = FEATURES.T.reshape(1, 4, 6, 10)
    np.testing.assert_allclose(readout(maps)[0].flatten(1).T, z @ weight + bias, atol=1e-4)


def test_sums_merge() -> None:
    first, second = _sums(slice(0, 17)), _sums(slice(17, None))
    first.merge(second)
    torch.testing.assert_close(first.solve(0.1).weight, _sums(slice(None)).solve(0.1).weight)


def test_constant_and_repeated_features_do_no_harm() -> None:
    wide = torch.cat([FEATURES, FEATURES[:, :1], torch.full((60, 1), 7.3)], dim=1)
    sums = RidgeSums(6, 2)
    sums.add(wide, TARGETS, WEIGHTS)
    readout = sums.solve(1e-6)
    assert torch.equal(readout.weight[:, 5], torch.zeros(2))
    torch.testing.assert_close(readout.weight[:, 0], readout.weight[:, 4])
    torch.testing.assert_close(readout.weight[:, 0] * 2, _sums(slice(None)).solve(1e-6).weight[:, 0], atol=1e-4, rtol=0)


def test_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match="no patch has a label"):
        RidgeSums(4, 2).solve(1.0)
