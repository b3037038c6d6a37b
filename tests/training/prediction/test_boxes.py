"""Boxes of people: suppression, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.prediction.boxes import Boxes, as_boxes, non_maximum_suppression, on_picture


def slow_suppression(boxes: np.ndarray, scores: np.ndarray, limit: float) -> list[int]:
    """By the definition, in loops."""
    kept: list[int] = []
    for index in sorted(range(len(boxes)), key=lambda row: -scores[row]):
        clash = False
        for other in kept:
            a, b = boxes[index].astype(float), boxes[other].astype(float)
            width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
            height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
            union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
            clash |= width * height > limit * union
        if not clash:
            kept.append(index)
    return kept


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.sampled_from([0.0, 0.3, 0.7]))
def test_suppression_is_its_definition(key: int, count: int, limit: float) -> None:
    rng = np.random.Generator(np.random.Philox(key=key))
    corner = rng.uniform(0, 50, (count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(1, 60, (count, 2))], 1).astype(np.float32)
    scores = np.round(rng.uniform(0, 1, count), 1).astype(np.float32)
    kept = non_maximum_suppression(Boxes(boxes, scores), limit)
    expected = slow_suppression(boxes, scores, limit)
    np.testing.assert_array_equal(kept.boxes, boxes[expected])
    np.testing.assert_array_equal(kept.scores, scores[expected])


def test_shapes_and_places() -> None:
    with pytest.raises(ValueError, match=r"give \[n, 4\]"):
        Boxes(np.zeros((2, 3), np.float32), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="finite"):
        as_boxes([[0, 0, np.nan, 1]])
    assert len(as_boxes([])) == 0
    image = np.zeros((10, 20, 3), np.uint8)
    found = on_picture(as_boxes([[-5, -5, 3, 3], [20, 0, 30, 10], [0, 0, 20, 10], [5, 5, 5.5, 9]]), image)
    assert found.boxes.tolist() == [[-5, -5, 3, 3], [0, 0, 20, 10]]
