"""What is put together again is the file less what says nothing about its pixels."""

from __future__ import annotations

import numpy as np
import pytest

from curation.codecs.base import Problem
from curation.codecs.jpeg_parts import Parts, altered, lengthened, next_marker, take_apart
from curation.reasons import Reason
from tests.fixtures import images

PLAIN = images.jpeg(images.reference(), subsampling=2)
PROGRESSIVE = images.jpeg(images.reference(), progressive=True)


def parts(data: bytes) -> Parts:
    found = take_apart(data)
    assert isinstance(found, Parts)
    return found


def test_a_plain_file_comes_back_byte_for_byte() -> None:
    for data in (PLAIN, PROGRESSIVE, images.jpeg(images.reference(), restart_marker_blocks=5)):
        assert parts(data).joined() == data
        assert parts(data + b"\xff\xd9 and more").joined() == data
        assert parts(data[:-2]).joined() == data[:-2]


def test_what_is_left_out_and_what_is_kept() -> None:
    odd = images.insert_jpeg_segment(PLAIN, 0xFE, b"comment")
    odd = images.insert_jpeg_segment(odd, 0xE2, b"ICC_PROFILE\x00\x07\x01")
    odd = images.insert_jpeg_segment(odd, 0xE1, images.exif_block(6))
    for marker in (b"\xff\xdb", b"\xff\xc0", b"\xff\xda"):
        odd = odd.replace(marker, b"\x00\x0a" + marker, 1)
    assert parts(odd).joined() == PLAIN
    adobe = b"Adobe\x00\x64\x00\x00\x00\x00"
    for components, given, kept in (
        (3, 0, 0),
        (3, 1, 1),
        (3, 2, 1),
        (3, 9, 1),
        (4, 0, 0),
        (4, 2, 2),
        (4, 1, 2),
        (4, 9, 2),
    ):
        picture = np.zeros((8, 8, 3), np.uint8)
        data = images.jpeg(images.Image.fromarray(picture).convert("CMYK" if components == 4 else "RGB"))
        joined = parts(images.insert_jpeg_segment(data, 0xEE, adobe + bytes([given]))).joined()
        assert joined.index(adobe + bytes([kept])) == 6


def test_the_work_of_a_file_is_the_blocks_of_its_scans() -> None:
    assert parts(PLAIN).block_visits() == 24 * 16 * 6
    assert parts(PLAIN).units(parts(PLAIN).scans[0]) == (24, 16)
    assert len(parts(PROGRESSIVE).scans) == 10
    assert parts(PROGRESSIVE).block_visits() == 48 * 32 * (2 * 3 + 8)


def test_restart_intervals_are_counted_and_in_order() -> None:
    data = images.jpeg(images.reference(), subsampling=2, restart_marker_rows=1)
    assert parts(data).missing_intervals() is None
    last = data.rindex(b"\xff\xd6")
    for damaged, reason in (
        (data[:last] + b"\xff\xd9", Reason.TRUNCATED),
        (data[:last] + b"\xff\xd5" + data[last + 2 :], Reason.CORRUPT),
        (data[:last] + b"\xff\xd6\xff\xd7" + data[last:], Reason.CORRUPT),
    ):
        problem = parts(damaged).missing_intervals()
        assert isinstance(problem, Problem)
        assert problem.reason is reason
    assert parts(data[:-2] + b"\xff\xd7" + data[-2:]).missing_intervals() is None


@pytest.mark.parametrize(
    ("coded", "longer", "changed"),
    [
        (b"abc", [b"abc", b""], b"a\x37\x36"),
        (b"abc\xff\xff", [b"abc", b""], b"a\x37\x36"),
        (b"ab\xff\xd0cd", [b"ab", b"\xff\xd0cd", b""], b"ab\xff\xd0\x36\x31"),
        (b"ab\xff\x00c", [b"ab\xff\x00c", b""], b"ab\x55\x36"),
        (b"a\xaa\xff", [b"a\xaa", b""], b"\x34\x33"),
    ],
)
def test_probes_touch_coded_bytes_only(coded: bytes, longer: list[bytes], changed: bytes) -> None:
    probe = bytes(b"".join(lengthened(memoryview(b""))))
    assert len(probe) == 64
    assert b"\xff" not in probe
    assert b"".join(lengthened(memoryview(coded))) == probe.join(longer)
    assert b"".join(altered(memoryview(coded), 2)) == changed


def test_next_marker() -> None:
    assert next_marker(b"ab\xff\xd9", 0) == (0xD9, 4)
    assert next_marker(b"ab\xff\xff\xff\xd9", 3) == (0xD9, 6)
    assert next_marker(b"\xff\x00\xff\xda", 0) == (0, 2)
    for data in (b"", b"abc", b"ab\xff", b"\xff\xff"):
        assert next_marker(data, 0) == (-1, len(data))
