from __future__ import annotations

import io
import random
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from curation.decode import DecodeConfig, Decoded, Header, Problem, decode, read_header
from curation.reasons import Reason
from pipeline.demo import oddities
from pipeline.demo.drawings import bar_chart
from pipeline.demo.scenes import person_scene
from pipeline.demo.variants import encode


@pytest.fixture(scope="module")
def image() -> Image.Image:
    return person_scene(random.Random(0)).image


def outcome(data: bytes) -> Decoded | Problem:
    config = DecodeConfig()
    header = read_header(data, config)
    return decode(data, header, config, None) if isinstance(header, Header) else header


@pytest.mark.parametrize("orientation", range(2, 9))
def test_exif_rotated_pictures_are_upright_once_the_tag_is_applied(image: Image.Image, orientation: int) -> None:
    found = outcome(oddities.exif_rotated(image, orientation))
    assert isinstance(found, Decoded)
    assert found.pixels.shape == (image.height, image.width, 3)
    assert np.abs(found.pixels.astype(int) - np.asarray(image)).mean() < 6


@pytest.mark.parametrize(("name", "make"), oddities.FORMATS, ids=[name for name, _ in oddities.FORMATS])
def test_every_format_decodes_to_the_picture(
    image: Image.Image, name: str, make: Callable[[Image.Image], oddities.Encoded]
) -> None:
    data, _ = make(image)
    found = outcome(data)
    assert isinstance(found, Decoded)
    reference = image.resize(found.pixels.shape[1::-1])
    if "grey" in name:
        reference = reference.convert("L").convert("RGB")
    middle = np.s_[
        found.pixels.shape[0] // 3 : -found.pixels.shape[0] // 3,
        found.pixels.shape[1] // 3 : -found.pixels.shape[1] // 3,
    ]
    assert np.abs(found.pixels.astype(int)[middle] - np.asarray(reference)[middle]).mean() < 12


@pytest.mark.parametrize("number", range(5))
def test_broken_files_have_the_reason_that_the_truth_gives_them(image: Image.Image, number: int) -> None:
    rng = random.Random(number)
    jpeg, png = encode(image), encode(image, "png")
    expected = {
        oddities.truncated(rng, jpeg): {Reason.TRUNCATED},
        oddities.cut_by_two(jpeg): {Reason.TRUNCATED},
        oddities.corrupt_png(rng, png): {Reason.CORRUPT, Reason.TRUNCATED},
        oddities.html_page(rng): {Reason.NOT_AN_IMAGE},
        oddities.svg_drawing(rng): {Reason.UNSUPPORTED_FORMAT},
        oddities.heic_header(rng): {Reason.UNSUPPORTED_FORMAT},
    }
    assert len(expected) == 6
    for data, reasons in expected.items():
        found = outcome(data)
        assert isinstance(found, Problem)
        assert found.reason in reasons


def test_the_bomb_is_small_and_huge() -> None:
    data = oddities.bomb(random.Random(0))
    assert len(data) < 100_000
    found = outcome(data)
    assert isinstance(found, Problem)
    assert found.reason is Reason.TOO_MANY_PIXELS


def test_the_sixteen_bit_png_is_whole() -> None:
    chart = bar_chart(random.Random(0), (120, 90))
    with Image.open(io.BytesIO(oddities.rgb16_png(chart))) as opened:
        assert opened.convert("RGB").tobytes() == chart.tobytes()
