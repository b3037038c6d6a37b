"""Users rely on: the letterbox and the suppression are exact; odd models are refused with words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.scorers.yolo_onnx import letterbox, suppress


def iou(a, b):
    size = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None)
    common = size[0] * size[1]
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 2**32 - 1), st.floats(0.1, 0.9), st.integers(1, 50))
def test_suppression_is_the_greedy_one(count, seed, limit, most):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 60, (count, 2))
    boxes = np.hstack([corner, corner + rng.uniform(5, 60, (count, 2))]).astype(np.float32)
    scores = rng.uniform(0, 1, count).astype(np.float32)
    kept = []
    for index in np.argsort(-scores, kind="stable"):
        if all(iou(boxes[index], boxes[other]) <= limit for other in kept):
            kept.append(int(index))
    assert suppress(boxes, scores, limit, most).tolist() == kept[:most]


@pytest.mark.parametrize("shape", [(480, 640), (640, 480), (33, 1000), (1000, 33), (1, 1), (640, 640), (2000, 1500)])
def test_letterbox_keeps_the_aspect_ratio_and_fills_around(shape):
    canvas = np.full((640, 640, 3), 114, np.uint8)
    placed = letterbox(np.zeros((*shape, 3), np.uint8), canvas)
    ys, xs = np.nonzero(canvas[:, :, 0] == 0)
    assert (xs.min(), ys.min()) == (placed.left, placed.top)
    width, height = xs.max() + 1 - xs.min(), ys.max() + 1 - ys.min()
    assert max(width, height) == 640
    assert width == max(1, round(shape[1] * 640 / max(shape)))
    assert height == max(1, round(shape[0] * 640 / max(shape)))
    assert abs((640 - width) - 2 * placed.left) <= 1
    assert len(xs) == width * height
    assert placed.scale_x == width / shape[1]
    assert placed.scale_y == height / shape[0]
