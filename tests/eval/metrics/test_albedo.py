from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity

from eval.metrics import AlbedoMetric

Made = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def pictures(key: int, count: int = 3, full: bool = False) -> Made:
    random = np.random.Generator(np.random.Philox(key=key))
    made = []
    for _ in range(count):
        shape = tuple(random.integers(14, 24, 2))
        truth = random.random((*shape, 3)).astype(np.float32)
        prediction = (0.7 * truth + 0.4 * random.random(truth.shape)).astype(np.float32)
        mask = np.ones(shape, bool)
        if not full:
            mask[:2] = random.random((2, shape[1])) < 0.5
            mask[:, -1] = False
        made.append((prediction, truth, mask))
    return made


def measured(made: Made) -> AlbedoMetric:
    metric = AlbedoMetric()
    for picture in made:
        metric.update(*picture)
    return metric


def test_agrees_with_scikit_image_on_whole_pictures() -> None:
    for prediction, truth, mask in pictures(1, full=True):
        figures = measured([(prediction, truth, mask)]).compute()
        given, true = prediction.astype(float), truth.astype(float)
        ssim = structural_similarity(
            true, given, data_range=1.0, channel_axis=2, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
        )
        assert figures["ssim"] == pytest.approx(ssim, abs=1e-12)
        assert figures["rmse"] ** 2 == pytest.approx(mean_squared_error(true, given), abs=1e-12)
        psnr = peak_signal_noise_ratio(true, given, data_range=1.0)
        assert figures["psnr"] == pytest.approx(psnr, abs=1e-9)
        assert figures["psnr_picture"] == pytest.approx(psnr, abs=1e-9)


def slow_ssim(p: np.ndarray, t: np.ndarray, mask: np.ndarray) -> tuple[list[float], list[float]]:
    """SSIM of whole windows, and with moments weighted by the mask, one window at a time."""
    g = np.array([math.exp(-(d**2) / (2 * 1.5**2)) for d in range(-5, 6)])
    kernel = np.outer(g, g) / g.sum() ** 2
    whole, weighted = [], []
    h, w = mask.shape
    for y in range(h):
        for x in range(w):
            weights = np.zeros((h, w))
            complete = True
            for dy in range(-5, 6):
                for dx in range(-5, 6):
                    if 0 <= y + dy < h and 0 <= x + dx < w and mask[y + dy, x + dx]:
                        weights[y + dy, x + dx] = kernel[dy + 5, dx + 5]
                    else:
                        complete = False
            total = weights.sum()
            if total <= 0.5:
                continue
            values = []
            for c in range(3):
                a, b = p[..., c], t[..., c]
                ma, mb = (weights * a).sum() / total, (weights * b).sum() / total
                va = (weights * (a - ma) ** 2).sum() / total
                vb = (weights * (b - mb) ** 2).sum() / total
                cov = (weights * (a - ma) * (b - mb)).sum() / total
                top = (2 * ma * mb + 1e-4) * (2 * cov + 9e-4)
                values.append(top / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)))
            weighted.append(sum(values) / 3)
            if complete:
                whole.append(sum(values) / 3)
    return whole, weighted


def test_agrees_with_slow_loops_in_a_mask() -> None:
    made = pictures(2, 2)
    errors, gradients, whole, weighted = [], [], [], []
    for prediction, truth, mask in made:
        p, t = prediction.astype(float), truth.astype(float)
        errors += [float(e) for e in np.abs(p - t)[mask].ravel()]
        for y, x in zip(*np.nonzero(mask), strict=True):
            for after in ((y, x + 1), (y + 1, x)):
                if after[0] < mask.shape[0] and after[1] < mask.shape[1] and mask[after]:
                    gradients += [abs((p[after][c] - p[y, x][c]) - (t[after][c] - t[y, x][c])) for c in range(3)]
        soft = slow_ssim(p, t, mask)
        whole += soft[0]
        weighted += soft[1]
    figures = measured(made).compute()
    assert figures["mae"] == pytest.approx(sum(errors) / len(errors), abs=1e-12)
    assert figures["rmse"] == pytest.approx(math.sqrt(sum(e * e for e in errors) / len(errors)), abs=1e-12)
    assert figures["grad_l1"] == pytest.approx(sum(gradients) / len(gradients), abs=1e-12)
    assert figures["ssim"] == pytest.approx(sum(whole) / len(whole), abs=1e-10)
    assert figures["ssim_masked"] == pytest.approx(sum(weighted) / len(weighted), abs=1e-10)


def test_what_is_outside_of_the_mask_does_not_matter() -> None:
    made = pictures(3)
    spoilt = []
    for prediction, truth, mask in made:
        prediction, truth = prediction.copy(), truth.copy()
        prediction[~mask], truth[~mask] = np.nan, 99
        spoilt.append((prediction, truth, mask))
    assert measured(spoilt).compute() == measured(made).compute()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_splits_merge_to_the_whole_bit_by_bit_in_any_order(key: int, cut: int) -> None:
    made = pictures(key)
    first, second = measured(made[:cut]), measured(made[cut:][::-1])
    stored = io.BytesIO()
    np.savez(stored, **first.state())
    stored.seek(0)
    second.merge(AlbedoMetric.from_state(np.load(stored)))
    assert second.compute() == measured(made).compute()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.1, 10), st.floats(0.1, 10))
def test_invariant_variants_do_not_see_brightness_or_cast(key: int, factor: float, red: float) -> None:
    made = pictures(key)
    brighter = [(p.astype(float) * factor, t, mask) for p, t, mask in made]
    cast = [(p.astype(float) * [red, 1, factor], t, mask) for p, t, mask in made]
    figures = measured(made).compute()
    for name in ("si_mae", "si_rmse", "channel_mae", "channel_rmse"):
        assert measured(brighter).compute()[name] == pytest.approx(figures[name], abs=1e-9)
    for name in ("channel_mae", "channel_rmse"):
        assert measured(cast).compute()[name] == pytest.approx(figures[name], abs=1e-9)
    assert figures["channel_rmse"] <= figures["si_rmse"] + 1e-12 <= figures["rmse"] + 2e-12
    assert figures["ssim"] <= 1


def test_a_perfect_prediction() -> None:
    figures = measured([(t, t, mask) for _, t, mask in pictures(4)]).compute()
    assert figures["mae"] == figures["rmse"] == figures["grad_l1"] == 0
    assert figures["psnr"] == 120
    assert figures["ssim"] == pytest.approx(1, abs=1e-12)
    assert figures["ssim_masked"] == pytest.approx(1, abs=1e-12)


def test_thin_masks_have_no_whole_window() -> None:
    prediction, truth, mask = pictures(5, 1)[0]
    mask[:] = False
    mask[3:9] = True
    figures = measured([(prediction, truth, mask)]).compute()
    assert math.isnan(figures["ssim"])
    assert figures["ssim_masked"] < 1


def test_mistakes_are_named() -> None:
    metric = AlbedoMetric()
    with pytest.raises(ValueError, match="divide by 255"):
        metric.update(np.ones((2, 2, 3)), np.full((2, 2, 3), 200.0))
    metric.update(np.ones((2, 2, 3)), np.ones((2, 2, 3)), np.zeros((2, 2), bool))
    with pytest.raises(ValueError, match="nothing to measure"):
        metric.compute()
