from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from curation.decode import DecodeConfig, Header, Problem
from curation.reasons import Reason
from curation.scorers.header import HeaderScorer
from tests.fixtures import images

SCORER = HeaderScorer()


@pytest.mark.parametrize("name", sorted(images.odd_images()))
def test_every_row_has_its_bytes_and_hash_and_fits_the_schema(name: str) -> None:
    data, _ = images.odd_images()[name]
    columns, header = SCORER.measure(data)
    assert set(columns) == set(HeaderScorer.columns)
    assert columns["bytes"] == len(data)
    assert columns["sha256"] == hashlib.sha256(data).hexdigest()
    for column, kind in HeaderScorer.columns.items():
        stored, value = pa.array([columns[column]], kind).to_pylist()[0], columns[column]
        assert stored == (pytest.approx(value) if isinstance(value, float) else value)
    if isinstance(header, Problem):
        assert columns["width"] is None
        assert columns["format"] is None


def test_size_is_that_of_the_upright_picture() -> None:
    columns, header = SCORER.measure(images.odd_images()["jpeg_exif_6_le"][0])
    assert isinstance(header, Header)
    assert header.stored_size == (256, 384)
    expected = {
        "format": "JPEG",
        "mode": "RGB",
        "width": 384,
        "height": 256,
        "short_side": 256,
        "long_side": 384,
        "aspect": 1.5,
        "orientation": 6,
        "frames": 1,
    }
    assert {name: columns[name] for name in expected} == expected


@pytest.mark.parametrize("name", ["gif_animated", "webp_animated", "apng", "tiff_pages"])
def test_frames_are_counted(name: str) -> None:
    assert SCORER.measure(images.odd_images()[name][0])[0]["frames"] == 3


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("jpeg_grey", "L"),
        ("jpeg_cmyk", "CMYK"),
        ("png_grey_16", "I;16"),
        ("png_rgb_16", "RGB;16"),
        ("png_rgba", "RGBA"),
        ("png_grey_alpha", "LA"),
        ("png_palette", "P"),
        ("webp_rgba", "RGBA"),
        ("tiff_lab", "LAB"),
        ("tiff_1bit", "1"),
    ],
)
def test_mode(name: str, mode: str) -> None:
    assert SCORER.measure(images.odd_images()[name][0])[0]["mode"] == mode


def test_fingerprint_follows_the_decode_policy() -> None:
    assert SCORER.fingerprint() == HeaderScorer(DecodeConfig()).fingerprint()
    assert SCORER.fingerprint() != HeaderScorer(DecodeConfig(work_side=320)).fingerprint()


def test_a_refused_picture_names_its_size() -> None:
    _, problem = SCORER.measure(images.odd_images()["bomb_png_20000"][0])
    assert isinstance(problem, Problem)
    assert problem.reason is Reason.TOO_MANY_PIXELS
    assert "20000 x 20000" in problem.detail
