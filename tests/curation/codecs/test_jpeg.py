"""Whole JPEGs are kept whatever their headers look like, and no loss hides behind what is harmless."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from curation.codecs import jpeg
from curation.decode import DecodeConfig, Decoded, Header, Problem, decode, decode_memory, read_header
from curation.reasons import Reason
from tests.curation.test_decode import _MEMORY, ROOT
from tests.fixtures import images

CONFIG = DecodeConfig()
PLAIN = images.jpeg(images.reference(), subsampling=2, comment=b"hello")
RESTARTS = images.jpeg(images.reference(), subsampling=2, restart_marker_blocks=7)
PROGRESSIVE = images.jpeg(images.reference(), progressive=True)
GREY = images.jpeg(images.reference()[..., 0], restart_marker_blocks=50)
CMYK = images.jpeg(Image.fromarray(images.reference()).convert("CMYK"))
BASES = {"plain": PLAIN, "restarts": RESTARTS, "progressive": PROGRESSIVE, "grey": GREY, "cmyk": CMYK}


def take(data: bytes, max_side: int | None = None) -> Decoded | Problem:
    header = read_header(data, CONFIG)
    return header if isinstance(header, Problem) else decode(data, header, CONFIG, max_side)


def pixels(data: bytes) -> npt.NDArray[np.uint8]:
    result = take(data)
    assert isinstance(result, Decoded), result
    return result.pixels


def reason(data: bytes, max_side: int | None = None) -> Reason | None:
    result = take(data, max_side)
    return result.reason if isinstance(result, Problem) else None


def of_pillow(data: bytes) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def first_scan(data: bytes) -> int:
    return data.index(b"\xff\xda")


def before(marker: bytes, stray: bytes) -> Callable[[bytes], bytes]:
    """Insert stray bytes before the first occurrence of a marker."""
    return lambda data: data.replace(marker, stray + marker, 1)


def segment(marker: int, body: bytes) -> Callable[[bytes], bytes]:
    return lambda data: images.insert_jpeg_segment(data, marker, body)


def patched(name: bytes, offset: int, value: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = data.index(name) + offset
        return data[:at] + bytes([value]) + data[at + 1 :]

    return change


def profile(number: int, count: int) -> Callable[[bytes], bytes]:
    return segment(0xE2, b"ICC_PROFILE\x00" + bytes([number, count]) + bytes(300))


def adobe(transform: int) -> Callable[[bytes], bytes]:
    body = b"Adobe\x00\x64\x00\x00\x00\x00" + bytes([transform])

    def change(data: bytes) -> bytes:
        """In place of the JFIF or Adobe segment: with JFIF, Adobe's is not asked."""
        return segment(0xEE, body)(data[:2] + data[4 + int.from_bytes(data[4:6], "big") :])

    return change


ODDITIES: dict[str, Callable[[bytes], bytes]] = {
    "zeros_before_tables": before(b"\xff\xdb", bytes(3)),
    "many_zeros_before_tables": before(b"\xff\xdb", bytes(5000)),
    "line_break_before_tables": before(b"\xff\xdb", b"\r\n"),
    "two_bytes_before_scan": before(b"\xff\xda", b"\x00\x00"),
    "stray_everywhere": lambda data: (
        re.sub(rb"\xff[\xdb\xc0\xc2]", lambda found: b"\x0a" + found[0], data[: first_scan(data)])
        + data[first_scan(data) :]
    ),
    "fill_bytes_before_tables": before(b"\xff\xdb", b"\xff" * 9),
    "restart_markers_before_tables": before(b"\xff\xdb", b"\xff\xd0\xff\xd7"),
    "profile_number_too_large": profile(3, 2),
    "profile_number_zero": profile(0, 1),
    "profile_part_missing": profile(1, 2),
    "profile_parts_twice": lambda data: profile(1, 1)(profile(1, 1)(data)),
    "comment_of_64_kb": segment(0xFE, bytes(65533)),
    "thumbnail_sizes_lie": segment(0xE0, b"JFIF\x00\x01\x01\x00\x00\x01\x00\x01\xff\xff"),
    "unknown_extension": segment(0xE0, b"JFXX\x00\x77" + bytes(9)),
    "data_after_the_end": lambda data: data + b"\x00garbage\xff\xda\xff\xd8" * 200,
    "end_marker_twice": lambda data: data + b"\xff\xd9\xff\xd9",
    "another_image_after_the_end": lambda data: data + PROGRESSIVE,
}
YCC_ODDITIES = {
    "jfif_revision_3": patched(b"JFIF", 5, 3),
    "jfif_revision_0": patched(b"JFIF", 5, 0),
    "adobe_transform_2": adobe(2),
    "adobe_transform_255": adobe(255),
}


