"""Scores against loops over pixels; counts that add up."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.probe.labelled import IGNORE
from eval.probe.segmentation import Confusion, ShareErrors


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(1, 40))
def test_scores_are_those_of_loops_and_add_up(seed: int, classes: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.choice([*range(classes - 1), IGNORE], count).astype(np.uint8)  # the last class is never present
    labels[0] = 0
    predicted = rng.integers(0, classes, count)
    known = labels != IGNORE
    ious, recalls = [], []
    for c in range(classes):
        truth, answer = known & (labels == c), known & (predicted == c)
        if truth.any():
            ious.append((truth & answer).sum() / (truth | answer).sum())
            recalls.append((truth & answer).sum() / truth.sum())
    whole, half, rest = (Confusion(classes) for _ in range(3))
    whole.add(torch.from_numpy(labels), torch.from_numpy(predicted))
    half.add(torch.from_numpy(labels[: count // 2]), torch.from_numpy(predicted[: count // 2]))
    rest.add(torch.from_numpy(labels[count // 2 :]), torch.from_numpy(predicted[count // 2 :]))
    half.merge(rest)
    assert torch.equal(half.counts, whole.counts)
    expected = {"miou": np.mean(ious), "macc": np.mean(recalls), "accuracy": np.mean((labels == predicted)[known])}
    assert whole.metrics() == pytest.approx(expected)
    assert torch.isnan(whole.iou()[-1])


def test_nothing_to_score() -> None:
    confusion = Confusion(2)
    confusion.add(torch.full((3,), IGNORE, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="no pixel has a label"):
        confusion.metrics()
    with pytest.raises(ValueError, match="equal shapes"):
        confusion.add(torch.zeros(3, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))


@given(st.integers(0, 2**32), st.integers(3, 30))
@settings(max_examples=30, deadline=None)
def test_explained_variance_is_that_of_loops_and_adds_up(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    shares, predicted, weights = rng.random((count, 3)), rng.random((count, 3)), rng.choice([0.0, 0.5, 1.0], count)
    shares[:, 2], weights[:2] = 0.0, 1.0  # a class that is nowhere does not count
    scores = []
    for c in range(2):
        mean = np.average(shares[:, c], weights=weights)
        variance = np.average((shares[:, c] - mean) ** 2, weights=weights)
        scores.append(1 - np.average((shares[:, c] - predicted[:, c]) ** 2, weights=weights) / variance)
    tensors = [torch.from_numpy(array) for array in (shares, predicted, weights)]
    whole, half, rest = (ShareErrors(3) for _ in range(3))
    whole.add(*tensors)
    half.add(*(tensor[:2] for tensor in tensors))
    rest.add(*(tensor[2:] for tensor in tensors))
    half.merge(rest)
    assert whole.r2() == pytest.approx(np.mean(scores))
    assert half.r2() == pytest.approx(whole.r2())
    assert np.isnan(ShareErrors(3).r2())
