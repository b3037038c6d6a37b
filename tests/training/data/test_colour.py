"""Colour augmentation: each operation is the known one, for each image its own, and alike alone and in a batch."""

from __future__ import annotations

import colorsys
import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.data.colour import (
    COLUMNS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    ColourConfig,
    apply_colour,
    apply_colour_bytes,
    draw_colour,
    identity,
    normalise,
)

EVERYTHING = ColourConfig(
    jitter_probability=1, hue=0.5, brightness=0.9, grayscale_probability=0.3, blur_probability=0.7
)


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def pictures(count: int, height: int = 24, width: int = 17, key: int = 0) -> Tensor:
    """Bytes as floats, with grey, black, white and saturated pixels among them."""
    images = rng(key).integers(0, 256, (count, 3, height, width))
    images[:, :, 0] = images[:, :1, 0]
    images[:, :, 1, 0], images[:, :, 1, 1] = 0, 255
    images[:, 0, 2], images[:, 1, 2] = 255, 0
    images[:, 2, 3] = images[:, 1, 3]
    return torch.from_numpy(images).float() / 255


def row(**values: float) -> Tensor:
    result = torch.from_numpy(identity(1))
    for name, value in values.items():
        result[0, COLUMNS.index(name)] = value
    return result


def by_torchvision(image: Tensor, parameters: list[float], kernel: int = 9) -> Tensor:
    """One image [3, h, w] through torchvision's operations."""
    value = dict(zip(COLUMNS, parameters, strict=True))
    operations = {
        "brightness": tv.adjust_brightness,
        "contrast": tv.adjust_contrast,
        "saturation": tv.adjust_saturation,
        "hue": tv.adjust_hue,
    }
    for name in sorted(operations, key=lambda name: value[f"{name}_place"]):
        if name != "hue" or value[name]:  # its way through HSV rounds even where it turns nothing
            image = operations[name](image, value[name])
    if value["grayscale"]:
        image = tv.rgb_to_grayscale(image, num_output_channels=3)
    if value["sigma"]:
        image = tv.gaussian_blur(image, [kernel, kernel], [value["sigma"]] * 2)
    return tv.solarize(image, value["threshold"]) if value["threshold"] <= 1 else image


def by_hand(image: npt.NDArray[np.float64], parameters: list[float], kernel: int) -> npt.NDArray[np.float64]:
    """One image [3, h, w], pixel by pixel in float64."""
    value = dict(zip(COLUMNS, parameters, strict=True))
    height, width = image.shape[1:]
    pixels = [[[float(image[c, y, x]) for c in range(3)] for x in range(width)] for y in range(height)]

    def luma(pixel: list[float]) -> float:
        return 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]

    for name in sorted(("brightness", "contrast", "saturation", "hue"), key=lambda name: value[f"{name}_place"]):
        factor = value[name]
        mean = math.fsum(luma(pixel) for line in pixels for pixel in line) / (height * width)
        for line in pixels:
            for x, pixel in enumerate(line):
                if name == "hue":
                    hue, saturation, bright = colorsys.rgb_to_hsv(*pixel)
                    line[x] = list(colorsys.hsv_to_rgb((hue + factor) % 1.0, saturation, bright))
                    continue
                towards = {"brightness": 0.0, "contrast": mean, "saturation": luma(pixel)}[name]
                line[x] = [min(1.0, max(0.0, factor * v + (1 - factor) * towards)) for v in pixel]
    if value["grayscale"]:
        pixels = [[[luma(pixel)] * 3 for pixel in line] for line in pixels]
    if value["sigma"]:
        reach = kernel // 2
        weights = [
            [math.exp(-(dx * dx + dy * dy) / (2 * value["sigma"] ** 2)) for dx in range(-reach, reach + 1)]
            for dy in range(-reach, reach + 1)
        ]
        total = math.fsum(itertools.chain.from_iterable(weights))

        def mirror(place: int, length: int) -> int:
            place = abs(place)
            return 2 * (length - 1) - place if place >= length else place

        pixels = [
            [
                [
                    sum(
                        weights[dy + reach][dx + reach] * pixels[mirror(y + dy, height)][mirror(x + dx, width)][c]
                        for dy in range(-reach, reach + 1)
                        for dx in range(-reach, reach + 1)
                    )
                    / total
                    for c in range(3)
                ]
                for x in range(width)
            ]
            for y in range(height)
        ]
    result = np.array(pixels).transpose(2, 0, 1)
    return np.where(result >= value["threshold"], 1 - result, result)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_identity_changes_no_bit(one_by_one: bool) -> None:
    images = pictures(3)

    assert torch.equal(apply_colour(images, torch.from_numpy(identity(3)), one_by_one=one_by_one), images)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(
    "values",
    [
        *({"brightness": factor} for factor in (0.0, 0.6, 1.4)),
        *({"contrast": factor} for factor in (0.0, 0.6, 1.4)),
        *({"saturation": factor} for factor in (0.0, 0.8, 1.2)),
        *({"hue": turn} for turn in (-0.5, -0.1, 0.03, 0.1, 0.5)),
        {"grayscale": 1},
        *({"sigma": sigma} for sigma in (0.1, 0.7, 2.0)),
        *({"threshold": threshold} for threshold in (0.0, 128 / 255, 1.0)),
    ],
    ids=str,
)
def test_each_operation_is_torchvisions(values: dict[str, float], one_by_one: bool) -> None:
    images = pictures(2)
    parameters = row(**values).repeat(2, 1)

    result = apply_colour(images, parameters, one_by_one=one_by_one)

    wanted = torch.stack([by_torchvision(image, parameters[0].tolist()) for image in images])
    torch.testing.assert_close(result, wanted, atol=3e-6, rtol=0)
    assert (result - images).abs().max() > 0.01 or values in ({"sigma": 0.1}, {"threshold": 1.0})


