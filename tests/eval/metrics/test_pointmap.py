from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from eval.metrics import PointmapMetric, PointmapMetricConfig
from eval.metrics.pointmap import fit_scale, fit_scale_shift

Made = list[tuple[np.ndarray, np.ndarray, np.ndarray, float, float]]


def pictures(key: int, count: int = 4) -> Made:
    random = np.random.Generator(np.random.Philox(key=key))
    made = []
    for _ in range(count):
        shape = tuple(random.integers(2, 8, 2))
        truth = random.normal(size=(*shape, 3))
        truth[..., 2] = random.uniform(1, 4, shape)
        prediction = random.uniform(0.5, 1.5) * truth + 0.1 * random.normal(size=truth.shape) + 0.2
        mask = random.random(shape) < 0.8
        mask[0, 0] = True
        made.append((prediction.astype(np.float32), truth.astype(np.float32), mask, *random.uniform(0.5, 2, 2)))
    return made


def measured(made: Made, config: PointmapMetricConfig | None = None) -> PointmapMetric:
    metric = PointmapMetric(config)
    for picture in made:
        metric.update(*picture)
    return metric


def slow(pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """All figures, one pixel at a time."""
    n = len(pairs)
    distances = [math.sqrt(sum(float(a - b) ** 2 for a, b in zip(p, t, strict=True))) for p, t in pairs]
    figures = {"l2": sum(distances) / n, "rmse": math.sqrt(sum(d * d for d in distances) / n)}
    for i, axis in enumerate("xyz"):
        figures[f"{axis}_mae"] = sum(abs(float(p[i] - t[i])) for p, t in pairs) / n
    figures["absrel"] = sum(abs(float(p[2] - t[2])) / float(t[2]) for p, t in pairs) / n
    for k in (1, 2, 3):
        near = sum(p[2] > 0 and max(p[2] / t[2], t[2] / p[2]) < 1.25**k for p, t in pairs)
        figures[f"delta{k}"] = near / n
    for limit in (0.05, 0.1, 0.2):
        figures[f"within_{limit:g}"] = sum(d < limit for d in distances) / n
    return figures


@pytest.mark.parametrize("weights", ["uniform", "inverse_depth"])
def test_agrees_with_slow_loops_and_a_numeric_search(weights: str) -> None:
    made = pictures(1)
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"": [], "scale/": [], "shift/": [], "canonical/": []}
    for prediction, truth, mask, scale, true_scale in made:
        p, t = prediction[mask].astype(float), truth[mask].astype(float)
        root = np.ones(len(t)) if weights == "uniform" else 1 / t[:, 2]
        one = (np.repeat(root, 3) * p.ravel(), np.repeat(root, 3) * t.ravel())
        s = np.linalg.lstsq(one[0][:, None], one[1], rcond=None)[0][0]
        rows = np.concatenate([p.reshape(-1, 1), np.tile(np.eye(3), (len(p), 1))], axis=1) * np.repeat(root, 3)[:, None]
        free = np.linalg.lstsq(rows, one[1], rcond=None)[0]
        for variant, moved in (("", p), ("scale/", p * s), ("shift/", p * free[0] + free[1:])):
            pairs[variant] += list(zip(moved, t, strict=True))
        pairs["canonical/"] += list(zip(p * scale, t * true_scale, strict=True))
    figures = measured(made, PointmapMetricConfig(weights=weights)).compute()
    wanted = {f"{variant}{name}": value for variant in pairs for name, value in slow(pairs[variant]).items()}
    assert figures == pytest.approx(wanted, abs=1e-9)


def test_median_alignment() -> None:
    made = pictures(2, 1)
    prediction, truth, mask = made[0][:3]
    s = np.median(truth[mask][:, 2].astype(float)) / np.median(prediction[mask][:, 2].astype(float))
    figures = measured(made, PointmapMetricConfig(alignment="median")).compute()
    aligned = slow(list(zip(prediction[mask].astype(float) * s, truth[mask].astype(float), strict=True)))
    assert figures["scale/l2"] == pytest.approx(aligned["l2"], abs=1e-12)


