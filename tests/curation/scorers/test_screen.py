from __future__ import annotations

import cv2
import imagehash
import numpy as np
import pyarrow as pa
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image, ImageEnhance

from curation.decode import DecodeConfig, Problem, decode, grey_thumbnail, read_header
from curation.reasons import Reason
from curation.scorers.screen import (
    ScreenConfig,
    ScreenScorer,
    is_degenerate,
    measure_pixels,
    perceptual_hash,
    perceptual_hashes,
)
from tests.fixtures import images

DECODE = DecodeConfig()
SCORER = ScreenScorer(ScreenConfig(), DECODE)


def screen(data: bytes) -> dict:
    header = read_header(data, DECODE)
    assert not isinstance(header, Problem), header
    columns, pixels = SCORER.measure(data, header)
    assert not isinstance(pixels, Problem), pixels
    return columns


def distance(a: int, b: int) -> int:
    return (a ^ b).bit_count()


def reference_hash(thumbnail: np.ndarray) -> int:
    return int(str(imagehash.phash(Image.fromarray(thumbnail))), 16)


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.uint8, (32, 32), elements=st.integers(0, 255), fill=st.integers(0, 255)))
def test_hash_equals_imagehash(thumbnail: np.ndarray) -> None:
    assert perceptual_hash(thumbnail) == reference_hash(thumbnail)


def test_hash_equals_imagehash_where_coefficients_tie() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        half = random.integers(0, 256, (32, 16), dtype=np.uint8)
        for thumbnail in (np.hstack([half, half[:, ::-1]]), np.tile(half[:, :1], (1, 32)), half // 255 * np.uint8(9)):
            square = np.resize(thumbnail, (32, 32)).astype(np.uint8)
            assert perceptual_hash(square) == reference_hash(square)


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.uint8, (32, 32), elements=st.integers(0, 255), fill=st.integers(0, 255)))
def test_mirrored_hash_is_that_of_the_mirrored_thumbnail(thumbnail: np.ndarray) -> None:
    plain, mirrored = perceptual_hashes(thumbnail)
    turned = np.ascontiguousarray(thumbnail[:, ::-1])
    assert plain == reference_hash(thumbnail)
    expected = reference_hash(turned)
    # Only a coefficient within rounding of the median may fall on the other side of it.
    low = scipy.fft.dctn(turned.astype(float))[:8, :8].ravel()
    near = np.abs(low - np.median(low)) <= 1e-9 * np.abs(low).max()
    differs = np.array([int(bit) for bit in f"{mirrored ^ expected:064b}"], bool)
    assert not (differs & ~near).any()


def test_mirrored_hashes_of_detailed_thumbnails_are_exact() -> None:
    random = np.random.default_rng(0)
    thumbnails = [random.integers(0, 256, (32, 32), dtype=np.uint8) for _ in range(300)]
    thumbnails += [grey_thumbnail(images.texture(seed, 320, 200)) for seed in range(60)]
    wrong = [
        distance(perceptual_hashes(thumbnail)[1], reference_hash(np.ascontiguousarray(thumbnail[:, ::-1])))
        for thumbnail in thumbnails
    ]
    assert max(wrong) <= 2
    assert sum(bits > 0 for bits in wrong) <= 2


def test_a_mirrored_copy_is_near_by_the_mirrored_hash_only() -> None:
    for seed in range(8):
        picture = images.texture(seed, 700, 480)
        first = screen(images.encode(picture, "PNG"))
        copy = screen(images.jpeg(np.ascontiguousarray(picture[:, ::-1]), quality=60))
        assert distance(first["phash"], copy["phash_mirrored"]) <= 4
        assert distance(first["phash_mirrored"], copy["phash"]) <= 4
        assert distance(first["phash"], copy["phash"]) >= 14


@pytest.mark.parametrize("name", sorted(images.truths()))
def test_every_decodable_odd_image_is_measured(name: str) -> None:
    columns = screen(images.odd_images()[name][0])
    assert set(columns) == set(ScreenScorer.columns)
    for column, kind in ScreenScorer.columns.items():
        assert pa.array([columns[column]], kind)[0].is_valid
    for column in ("brightness", "contrast", "dark_share", "bright_share"):
        assert 0 <= columns[column] <= 1
    assert 0 <= columns["entropy"] <= 8
    assert columns["sharpness"] >= 0


def test_the_hash_is_taken_of_the_decoded_thumbnail() -> None:
    data = images.jpeg(images.texture(2, 1000, 700))
    header = read_header(data, DECODE)
    assert not isinstance(header, Problem)
    columns, pixels = SCORER.measure(data, header)
    assert isinstance(pixels, np.ndarray)
    assert pixels.shape == (448, 640, 3)
    assert distance(columns["phash"], reference_hash(grey_thumbnail(pixels))) <= 2


def test_copies_stay_close_and_other_pictures_do_not() -> None:
    originals = [images.texture(seed, 1200, 801) for seed in range(8)]
    hashes = []
    for picture in originals:
        first = screen(images.encode(picture, "PNG"))["phash"]
        hashes.append(first)
        source = Image.fromarray(picture)
        copies = {
            "half": images.jpeg(source.resize((600, 400), Image.Resampling.BICUBIC)),
            "odd size": images.encode(source.resize((701, 467), Image.Resampling.LANCZOS), "WEBP", quality=80),
            "thumbnail": images.jpeg(source.resize((200, 133), Image.Resampling.BICUBIC)),
            "quality 30": images.jpeg(source, quality=30, subsampling=2),
            "grey": images.jpeg(source.convert("L")),
            "brighter": images.jpeg(ImageEnhance.Brightness(source).enhance(1.1)),
            "turned by EXIF": images.jpeg(images.orient(picture, 6), exif=images.exif_block(6)),
        }
        for name, data in copies.items():
            assert distance(screen(data)["phash"], first) <= 6, name
    for i, a in enumerate(hashes):
        for b in hashes[:i]:
            assert distance(a, b) >= 14