@settings(max_examples=15, deadline=None)
@given(key=st.integers(0, 2**32), kernel=st.sampled_from([3, 5, 9]))
def test_differing_parameters_in_one_batch_give_what_torchvision_gives_one_by_one(key: int, kernel: int) -> None:
    images = pictures(6, 20, 13, key)
    config = EVERYTHING.model_copy(update={"solarize_probability": 0.0})
    parameters = torch.from_numpy(draw_colour(rng(key), 6, config))

    wanted = torch.stack(
        [by_torchvision(image, p.tolist(), kernel) for image, p in zip(images, parameters, strict=True)]
    )
    for one_by_one in (True, False):
        result = apply_colour(images, parameters, blur_kernel=kernel, one_by_one=one_by_one)
        torch.testing.assert_close(result, wanted, atol=2e-5, rtol=0)


@settings(max_examples=8, deadline=None)
@given(key=st.integers(0, 2**32))
def test_all_operations_are_those_of_a_slow_reference(key: int) -> None:
    images = pictures(2, 7, 6, key).double()
    parameters = torch.from_numpy(draw_colour(rng(key), 2, EVERYTHING.model_copy(update={"solarize_probability": 0.5})))

    for one_by_one in (True, False):
        result = apply_colour(images, parameters, blur_kernel=5, one_by_one=one_by_one)
        for image, p, got in zip(images, parameters, result, strict=True):
            np.testing.assert_allclose(got.numpy(), by_hand(image.numpy(), p.tolist(), 5), atol=1e-9)


@settings(max_examples=10, deadline=None)
@given(key=st.integers(0, 2**32))
def test_alone_or_in_a_batch_the_bytes_are_the_same_to_one(key: int) -> None:
    images = (pictures(8, 16, 12, key) * 255).round().to(torch.uint8)
    parameters = torch.from_numpy(draw_colour(rng(key), 8, EVERYTHING.model_copy(update={"solarize_probability": 0.5})))

    batch = (apply_colour(images.float() / 255, parameters, one_by_one=False) * 255).round()
    together = apply_colour_bytes(images, parameters)
    alone = torch.cat([apply_colour_bytes(images[i : i + 1], parameters[i : i + 1]) for i in range(8)])
    assert torch.equal(together, alone)
    assert (batch - together.float()).abs().max() <= 1
    assert batch.min() >= 0
    assert batch.max() <= 255


def test_the_number_of_threads_changes_no_bit() -> None:
    images = torch.from_numpy(rng(3).random((2, 3, 448, 336), np.float32))
    parameters = torch.from_numpy(draw_colour(rng(4), 2, EVERYTHING.model_copy(update={"blur_probability": 1.0})))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(apply_colour(images, parameters))
    finally:
        torch.set_num_threads(before)

    assert torch.equal(*results)


def test_the_input_is_left_as_it_is() -> None:
    images, parameters = pictures(4), torch.from_numpy(draw_colour(rng(1), 4, EVERYTHING))
    copies = images.clone(), parameters.clone()

    for one_by_one in (True, False):
        apply_colour(images, parameters, one_by_one=one_by_one)
        assert torch.equal(images, copies[0])
        assert torch.equal(parameters, copies[1])