def test_fits_are_the_minimum() -> None:
    p, t, _, *_ = pictures(3, 1)[0]
    p, t = p.reshape(-1, 3).astype(float), t.reshape(-1, 3).astype(float)
    weights = np.linspace(0.5, 2, len(p))

    def cost(x: np.ndarray) -> float:
        return float((weights[:, None] * (x[0] * p + x[1:] - t) ** 2).sum())

    scale, shift = fit_scale_shift(p, t, weights)
    best = minimize(cost, np.array([1.0, 0, 0, 0]), method="BFGS", options={"gtol": 1e-9})
    assert [scale, *shift] == pytest.approx(best.x.tolist(), abs=1e-5)
    assert fit_scale(-p, p, weights) == 0
    assert fit_scale(p * 0, t, weights) == 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 4))
def test_splits_merge_to_the_whole_bit_by_bit_in_any_order(key: int, cut: int) -> None:
    made = pictures(key)
    first, second = measured(made[:cut]), measured(made[cut:][::-1])
    stored = io.BytesIO()
    np.savez(stored, **first.state())
    stored.seek(0)
    second.merge(PointmapMetric.from_state(np.load(stored)))
    assert second.compute() == measured(made).compute()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.1, 10))
def test_aligned_variants_do_not_see_what_they_align(key: int, factor: float) -> None:
    made = pictures(key)
    moved = [(p.astype(float) * factor + [0, 0, 1], t, mask) for p, t, mask, *_ in made]
    scaled = [(p.astype(float) * factor, t, mask) for p, t, mask, *_ in made]
    figures = measured(made).compute()
    for name in ("l2", "rmse", "absrel"):
        assert measured(moved).compute()[f"shift/{name}"] == pytest.approx(figures[f"shift/{name}"], rel=1e-6)
        assert measured(scaled).compute()[f"scale/{name}"] == pytest.approx(figures[f"scale/{name}"], rel=1e-6)
    assert figures["shift/rmse"] <= figures["scale/rmse"] + 1e-12 <= figures["rmse"] + 2e-12


def test_a_perfect_prediction_has_no_error() -> None:
    made = [(t, t, mask, 0.5, 0.5) for _, t, mask, *_ in pictures(4)]
    figures = measured(made).compute()
    for variant in ("", "scale/", "shift/", "canonical/"):
        assert figures[f"{variant}l2"] == pytest.approx(0, abs=1e-12)
        assert figures[f"{variant}delta1"] == figures[f"{variant}within_0.05"] == 1


def test_a_wrong_scale_of_the_model_shows_in_metres_only() -> None:
    truth = pictures(5, 1)[0][1]
    metric = PointmapMetric()
    # The canonical map is right, but the model takes the focal length for half of what it is.
    metric.update(truth * 2.0 / 4.0, truth, scale=4.0, true_scale=2.0)
    figures = metric.compute()
    assert figures["canonical/l2"] == pytest.approx(0, abs=1e-12)
    assert figures["absrel"] == pytest.approx(0.5)


def test_points_behind_the_camera_are_never_near() -> None:
    metric = PointmapMetric(PointmapMetricConfig(alignment="median"))
    metric.update(np.full((1, 1, 3), -2.0), np.full((1, 1, 3), 2.0))
    figures = metric.compute()
    assert figures["delta3"] == 0
    assert figures["scale/z_mae"] == 4
    assert "canonical/l2" not in figures


def test_mistakes_are_named() -> None:
    metric = PointmapMetric()
    points = np.ones((1, 1, 3))
    with pytest.raises(ValueError, match="together"):
        metric.update(points, points, scale=1.0)
    with pytest.raises(ValueError, match="true_scale is 0"):
        metric.update(points, points, scale=1.0, true_scale=0.0)
    metric.update(points, points * 0)
    with pytest.raises(ValueError, match="nothing to measure"):
        metric.compute()
