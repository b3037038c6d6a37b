"""Persons on white paper are not flat; what is flat all over is, whatever its histogram."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from curation.decode import DecodeConfig, Problem, read_header
from curation.policy import Policy, PolicyConfig
from curation.scorers.flatness import local_entropy
from curation.scorers.screen import ScreenScorer
from pipeline.demo.scenes import _cut_out

LEAST = 3.0
"""bits: the default of `policy.low_entropy`."""


def screen(image: Image.Image, kind: str = "JPEG", **options: int) -> dict:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    data = buffer.getvalue()
    header = read_header(data, DecodeConfig())
    assert not isinstance(header, Problem)
    columns, pixels = ScreenScorer().measure(data, header)
    assert not isinstance(pixels, Problem)
    return columns


def dropped(columns: dict) -> bool:
    policy = Policy(PolicyConfig(), ["screen"])
    return policy.row_fails("screen", columns, ScreenScorer.columns)


def on_white(name: str, height: float, size: tuple[int, int] = (1200, 1200), left: float = 0.5) -> Image.Image:
    """A person cut out of a photograph, `height` of the canvas tall."""
    person = _cut_out(name)
    scale = height * size[1] / person.height
    person = person.resize((round(person.width * scale), round(person.height * scale)))
    canvas = Image.new("RGB", size, (255, 255, 255))
    canvas.paste(person, (round((size[0] - person.width) * left), size[1] - person.height - size[1] // 20), person)
    return canvas


SHOTS = (
    [(name, 0.6, (1200, 1200), 0.5) for name in ("astronaut", "hopper", "cameraman")]
    + [(name, 0.4, (1200, 1600), 0.5) for name in ("astronaut", "hopper", "cameraman")]
    + [(name, 0.25, (2000, 1500), 0.1) for name in ("astronaut", "hopper", "cameraman")]
    + [("astronaut", 0.2, (3000, 3000), 0.9)]
)


@pytest.mark.parametrize("shot", SHOTS)
def test_ten_of_ten_persons_on_white_pass(shot: tuple) -> None:
    columns = screen(on_white(*shot), quality=85)
    assert columns["entropy"] < LEAST < columns["local_entropy"]
    assert not dropped(columns)


def icon(smooth: bool) -> Image.Image:
    image = Image.new("RGB", (1024, 1024), (250, 250, 250))
    draw = ImageDraw.Draw(image)
    draw.ellipse((150, 150, 870, 870), fill=(200, 40, 40))
    draw.rectangle((450, 300, 570, 720), fill=(255, 255, 255))
    return image.resize((512, 512)) if smooth else image


def gradient(axis: int) -> Image.Image:
    ramp = np.broadcast_to(np.linspace(0, 255, 700)[(slice(None), None) if axis else (None, slice(None))], (700, 700))
    return Image.fromarray(ramp.astype(np.uint8)).convert("RGB")


def noisy(level: int, deviation: float, size: tuple[int, int] = (900, 1200)) -> Image.Image:
    noise = np.random.default_rng(0).normal(level, deviation, (*size, 1)).repeat(3, 2)
    return Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8))


FLAT = {
    "solid": (Image.new("RGB", (600, 600), (120, 90, 60)), {}),
    "white": (Image.new("RGB", (600, 600), (255, 255, 255)), {}),
    "gradient down": (gradient(0), {}),
    "gradient across": (gradient(1), {"quality": 60}),
    "icon": (icon(False), {}),
    "smooth icon": (icon(True), {"quality": 80}),
    "blank page, scanned": (noisy(240, 3, (2400, 1800)), {}),
    "near white, JPEG noise": (noisy(251, 2), {"quality": 30}),
}


@pytest.mark.parametrize("name", FLAT)
def test_flat_images_are_dropped(name: str) -> None:
    image, options = FLAT[name]
    columns = screen(image, **options)
    assert columns["local_entropy"] < LEAST
    assert dropped(columns)


def test_with_detail_it_is_never_less_than_the_entropy_given_and_without_it_is_0() -> None:
    random = np.random.default_rng(0)
    for shape in ((240, 320), (320, 24), (7, 9), (33, 160), (320, 320)):
        noise = random.integers(0, 256, shape, dtype=np.uint8)
        assert local_entropy(noise, 7.25) >= 7.25
        assert local_entropy(np.full(shape, 9, np.uint8), 0.0) == 0.0
    assert local_entropy(np.array([[5]], np.uint8), 0.0) == 0.0


def test_it_is_the_entropy_of_the_richest_tile() -> None:
    grey = np.full((160, 160), 255, np.uint8)
    tile = np.repeat(np.arange(100, dtype=np.uint8), 4) * 2
    grey[40:60, 80:100] = np.random.default_rng(0).permutation(tile).reshape(20, 20)
    assert local_entropy(grey, 0.5) == pytest.approx(np.log2(100))
