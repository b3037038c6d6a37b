"""The size of AV1 frames, as encoders write it, and a property that lies about it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.codecs.avif import frame_size
from curation.decode import DecodeConfig, Decoded, Header, Problem, decode, read_header
from curation.reasons import Reason
from tests.fixtures import images


@pytest.mark.parametrize("size", [(64, 48), (301, 7), (1, 1), (1000, 640)])
@pytest.mark.parametrize("options", [{}, {"subsampling": "4:4:4"}, {"quality": 100}])
def test_the_size_is_that_of_the_image(size: tuple[int, int], options: dict[str, object]) -> None:
    data = images.encode(images.texture(3, *size), "AVIF", speed=10, **options)
    assert frame_size(data) == size
    header = read_header(data, DecodeConfig())
    assert isinstance(header, Header)
    assert isinstance(decode(data, header, DecodeConfig(), None), Decoded)


def test_an_image_that_says_to_be_smaller_than_its_frames_is_refused() -> None:
    data = bytearray(images.encode(images.texture(3, 600, 500), "AVIF", speed=10))
    place = data.index(b"ispe") + 8
    data[place : place + 8] = struct.pack(">II", 64, 64)
    found = read_header(bytes(data), DecodeConfig())
    assert isinstance(found, Problem)
    assert (found.reason, "600 x 500" in found.detail) == (Reason.CORRUPT, True)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_size_or_none(data: bytes) -> None:
    for start in (b"mdat", b"av1C\0\0\0\0", b"mdat\x12\x00\x0a\x0a", b"av1C\x81\0\0\0\x0a\x0b"):
        found = frame_size(start + data)
        assert found is None or min(found) >= 1