def test_solarizing_bytes_is_the_integer_rule() -> None:
    values = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(2, 3, 16, 16)
    parameters = row(threshold=128 / 255).repeat(2, 1)

    wanted = torch.where(values >= 128, 255 - values, values)
    assert torch.equal(apply_colour_bytes(values, parameters), wanted)
    assert torch.equal((apply_colour(values.float() / 255, parameters, one_by_one=False) * 255).round(), wanted.float())


def test_bytes_keep_their_leading_axes() -> None:
    images = (pictures(6, 12, 12) * 255).to(torch.uint8).reshape(3, 2, 3, 12, 12)
    parameters = torch.from_numpy(draw_colour(rng(0), 6, EVERYTHING)).reshape(3, 2, -1)

    result = apply_colour_bytes(images, parameters)

    assert result.shape == images.shape
    assert torch.equal(result[2, 1][None], apply_colour_bytes(images[2, 1][None], parameters[2, 1][None]))


def test_draws_have_the_configured_ranges_shares_and_every_order() -> None:
    config = ColourConfig()
    n = 20_000
    rows = draw_colour(rng(5), n, config)

    assert rows.shape == (n, len(COLUMNS))
    assert rows.dtype == np.float32
    jittered = (rows[:, :4] != identity(1)[:, :4]).any(1)
    assert abs(jittered.mean() - 0.8) < 0.015  # 5 standard deviations of a share are at most 0.018
    for column, centre, reach in ((0, 1, 0.4), (1, 1, 0.4), (2, 1, 0.2), (3, 0, 0.1)):
        drawn = rows[jittered, column]
        assert drawn.min() >= np.float32(centre - reach)
        assert drawn.max() <= np.float32(centre + reach)
        # Uniform: quarters of the range hold a quarter each.
        counts = np.histogram(drawn, bins=4, range=(centre - reach, centre + reach))[0] / len(drawn)
        assert np.abs(counts - 0.25).max() < 0.02
    orders, counts = np.unique(rows[jittered, 4:8], axis=0, return_counts=True)
    assert len(orders) == 24
    assert np.abs(counts / jittered.sum() - 1 / 24).max() < 0.009
    assert abs(rows[:, 8].mean() - 0.2) < 0.015
    blurred = rows[:, 9] > 0
    assert abs(blurred.mean() - 0.5) < 0.018
    assert np.float32(0.1) <= rows[blurred, 9].min() < 0.11
    assert 1.99 < rows[blurred, 9].max() <= 2.0
    solarized = rows[:, 10] <= 1
    assert abs(solarized.mean() - 0.2) < 0.015
    assert (rows[solarized, 10] == np.float32(128 / 255)).all()


def test_a_change_of_one_setting_changes_its_columns_alone() -> None:
    before = draw_colour(rng(6), 50, ColourConfig())

    after = draw_colour(rng(6), 50, ColourConfig(blur_probability=0.0, hue=0.0))
    changed = (before != after).any(0)

    assert {name for name, differs in zip(COLUMNS, changed, strict=True) if differs} == {"hue", "sigma"}


def test_normalise_is_imagenets() -> None:
    bytes_ = (pictures(2) * 255).round().to(torch.uint8)
    wanted = tv.normalize(bytes_.float() / 255, list(IMAGENET_MEAN), list(IMAGENET_STD))

    torch.testing.assert_close(normalise(bytes_), wanted, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(normalise(bytes_.float() / 255), wanted, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(normalise(bytes_[None], torch.bfloat16)[0], wanted.to(torch.bfloat16))


def test_wrong_arguments_are_explained() -> None:
    images, one = pictures(2), torch.from_numpy(identity(1))
    with pytest.raises(ValueError, match=r"give \[2, 11\]"):
        apply_colour(images, one)
    with pytest.raises(ValueError, match=r"uint8: give float \[B, 3, h, w\]"):
        apply_colour(images.to(torch.uint8), one)
    with pytest.raises(ValueError, match="too small for a blur kernel of 9"):
        apply_colour(pictures(1, 12, 4), one)
    with pytest.raises(ValueError, match="positive odd"):
        apply_colour(pictures(1), one, blur_kernel=4)
    with pytest.raises(ValueError, match="a row of parameters for each"):
        apply_colour_bytes(images.to(torch.uint8), one)
    with pytest.raises(ValueError, match="uint8 or float"):
        normalise(torch.zeros(2, 4, 4, 4))
    with pytest.raises(ValueError, match="must be odd"):
        ColourConfig(blur_kernel=8)
    with pytest.raises(ValueError, match="0 < low <= high"):
        ColourConfig(blur_sigma=(2.0, 0.1))
