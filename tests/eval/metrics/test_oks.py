from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.metrics import oks as module
from eval.metrics.oks import extents, instance_scores, oks, oks_nms

SIGMAS = np.array([0.03, 0.05, 0.1])


def people(key: int, count: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(key=key)).uniform(0, 100, (count, 3, 2))


def test_similarity_agrees_with_a_slow_loop_in_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.Generator(np.random.Philox(key=1))
    truth = np.concatenate([people(2, 4), random.integers(0, 3, (4, 3, 1))], axis=2)
    truth[:, 0, 2] = [2, 2, 0, 1]
    truth[2, :, 2] = 0
    predicted = np.concatenate([truth[..., :2] + random.normal(size=(4, 3, 2)), people(3, 3)])
    areas, low = random.uniform(100, 5000, 4), truth[..., :2].min(axis=1)
    boxes = np.concatenate([low, low + 30], axis=1)
    groups = [np.arange(3), np.array([0, 2])]
    slow = np.zeros((2, 7, 4))
    for g, group in enumerate(groups):
        for m in range(7):
            for n in range(4):
                known = [k for k in group if truth[n, k, 2] > 0]
                terms = []
                for k in known or group:
                    x, y = predicted[m, k]
                    dx, dy = x - truth[n, k, 0], y - truth[n, k, 1]
                    if not known:
                        x0, y0, x1, y1 = boxes[n]
                        dx = max(0, (2 * x0 - x1) - x, x - (2 * x1 - x0))
                        dy = max(0, (2 * y0 - y1) - y, y - (2 * y1 - y0))
                    terms.append(math.exp(-(dx**2 + dy**2) / (2 * areas[n] * (2 * SIGMAS[k]) ** 2)))
                slow[g, m, n] = sum(terms) / len(terms)
    np.testing.assert_allclose(oks(predicted, truth, areas, boxes, SIGMAS, groups), slow, atol=1e-12)
    monkeypatch.setattr(module, "_BLOCK", 24)
    np.testing.assert_allclose(oks(predicted, truth, areas, boxes, SIGMAS, groups), slow, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 1))
def test_suppression_agrees_with_a_slow_loop(key: int, threshold: float) -> None:
    random = np.random.Generator(np.random.Philox(key=key))
    points = people(key, 8)
    points[4:] = points[:4] + random.normal(size=(4, 3, 2)) * 5
    scores = random.random(8)
    areas = extents(points)
    kept: list[int] = []
    for i in sorted(range(8), key=lambda i: -scores[i]):
        alike = []
        for j in kept:
            area = (areas[i] + areas[j]) / 2
            d2 = [math.dist(points[i, k], points[j, k]) ** 2 for k in range(3)]
            alike.append(sum(math.exp(-d / (2 * area * (2 * s) ** 2)) for d, s in zip(d2, SIGMAS, strict=True)) / 3)
        if all(value <= threshold for value in alike):
            kept.append(i)
    assert oks_nms(points, scores, SIGMAS, threshold).tolist() == kept


def test_scores_of_people() -> None:
    scores = np.array([[0.2, 0.4, 0.6], [0.1, 0.1, 0.2]])
    assert instance_scores(scores).tolist() == pytest.approx([0.5, 0])
    assert instance_scores(scores, np.array([0.5, 1])).tolist() == pytest.approx([0.25, 0])


def test_extents_are_areas_of_boxes() -> None:
    assert extents(np.array([[[0, 0, 9], [3, 1, 9], [1, 4, 9]]])).tolist() == [12]
