from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.metrics.average_precision import THRESHOLDS, match, precision_recall


def slow_match(similarity: np.ndarray, ignored: np.ndarray, crowd: np.ndarray, threshold: float) -> list[int | None]:
    taken: list[int | None] = []
    for row in similarity:
        best, rank = None, (-1, -1.0)
        for truth, value in enumerate(row):
            free = crowd[truth] or truth not in taken
            new = (int(not ignored[truth]), value)
            if free and value >= min(threshold, 1 - 1e-10) and new >= rank:
                best, rank = truth, new
        taken.append(best)
    return taken


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 6), st.integers(0, 6))
def test_matching_agrees_with_a_slow_loop(key: int, predictions: int, truths: int) -> None:
    random = np.random.Generator(np.random.Philox(key=key))
    similarity = np.round(random.uniform(0.3, 1, (2, predictions, truths)) * 10) / 10
    crowd = random.random(truths) < 0.2
    ignored = crowd | (random.random((2, truths)) < 0.3)
    matched, to_ignored = match(similarity, ignored, crowd)
    for s in range(2):
        for t, threshold in enumerate(THRESHOLDS):
            slow = slow_match(similarity[s], ignored[s], crowd, threshold)
            assert matched[:, s, t].tolist() == [truth is not None for truth in slow]
            assert to_ignored[:, s, t].tolist() == [truth is not None and bool(ignored[s, truth]) for truth in slow]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["right", "wrong", "ignored"]), max_size=12), st.integers(0, 4))
def test_average_precision_agrees_with_a_slow_loop(outcomes: list[str], missed: int) -> None:
    truths = outcomes.count("right") + missed
    right = np.array([[outcome == "right"] for outcome in outcomes], dtype=bool).reshape(-1, 1)
    counted = np.array([[outcome != "ignored"] for outcome in outcomes], dtype=bool).reshape(-1, 1)
    precision, recall = precision_recall(right, counted, truths)
    if not truths:
        assert np.isnan([*precision, *recall]).all()
        return
    points, hits, given = [], 0, 0
    for outcome in outcomes:
        hits, given = hits + (outcome == "right"), given + (outcome != "ignored")
        if given:
            points.append((hits / truths, hits / given))
    slow = sum(max((p for r, p in points if r >= level), default=0.0) for level in np.linspace(0, 1, 101)) / 101
    assert precision[0] == pytest.approx(slow, abs=1e-12)
    assert recall[0] == hits / truths
