"""Augmentation of images: a function of the key, as often and as strong as configured, nothing when not."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

from training.tasks.augment import RECIPES, AugmentConfig, augment

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
SMOOTH = np.stack(np.broadcast_arrays(np.arange(40)[:, None] * 4 + 40, np.arange(30) * 5 + 30, 120), -1).astype(
    np.uint8
)


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def test_the_default_does_nothing() -> None:
    for key in range(5):
        np.testing.assert_array_equal(augment(IMAGE, rng(key), AugmentConfig()), IMAGE)


@pytest.mark.parametrize("task", RECIPES)
def test_recipes_are_functions_of_the_key_and_leave_the_input(task: str) -> None:
    before = IMAGE.copy()
    results = [augment(IMAGE, rng(key), RECIPES[task]) for key in range(30)]
    again = augment(IMAGE, rng(7), RECIPES[task])
    np.testing.assert_array_equal(again, results[7])
    np.testing.assert_array_equal(IMAGE, before)
    assert len({result.tobytes() for result in results}) > 3
    assert {(result.shape, result.dtype) for result in results} == {(IMAGE.shape, IMAGE.dtype)}


def test_another_operation_leaves_the_draws_of_the_others_alone() -> None:
    noise = AugmentConfig(noise_probability=1)
    both = AugmentConfig(noise_probability=1, dropout_probability=1)
    one, other = augment(IMAGE, rng(5), noise), augment(IMAGE, rng(5), both)
    hole = (other == 0).all(-1)
    np.testing.assert_array_equal(one[~hole], other[~hole])


def test_the_hole_has_the_sides_asked_for() -> None:
    config = AugmentConfig(dropout_probability=1)
    white = np.full((100, 200, 3), 255, np.uint8)
    corners = []
    for key in range(60):
        rows, columns = np.nonzero((augment(white, rng(key), config) == 0).all(-1))
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert 20 <= height <= 40
        assert 40 <= width <= 80
        assert len(rows) == height * width
        corners.append((rows.min(), columns.min()))
    assert np.ptp(corners, axis=0).min() > 40


def test_noise_has_the_variance_asked_for() -> None:
    grey = np.full((80, 80, 3), 128, np.uint8)
    config = AugmentConfig(noise_probability=1, noise_variance=(20, 20))
    values = augment(grey, rng(1), config).astype(float)
    assert abs(values.mean() - 128) < 0.2
    assert values.var() == pytest.approx(20 + 1 / 12, rel=0.05)  # rounding adds 1/12
    config = AugmentConfig(noise_probability=1)
    variances = [augment(grey, rng(key), config).astype(float).var() for key in range(25)]
    assert 4.5 < min(variances) < 9
    assert 16 < max(variances) < 21


def test_solarize_inverts_what_is_above_the_threshold() -> None:
    result = augment(IMAGE, rng(0), AugmentConfig(solarize_probability=1))
    np.testing.assert_array_equal(result, np.where(IMAGE > 128, 255 - IMAGE.astype(int), IMAGE))


@pytest.mark.parametrize("name", ["box_blur", "median_blur", "gaussian_blur", "resample"])
def test_blurs_take_detail_and_keep_the_mean(name: str) -> None:
    config = AugmentConfig(**{f"{name}_probability": 1.0})  # type: ignore[arg-type]
    results = [augment(IMAGE, rng(key), config).astype(float) for key in range(20)]
    assert np.mean([result.std() / IMAGE.std() for result in results]) < 0.95
    assert abs(np.mean(results) - IMAGE.mean()) < 4
    # A picture without detail has none to lose.
    assert np.abs(augment(SMOOTH, rng(0), config).astype(float) - SMOOTH).mean() < 12


def slow_photometric(pixel: np.ndarray, brightness: float, saturation: float, turn: float) -> np.ndarray:
    """One pixel by the standard library."""
    red, green, blue = np.clip(pixel + brightness, 0, 255) / 255
    hue, chroma, value = colorsys.rgb_to_hsv(red, green, blue)
    return np.array(colorsys.hsv_to_rgb((hue + turn / 360) % 1, min(1, chroma * saturation), value)) * 255


def test_colours_are_those_of_the_formulas() -> None:
    config = AugmentConfig(photometric_probability=1, contrast=(1, 1))
    image = IMAGE[:6, :6]
    for key in range(12):
        draws = rng(key).random(40)
        wanted = draws[1:5] < 0.5
        brightness = 32 * (2 * draws[5] - 1) if wanted[0] else 0.0
        saturation = 0.5 + draws[7] if wanted[2] else 1.0
        turn = 36 * (2 * draws[8] - 1) if wanted[3] else 0.0
        expected = np.array([[slow_photometric(pixel, brightness, saturation, turn) for pixel in row] for row in image])
        np.testing.assert_allclose(augment(image, rng(key), config), expected, atol=1.01)


def test_contrast_is_a_factor() -> None:
    config = AugmentConfig(photometric_probability=1, brightness=0, saturation=(1, 1), hue=0, contrast=(0.5, 0.5))
    results = [augment(IMAGE, rng(key), config).astype(float) for key in range(40)]
    changed = [result for result in results if np.abs(result - IMAGE).max() > 2]
    assert 8 < len(changed) < 32
    for result in changed:
        np.testing.assert_allclose(result, IMAGE / 2, atol=1.01)


def test_bad_input_says_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"uint8 \[H, W, 3\]"):
        augment(IMAGE[..., 0], rng(0), AugmentConfig())
    with pytest.raises(ValueError, match="contrast"):
        AugmentConfig(contrast=(1.5, 0.5))
    with pytest.raises(ValueError, match="at most 1"):
        AugmentConfig(dropout_side=(0.2, 1.2))