def cut(share: float, end: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        start = first_scan(data)
        return data[: start + int(share * (len(data) - start))].rstrip(b"\xff") + end

    return change


def hole(data: bytes) -> bytes:
    """Two fifths of the coded data are missing in the middle."""
    start, size = first_scan(data), len(data) - first_scan(data)
    return data[: start + size * 3 // 10].rstrip(b"\xff") + data[start + size * 7 // 10 :]


LOSSES: dict[str, tuple[Callable[[bytes], bytes], tuple[Reason, ...]]] = {
    "end_marker_missing": (lambda data: data[: data.rindex(b"\xff\xd9")], (Reason.TRUNCATED,)),
    "cut": (cut(0.6, b""), (Reason.TRUNCATED,)),
    "cut_then_end": (cut(0.6, b"\xff\xd9"), (Reason.TRUNCATED, Reason.CORRUPT)),
    "hole": (hole, (Reason.TRUNCATED, Reason.CORRUPT)),
}


def odd_cases() -> list[tuple[str, str]]:
    return [
        (base, name) for base in BASES for name in (*ODDITIES, *(YCC_ODDITIES if base not in ("grey", "cmyk") else ()))
    ]


@pytest.mark.parametrize(("base", "oddity"), odd_cases())
def test_what_is_harmless_changes_no_pixel_and_hides_no_loss(base: str, oddity: str) -> None:
    change = {**ODDITIES, **YCC_ODDITIES}[oddity]
    odd = change(BASES[base])
    assert np.array_equal(pixels(odd), pixels(BASES[base]))
    if base != "cmyk":  # Pillow rounds the conversion from CMYK otherwise
        assert np.array_equal(pixels(odd), of_pillow(odd))
    for loss, (damage, reasons) in LOSSES.items():
        damaged = damage(BASES[base])
        assert reason(damaged) in reasons, loss
        if not oddity.endswith(("the_end", "twice")) or loss in ("cut_then_end", "hole"):
            assert reason(change(damaged)) == reason(damaged), loss


def test_markers_that_readers_refuse_are_corrupt() -> None:
    for stray in (b"\xff\x01", b"\xff\x5a", b"\xff\xd8"):
        assert reason(before(b"\xff\xdb", stray)(PLAIN)) is Reason.CORRUPT
        with pytest.raises((OSError, SyntaxError)):
            of_pillow(before(b"\xff\xdb", stray)(PLAIN))


def coded(data: bytes) -> list[tuple[int, int]]:
    """Start and end of the coded data of each scan."""
    found, position = [], first_scan(data)
    while data[position : position + 2] != b"\xff\xd9":
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if data[position + 1] == 0xDA:
            stop = re.compile(rb"\xff[^\x00\xd0-\xd7]").search(data, end)
            assert stop is not None
            found.append((end, stop.start()))
            end = stop.start()
        position = end
    return found


def inserted(data: bytes, places: list[int], stray: bytes) -> bytes:
    for place in sorted(places, reverse=True):
        data = data[:place] + stray + data[place:]
    return data


@pytest.mark.parametrize("count", [1, 2, jpeg.MAX_STRAY_BYTES])
def test_stray_bytes_after_coded_data_are_padding_up_to_a_bound(count: int) -> None:
    ends = [end for _, end in coded(PROGRESSIVE)]
    assert len(ends) == 10
    restarts = [found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", RESTARTS)]
    assert len(restarts) > 50
    for data, sets in (
        (PROGRESSIVE, [ends, ends[:1], ends[4:6]]),
        (RESTARTS, [restarts, restarts[3:4], restarts[-1:]]),
    ):
        for places in sets:
            odd = inserted(data, places, bytes(count))
            assert np.array_equal(pixels(odd), of_pillow(data))
            assert np.array_equal(of_pillow(odd), of_pillow(data))
            assert reason(odd, max_side=64) is None
    for data, places in ((PROGRESSIVE, ends[:1]), (PROGRESSIVE, ends), (RESTARTS, restarts), (PLAIN, [len(PLAIN) - 2])):
        read_ahead = 8  # which libjpeg does not count
        assert reason(inserted(data, places, bytes(jpeg.MAX_STRAY_BYTES + read_ahead + count))) is Reason.CORRUPT


def test_padding_hides_no_loss_in_another_scan_or_interval() -> None:
    scans = coded(PROGRESSIVE)
    for index in range(1, len(scans)):
        start, end = scans[index]
        short = PROGRESSIVE[: start + (end - start) // 2].rstrip(b"\xff") + PROGRESSIVE[end:]
        odd = inserted(short, [scans[0][1]], b"\x00")
        assert reason(odd) in (Reason.TRUNCATED, Reason.CORRUPT), index
    restarts = [found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", RESTARTS)]
    for index in range(1, len(restarts)):
        start, end = restarts[index - 1] + 2, restarts[index]
        short = RESTARTS[: start + (end - start) // 2].rstrip(b"\xff") + RESTARTS[end:]
        assert reason(inserted(short, [restarts[0]], b"\x00")) in (Reason.TRUNCATED, Reason.CORRUPT), index
        gone = RESTARTS[: start - 2] + RESTARTS[end:]
        assert reason(inserted(gone, [restarts[0]], b"\x00")) in (Reason.TRUNCATED, Reason.CORRUPT), index


def test_parameters_that_a_sequential_scan_does_not_have() -> None:
    odd = bytearray(PLAIN)
    at = first_scan(PLAIN) + 11
    assert odd[at : at + 3] == b"\x00\x3f\x00"
    for values in (b"\x00\x00\x00", b"\x01\x3f\x00", b"\x00\x3f\x12"):
        odd[at : at + 3] = values
        assert np.array_equal(pixels(bytes(odd)), of_pillow(PLAIN))
        assert np.array_equal(of_pillow(bytes(odd)), of_pillow(PLAIN))
        for damage, reasons in LOSSES.values():
            assert reason(damage(bytes(odd))) in reasons


def test_scans_that_do_not_follow_from_one_another() -> None:
    """The first scan, of DC, comes again after the second: an inconsistent progression with nothing missing."""
    (_, first), (start, second) = coded(PROGRESSIVE)[:2]
    again = PROGRESSIVE[PROGRESSIVE.index(b"\xff\xda") : first]
    tables = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xc4", 0, first_scan(PROGRESSIVE)) : first_scan(PROGRESSIVE)]
    odd = PROGRESSIVE[:first] + again + PROGRESSIVE[first:]
    assert np.array_equal(pixels(odd), of_pillow(PROGRESSIVE))
    assert np.array_equal(of_pillow(odd), of_pillow(PROGRESSIVE))
    assert start < second
    assert tables
    for name in ("cut", "cut_then_end", "end_marker_missing"):
        assert reason(LOSSES[name][0](odd)) is Reason.TRUNCATED, name


def components(factors: list[int], sizes: list[tuple[int, int]]) -> bytes:
    """A sequential JPEG of one scan for each component, with sampling factors 0xhv and component sizes as given."""
    planes = [images.jpeg(images.texture(seed, *size)[..., 0]) for seed, size in enumerate(sizes)]
    frame = planes[0].index(b"\xff\xc0")
    height, width = planes[0][frame + 5 : frame + 7], planes[0][frame + 7 : frame + 9]
    listed = b"".join(bytes((number, factor, 0)) for number, factor in enumerate(factors, 1))
    head = planes[0][20:frame] + b"\xff\xc0" + bytes((0, 8 + 3 * len(factors), 8))
    tables = planes[0][planes[0].index(b"\xff\xc4") : first_scan(planes[0])]
    scans = b"".join(
        b"\xff\xda\x00\x08\x01"
        + bytes((number,))
        + b"\x00\x00\x3f\x00"
        + plane[coded(plane)[0][0] : coded(plane)[0][1]]
        for number, plane in enumerate(planes, 1)
    )
    return b"\xff\xd8" + head + height + width + bytes((len(factors),)) + listed + tables + scans + b"\xff\xd9"


def blocks(factors: list[int], columns: int, rows: int, interval: int = 0) -> bytes:
    """A sequential JPEG of one scan whose blocks are of random brightness: a DC difference and the end of the block,
    coded by hand with the usual tables."""
    random = np.random.default_rng(5)
    data = images.jpeg(np.zeros((16, 16, 3), np.uint8))
    frame, scan = data.index(b"\xff\xc0"), first_scan(data)
    across, down = max(f >> 4 for f in factors), max(f & 15 for f in factors)
    size = (8 * down * rows).to_bytes(2, "big") + (8 * across * columns).to_bytes(2, "big")
    listed = b"".join(bytes((number, factor, 0)) for number, factor in enumerate(factors, 1))
    head = data[: frame + 5] + size + b"\x03" + listed + data[frame + 19 : scan]
    restart = b"\xff\xdd\x00\x04" + interval.to_bytes(2, "big") if interval else b""
    codes = ["00", "010", "011", "100", "101", "110"]
    pieces = []
    units = columns * rows
    for start in range(0, units, interval or units):
        bits = ""
        for _ in range(min(interval or units, units - start) * sum((f >> 4) * (f & 15) for f in factors)):
            length = int(random.integers(0, 6))
            bits += codes[length] + "".join(str(bit) for bit in random.integers(0, 2, length)) + "1010"
        bits += "1" * (-len(bits) % 8)
        pieces.append(int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00"))
    body = b"".join(
        piece + (bytes((0xFF, 0xD0 + index % 8)) if index < len(pieces) - 1 else b"")
        for index, piece in enumerate(pieces)
    )
    header = b"\xff\xda\x00\x0c\x03\x01\x00\x02\x00\x03\x00\x00\x3f\x00"
    return head + restart + header + body + b"\xff\xd9"


ODD_SAMPLING = {
    "3x1": blocks([0x31, 0x11, 0x11], 9, 14),
    "3x1_restarts": blocks([0x31, 0x11, 0x11], 9, 14, interval=9),
    "2x2_1x2_1x1": blocks([0x22, 0x12, 0x11], 12, 12),
    "1x2_2x1_1x1": blocks([0x12, 0x21, 0x11], 12, 12),
    "scans_3x1": components([0x31, 0x11, 0x11], [(384, 256), (128, 256), (128, 256)]),
    "scans_2x2_everywhere": components([0x22, 0x22, 0x22], [(384, 256)] * 3),
}


@pytest.mark.parametrize("name", sorted(ODD_SAMPLING))
def test_odd_sampling_is_kept_when_it_is_whole_and_only_then(name: str) -> None:
    data = ODD_SAMPLING[name]
    assert np.array_equal(pixels(data), of_pillow(data))
    for side in (None, 64):
        assert reason(data, side) is None
        assert reason(before(b"\xff\xc0", b"\r\n")(data), side) is None
        assert reason(data[:-2], side) is Reason.TRUNCATED
        for share in np.linspace(0.05, 0.97, 24):
            for end in (b"", b"\xff\xd9"):
                assert reason(cut(share, end)(data), side) in (Reason.TRUNCATED, Reason.CORRUPT), share
    assert reason(hole(data)) in (Reason.TRUNCATED, Reason.CORRUPT)
    assert reason(data[:-3].rstrip(b"\xff") + b"\xff\xd9") in (Reason.TRUNCATED, None)  # a byte, perhaps of padding
    if "scans" not in name:
        assert reason(data[:-2] + bytes(5) + data[-2:]) is None
        assert reason(data[:-2] + bytes(40) + data[-2:]) is Reason.CORRUPT


def test_one_by_four_sampling_is_usual() -> None:
    data = blocks([0x14, 0x11, 0x11], 30, 8)
    assert np.array_equal(pixels(data), of_pillow(data))
    for share in np.linspace(0.05, 0.97, 24):
        for end in (b"", b"\xff\xd9"):
            assert reason(cut(share, end)(data)) in (Reason.TRUNCATED, Reason.CORRUPT)


def test_stray_bytes_between_sequential_scans() -> None:
    data = components([0x11, 0x11, 0x11], [(384, 256)] * 3)
    ends = [end for _, end in coded(data)]
    assert len(ends) == 3
    for count in (1, 2, 7, jpeg.MAX_STRAY_BYTES):
        assert np.array_equal(pixels(inserted(data, ends, bytes(count))), of_pillow(data))
    for start, end in coded(data)[1:]:
        short = data[: start + (end - start) // 2].rstrip(b"\xff") + data[end:]
        assert reason(inserted(short, ends[:1], b"\x00")) in (Reason.TRUNCATED, Reason.CORRUPT)


def repeated(data: bytes, scan: int, count: int) -> bytes:
    """One scan of a progressive JPEG, again and again."""
    starts = [match.start() for match in re.finditer(rb"\xff\xda", data)]
    end = coded(data)[scan][1]
    return data[:end] + data[starts[scan] : end] * count + data[end:]


def test_scans_times_blocks_are_bounded_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is told from the headers: the same file passes and does not when the bound moves by one block."""
    data = images.jpeg(images.reference(), progressive=True, subsampling=2)
    luma, chroma = 48 * 32, 24 * 16
    default_script = 2 * (luma + 2 * chroma) + 4 * luma + 4 * chroma
    monkeypatch.setattr(jpeg, "MAX_BLOCK_VISITS", default_script)
    assert reason(data) is None
    monkeypatch.setattr(jpeg, "MAX_BLOCK_VISITS", default_script - 1)
    result = take(data)
    assert isinstance(result, Problem)
    assert result.reason is Reason.TOO_MANY_PIXELS
    assert f"10 scans go over {default_script} blocks" in result.detail


def test_the_largest_image_of_the_usual_script_is_within_the_bound() -> None:
    blocks_of_luma = CONFIG.max_pixels / 64
    assert 8 * blocks_of_luma < jpeg.MAX_BLOCK_VISITS
    started = time.process_time()
    bomb = images.jpeg_header_lie(
        repeated(images.encode(np.zeros((64, 64, 3), np.uint8), "JPEG", progressive=True), 9, 88), 9000, 9000
    )
    assert reason(bomb, max_side=640) is Reason.TOO_MANY_PIXELS
    assert time.process_time() - started < 2


def test_scans_are_counted_where_they_are() -> None:
    """An end of scan in what follows the image is none (video behind a photograph)."""
    data = PROGRESSIVE + b"\xff\xda" * 5000
    assert np.array_equal(pixels(data), of_pillow(PROGRESSIVE))
    assert reason(repeated(PROGRESSIVE, 0, 89)) is None
    assert reason(repeated(PROGRESSIVE, 0, 91)) is Reason.CORRUPT


@pytest.mark.parametrize("filler", [b"\xff\xfe\x00\x02", b"\xff\xd0", b"\xff\x00"])
def test_segments_are_bounded(filler: bytes) -> None:
    place = PLAIN.index(b"\xff\xdb")
    usual = PLAIN[:place] + filler * 60_000 + PLAIN[place:]
    many = PLAIN[:place] + filler * 2_000_000 + PLAIN[place:]
    between = (
        PROGRESSIVE[: coded(PROGRESSIVE)[0][1]]
        + b"\xff\xfe\x00\x02" * 2_000_000
        + PROGRESSIVE[coded(PROGRESSIVE)[0][1] :]
    )
    assert np.array_equal(pixels(usual), of_pillow(PLAIN))
    started = time.process_time()
    assert reason(many) is Reason.CORRUPT
    assert reason(between) is Reason.CORRUPT
    assert time.process_time() - started < 2


def test_fill_and_stray_bytes_are_passed_at_the_speed_of_a_search() -> None:
    place = PLAIN.index(b"\xff\xdb")
    started = time.process_time()
    for filler in (bytes(20_000_000), b"\xff" * 20_000_000, bytes(1) + b"\xff" * 20_000_000 + bytes(1)):
        # Not shown to Pillow, which would take a minute to pass them one by one, as would every reader.
        assert reason(PLAIN[:place] + filler + PLAIN[place:]) is Reason.UNREADABLE
        assert np.array_equal(pixels(PLAIN[:place] + filler[:60_000] + PLAIN[place:]), of_pillow(PLAIN))
    assert time.process_time() - started < 4


def test_a_scan_of_every_component_is_asked_for() -> None:
    data = components([0x11, 0x11, 0x11], [(384, 256)] * 3)
    for _, end in coded(data)[:2]:
        assert reason(data[:end] + b"\xff\xd9") is Reason.TRUNCATED


def test_memory_counts_profiles_copies_and_images_at_full_size() -> None:
    def need(data: bytes, side: int | None = None) -> int:
        header = read_header(data, CONFIG)
        assert isinstance(header, Header)
        return decode_memory(header, side)

    for name in ("icc", "stray", "plain"):
        data = {
            "icc": images.jpeg(images.reference(), icc_profile=bytes(3_000_000)),
            "stray": before(b"\xff\xda", b"\x00")(PLAIN),
            "plain": PLAIN,
        }[name]
        assert need(data) >= 384 * 256 * 3 + len(data) + (6_000_000 if name == "icc" else 0)
    odd = ODD_SAMPLING["3x1"]
    assert need(odd, 32) >= 4 * 216 * 112


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("name", ["cmyk", "odd_sampling", "profile", "odd_header"])
def test_no_decode_takes_more_than_its_estimate(name: str, tmp_path: Path) -> None:
    texture = images.texture(5, 3000, 2000)
    data = {
        "cmyk": lambda: images.jpeg(Image.fromarray(texture).convert("CMYK")),
        "odd_sampling": lambda: components([0x31, 0x11, 0x11], [(3000, 2000), (1000, 2000), (1000, 2000)]),
        "profile": lambda: images.jpeg(texture, icc_profile=bytes(16_000_000)),
        "odd_header": lambda: before(b"\xff\xda", b"\x00")(images.jpeg(texture, progressive=True)),
    }[name]()
    path = tmp_path / "input"
    path.write_bytes(data)
    code = _MEMORY.format(root=str(ROOT), format="JPEG", path=str(path), sides=(640, None))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    used, bound, decoded = json.loads(run.stdout)
    print(f"{name}: used {used / 2**20:.1f} MiB, estimated {bound / 2**20:.1f} MiB")
    assert decoded == [True, True]
    assert used <= bound + 2 * 2**20


@pytest.mark.parametrize(
    "segment",
    [b"\xff\xee\x00\x07Adobe", b"\xff\xee\x00\x08Adobe\x00", b"\xff\xe0\x00\x06JFIF", b"\xff\xe0\x00\x08JFIF\x00\x01",
     b"\xff\xe2\x00\x0eICC_PROFILE\x00", b"\xff\xe2\x00\x0fICC_PROFILE\x00\x01"],
)  # fmt: skip
@pytest.mark.parametrize("place", [2, 20])
def test_segments_that_stop_readers_are_unreadable(segment: bytes, place: int) -> None:
    data = PLAIN[:place] + segment + PLAIN[place:]
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
        expected = None
    except OSError:
        expected = Reason.UNREADABLE
    assert reason(data) is expected
    assert expected is not None or place == 20
