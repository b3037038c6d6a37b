"""The canonical camera: the release at 768 pixels, and the same shape at every resolution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.tasks import frames
from training.tasks.canonical import (
    RELEASED_FOCAL,
    canonical_focal,
    canonical_pointmap,
    canonical_scale,
    focal_from_scale,
)


def camera(fx: float, fy: float, cx: float, cy: float) -> np.ndarray:
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])


def test_is_the_release_at_768_pixels() -> None:
    assert canonical_focal(768) == RELEASED_FOCAL
    assert canonical_scale(camera(1536, 1500, 384, 512), 768) == 0.5


@settings(max_examples=30, deadline=None)
@given(fx=st.floats(50, 5000), width=st.integers(1, 4000), factor=st.integers(1, 5))
def test_scale_does_not_change_with_resolution_and_can_be_inverted(fx: float, width: int, factor: int) -> None:
    scale = canonical_scale(camera(fx, fx, 1, 1), width)
    resized = frames.stretch((10, width), (10 * factor, width * factor)).intrinsics(camera(fx, fx, 1, 1))
    assert canonical_scale(resized, width * factor) == pytest.approx(scale, rel=1e-12)
    assert focal_from_scale(scale, width) == pytest.approx(fx, rel=1e-12)


def test_points_equal_the_formula_and_are_metric_after_division() -> None:
    rng = np.random.Generator(np.random.Philox(key=1))
    depth = rng.uniform(1, 4, (5, 6)).astype(np.float32)
    mask = rng.random((5, 6)) < 0.7
    depth[0, 0], mask[0, 0] = np.nan, False
    k = camera(20, 18, 2.3, 2.9)
    points = canonical_pointmap(depth, mask, k)
    for v, u in np.ndindex(5, 6):
        z = float(depth[v, u])
        metric = np.array([(u - 2.3) * z / 20, (v - 2.9) * z / 18, z]) if mask[v, u] else np.zeros(3)
        np.testing.assert_allclose(points[v, u], metric * 6 / 20, rtol=1e-6)
        np.testing.assert_allclose(points[v, u] / canonical_scale(k, 6), metric, rtol=1e-6)


@pytest.mark.parametrize("fx", [0.0, -5.0, float("nan")])
def test_says_what_a_focal_length_is(fx: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        canonical_scale(camera(fx, 1, 0, 0), 10)
    with pytest.raises(ValueError, match="positive"):
        focal_from_scale(fx, 10)
    with pytest.raises(ValueError, match="at least 1"):
        canonical_focal(0)
