from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from eval.metrics import NormalMetric


def pictures(key: int, count: int = 4) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    random = np.random.Generator(np.random.Philox(key=key))
    made = []
    for _ in range(count):
        shape = tuple(random.integers(2, 9, 2))
        truth = random.normal(size=(*shape, 3))
        truth /= np.linalg.norm(truth, axis=2, keepdims=True)
        prediction = truth + random.exponential(0.5) * random.normal(size=truth.shape)
        made.append((prediction.astype(np.float32), truth.astype(np.float32), random.random(shape) < 0.8))
    made[0][2][0, 0] = True
    return made


def measured(made: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> NormalMetric:
    metric = NormalMetric()
    for picture in made:
        metric.update(*picture)
    return metric


def slow_angle(a: np.ndarray, b: np.ndarray) -> float:
    """Kahan's formula on unit vectors, one pixel at a time."""
    a, b = (vector.astype(np.float64) / math.sqrt(sum(float(x) ** 2 for x in vector)) for vector in (a, b))
    return math.degrees(2 * math.atan2(math.dist(a, b), math.dist(a, -b)))


def test_agrees_with_a_slow_loop() -> None:
    made = pictures(1, 8)
    slow = sorted(slow_angle(p[y, x], t[y, x]) for p, t, mask in made for y, x in zip(*np.nonzero(mask), strict=True))
    figures = measured(made).compute()
    assert figures["mean_deg"] == pytest.approx(sum(slow) / len(slow), abs=1e-9)
    assert figures["rmse_deg"] == pytest.approx(math.sqrt(sum(a * a for a in slow) / len(slow)), abs=1e-9)
    assert abs(figures["median_deg"] - slow[(len(slow) - 1) // 2]) <= 0.0005 + 1e-9
    for limit in (5, 11.25, 22.5, 30):
        assert figures[f"within_{limit:g}"] == sum(a < limit for a in slow) / len(slow)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 4))
def test_splits_merge_to_the_whole_bit_by_bit_in_any_order(key: int, cut: int) -> None:
    made = pictures(key)
    first, second = measured(made[:cut]), measured(made[cut:][::-1])
    stored = io.BytesIO()
    np.savez(stored, **first.state())
    stored.seek(0)
    second.merge(NormalMetric.from_state(np.load(stored)))
    assert second.compute() == measured(made).compute()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_length_and_camera_do_not_matter(key: int, length: float) -> None:
    made = pictures(key)
    turn = Rotation.random(random_state=key).as_matrix()
    turned = [(length * p.astype(float) @ turn.T, t.astype(float) @ turn.T, mask) for p, t, mask in made]
    figures, again = measured(made).compute(), measured(turned).compute()
    assert again["mean_deg"] == pytest.approx(figures["mean_deg"], abs=1e-8)
    assert 0 <= figures["mean_deg"] <= figures["rmse_deg"] <= 180
    shares = [figures[name] for name in ("within_5", "within_11.25", "within_22.5", "within_30")]
    assert shares == sorted(shares)


def test_perfect_opposite_and_absent_directions() -> None:
    truth = np.zeros((1, 2, 3), dtype=np.float32)
    truth[..., 2] = -1
    best = measured([(truth * 3, truth, np.ones((1, 2), bool))]).compute()
    assert (best["mean_deg"], best["rmse_deg"], best["median_deg"], best["within_5"]) == (0, 0, 0.0005, 1)
    worst = measured([(-truth, truth, np.ones((1, 2), bool))]).compute()
    assert (worst["mean_deg"], worst["within_30"]) == (180, 0)
    assert worst["median_deg"] == pytest.approx(179.9995)
    assert measured([(truth * 0, truth, np.ones((1, 2), bool))]).compute()["mean_deg"] == 90


def test_small_angles_are_not_lost() -> None:
    angle = 1e-4
    truth = np.array([[[0.0, 0.0, -1.0]]])
    prediction = np.array([[[math.sin(math.radians(angle)), 0.0, -math.cos(math.radians(angle))]]])
    metric = NormalMetric()
    metric.update(prediction, truth)
    assert metric.compute()["mean_deg"] == pytest.approx(angle, rel=1e-9)


def test_background_does_not_count_and_nothing_is_an_error() -> None:
    metric = NormalMetric()
    metric.update(np.ones((1, 2, 3)), np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="nothing to measure"):
        metric.compute()