def test_degenerate_rule() -> None:
    hashes = np.array(
        [0, 1 << 63, 2**64 - 1, 0x8080808080808080, 0x0F0F0F0F0F0F0F0F, 0x1FF, 2**64 - 1 - 0xFF], np.uint64
    )
    assert is_degenerate(hashes, np.full(7, 0.2)).tolist() == [True, True, True, True, False, False, True]
    good = np.full(4, 0x0F0F0F0F0F0F0F0F, np.uint64)
    assert is_degenerate(good, np.array([0.0199, 0.02, np.nan, 0.5])).tolist() == [True, False, True, False]
    assert is_degenerate(good, np.full(4, 0.3), ScreenConfig(degenerate_contrast=0.31)).all()
    assert is_degenerate(np.empty(0, np.uint64), np.empty(0)).shape == (0,)


@pytest.mark.parametrize("name", ["one_pixel", "thin", "solid", "bomb_png_9500"])
def test_flat_pictures_are_degenerate(name: str) -> None:
    assert screen(images.odd_images()[name][0])["phash_degenerate"] is True


def test_pictures_with_detail_are_not_degenerate() -> None:
    for seed in range(20):
        columns = screen(images.jpeg(images.texture(seed)))
        assert columns["phash_degenerate"] is False
        assert columns["phash"].bit_count() == columns["phash_mirrored"].bit_count() == 32


def test_gradients_are_degenerate() -> None:
    ramp = np.tile(np.linspace(0, 255, 400).astype(np.uint8), (300, 1))
    for grey in (ramp, ramp[:, ::-1]):
        assert screen(images.encode(grey, "PNG"))["phash_degenerate"] is True


def test_exposure_has_known_values() -> None:
    half = np.zeros((200, 300, 3), np.uint8)
    half[:, 150:] = 255
    columns = measure_pixels(half, ScreenConfig())
    expected = {
        "brightness": 0.5,
        "contrast": 0.5,
        "entropy": 1.0,
        "dark_share": 0.5,
        "bright_share": 0.5,
        "colourfulness": 0.0,
    }
    assert {name: columns[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    flat = measure_pixels(np.full((50, 60, 3), 128, np.uint8), ScreenConfig())
    assert flat["entropy"] == 0
    assert flat["sharpness"] == 0
    assert flat["brightness"] == pytest.approx(128 / 255)


def test_colourfulness_is_hasler_and_suesstrunks() -> None:
    picture = images.texture(11, 150, 120)
    red, green, blue = (picture[..., i].astype(float) for i in range(3))
    rg, yb = red - green, (red + green) / 2 - blue
    truth = np.hypot(rg.std(), yb.std()) + 0.3 * np.hypot(rg.mean(), yb.mean())
    assert measure_pixels(picture, ScreenConfig())["colourfulness"] == pytest.approx(truth, rel=1e-6)


def test_sharpness_is_the_laplacian_variance_and_falls_with_blur() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (480, 640), dtype=np.uint8)
    picture = np.repeat(noise[..., None], 3, axis=2)
    values = []
    for sigma in (0.0, 1.0, 2.0, 4.0):
        blurred = picture if sigma == 0 else cv2.GaussianBlur(picture, (0, 0), sigma)
        values.append(measure_pixels(blurred, ScreenConfig())["sharpness"])
        padded = np.pad(blurred[..., 0].astype(int), 1, mode="reflect")
        corners = padded[:-2, :-2] + padded[:-2, 2:] + padded[2:, :-2] + padded[2:, 2:]
        laplacian = 2 * corners - 8 * padded[1:-1, 1:-1]
        assert values[-1] == pytest.approx(laplacian.var() / 16, rel=1e-6)
    assert values == sorted(values, reverse=True)


def test_sharpness_does_not_depend_on_the_size_of_a_large_picture() -> None:
    source = np.random.default_rng(2).integers(0, 256, (400, 640), dtype=np.uint8)
    shapes = [cv2.resize(source, (640 * k, 400 * k), interpolation=cv2.INTER_NEAREST) for k in (1, 2, 4)]
    values = [screen(images.encode(picture, "PNG"))["sharpness"] for picture in shapes]
    assert max(values) / min(values) < 1.05


def test_a_problem_leaves_every_column_empty() -> None:
    data, reason = images.odd_images()["jpeg_cut_half"]
    header = read_header(data, DECODE)
    assert not isinstance(header, Problem)
    columns, problem = SCORER.measure(data, header)
    assert columns == dict.fromkeys(ScreenScorer.columns)
    assert isinstance(problem, Problem)
    assert problem.reason is reason is Reason.TRUNCATED


def test_the_same_bytes_give_the_same_columns() -> None:
    data = images.odd_images()["jpeg_420"][0]
    assert screen(data) == screen(data)
    header = read_header(data, DECODE)
    assert not isinstance(header, Problem)
    assert isinstance(decode(data, header, DECODE, 640).scale, float)  # type: ignore[union-attr]


def test_fingerprint_follows_the_configuration() -> None:
    prints = {
        ScreenScorer().fingerprint(),
        ScreenScorer(ScreenConfig(degenerate_bits=9)).fingerprint(),
        ScreenScorer(decode=DecodeConfig(work_side=512)).fingerprint(),
    }
    assert len(prints) == 3
    assert ScreenScorer().fingerprint() == SCORER.fingerprint()
