"""What is inside uniform borders: exact boxes, no guess where a border fades out, and hashes that survive padding."""

from __future__ import annotations

import numpy as np
import pytest

from curation.decode import DecodeConfig, Problem, read_header
from curation.scorers.frame import content_box, content_share
from curation.scorers.screen import ScreenConfig, ScreenScorer
from tests.fixtures import images

SIDES = ((0, 30, 0, 30), (40, 0, 40, 0), (12, 25, 31, 18), (0, 40, 0, 0), (0, 0, 64, 0))
"""left, top, right, bottom in pixels."""


def padded(picture: np.ndarray, sides: tuple[int, int, int, int], color: int | tuple[int, ...]) -> np.ndarray:
    left, top, right, bottom = sides
    height, width = picture.shape[:2]
    result = np.empty((top + height + bottom, left + width + right, *picture.shape[2:]), np.uint8)
    result[:] = color
    result[top : top + height, left : left + width] = picture
    return result


def screen(data: bytes, trim: bool = True) -> dict:
    header = read_header(data, DecodeConfig())
    assert not isinstance(header, Problem)
    columns, pixels = ScreenScorer(ScreenConfig(trim_borders=trim)).measure(data, header)
    assert not isinstance(pixels, Problem)
    return columns


def distance(a: int, b: int) -> int:
    return (a ^ b).bit_count()


def textured(seed: int, width: int, height: int) -> np.ndarray:
    """Luma that no border can be mistaken for: its outermost rows and columns are bright and dark."""
    grey = images.texture(seed, width, height).mean(axis=2).astype(np.uint8)
    grey[::2, ::2] //= 2
    grey[1::2, 1::2] |= 128
    return grey


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("color", [0, 255, 90])
def test_borders_are_taken_off_exactly(sides: tuple[int, int, int, int], color: int) -> None:
    grey = padded(textured(1, 200, 160), sides, color)
    left, top, *_ = sides
    assert content_box(grey) == (left, top, left + 200, top + 160)


def test_sides_may_have_other_colors_and_noise() -> None:
    grey = padded(padded(textured(2, 200, 160), (0, 20, 0, 20), 0), (25, 0, 25, 0), 250)
    noise = np.random.default_rng(0).integers(-4, 5, grey.shape)
    assert content_box(np.clip(grey + noise, 0, 255).astype(np.uint8)) == (25, 20, 225, 180)


def test_images_without_borders_and_flat_ones_are_taken_whole() -> None:
    ramp = np.repeat(np.linspace(0, 255, 240)[:, None], 320, axis=1).astype(np.uint8)
    flat = np.full((240, 320), 128, np.uint8)
    for grey in (textured(3, 320, 240), ramp, ramp.T.copy(), flat, flat[:1], flat[:, :1]):
        assert content_box(grey) is None
        assert content_share(grey.shape, None) == 1.0


def test_a_border_that_fades_out_is_left_alone() -> None:
    sky = np.repeat(np.linspace(250, 130, 120)[:, None], 320, axis=1)
    grey = np.vstack([np.full((40, 320), 250.0), sky, textured(4, 320, 100)]).astype(np.uint8)
    assert content_box(grey) is None


def test_a_speck_on_paper_is_no_content() -> None:
    grey = np.full((240, 320), 255, np.uint8)
    grey[100:106, 100:106] = 0
    assert content_box(grey) is None
    grey[60:160, 100:180] = textured(5, 80, 100)
    assert content_box(grey) == (100, 60, 180, 160)


def test_a_border_counts_for_less_than_the_pixels_around_it() -> None:
    assert content_share((200, 100), (0, 20, 100, 180)) == 158 * 100 / 20_000
    assert content_share((200, 100), (10, 20, 90, 180)) == 158 * 78 / 20_000


@pytest.mark.parametrize("color", [(0, 0, 0), (255, 255, 255), (30, 60, 120)])
@pytest.mark.parametrize("sides", [(0, 140, 0, 140), (120, 0, 120, 0), (60, 110, 90, 40)])
def test_padded_copies_hash_as_their_original(color: tuple[int, ...], sides: tuple[int, int, int, int]) -> None:
    for seed in range(4):
        picture = images.texture(seed, 900, 640)
        original = screen(images.jpeg(picture))
        copy = screen(images.jpeg(padded(picture, sides, color), quality=70))
        assert original["content_share"] == 1
        area = 900 * 640 / (900 + sides[0] + sides[2]) / (640 + sides[1] + sides[3])
        assert 0.96 * area < copy["content_share"] < area
        assert distance(original["phash"], copy["phash"]) <= 4
        assert distance(original["phash_mirrored"], copy["phash_mirrored"]) <= 6
        untrimmed = screen(images.jpeg(padded(picture, sides, color), quality=70), trim=False)
        assert untrimmed["content_share"] == 1
        assert distance(original["phash"], untrimmed["phash"]) > 4


def test_borders_inside_of_borders_are_taken_off() -> None:
    """A line around an image on white paper, and a framed image in the bars of a letterbox."""
    inside = textured(5, 200, 160)
    lined = padded(padded(inside, (3, 3, 3, 3), 0), (40, 40, 40, 40), 255)
    assert content_box(lined) == (43, 43, 243, 203)
    barred = padded(padded(inside, (20, 20, 20, 20), 255), (0, 60, 0, 60), 0)
    assert content_box(barred) == (20, 80, 220, 240)
