"""What a user relies on: the odd-image table row by row, exact sizes, orientation, memory, and no exception ever."""

from __future__ import annotations

import functools
import io
import json
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from curation.codecs import pillow
from curation.decode import (
    DecodeConfig,
    Decoded,
    Header,
    Problem,
    decode,
    decode_memory,
    grey_thumbnail,
    read_header,
    working_size,
)
from curation.reasons import Reason
from tests.fixtures import images

CONFIG = DecodeConfig()
ODD = images.odd_images()
TRUTHS = images.truths()
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Decoding opens no file: an unclosed one is some other test's, collected here by chance.
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def take(data: bytes, config: DecodeConfig = CONFIG, max_side: int | None = None) -> Decoded | Problem:
    header = read_header(data, config)
    return header if isinstance(header, Problem) else decode(data, header, config, max_side)


def picture(data: bytes, config: DecodeConfig = CONFIG, max_side: int | None = None) -> np.ndarray:
    result = take(data, config, max_side)
    assert isinstance(result, Decoded), result
    return result.pixels


def difference(a: np.ndarray, b: np.ndarray) -> float:
    assert a.shape == b.shape
    return float(np.abs(a.astype(int) - b.astype(int)).mean())


@pytest.mark.parametrize("name", sorted(ODD))
def test_every_odd_image_has_its_documented_outcome(name: str) -> None:
    data, reason = ODD[name]
    result = take(data, max_side=CONFIG.work_side)
    if reason is None:
        assert isinstance(result, Decoded), result
        assert result.pixels.dtype == np.uint8
        assert result.pixels.flags.c_contiguous
        assert result.pixels.ndim == 3
        assert max(result.pixels.shape[:2]) <= CONFIG.work_side
    else:
        assert isinstance(result, Problem)
        assert result.reason is reason
        assert result.detail


@pytest.mark.parametrize("name", sorted(TRUTHS))
def test_the_picture_is_right_at_full_and_at_reduced_size(name: str) -> None:
    truth, limit = TRUTHS[name]
    full = picture(ODD[name][0])
    assert difference(full, truth) <= limit
    header = read_header(ODD[name][0], CONFIG)
    assert isinstance(header, Header)
    assert (header.width, header.height) == (truth.shape[1], truth.shape[0])
    size = working_size(header.width, header.height, 100)
    small = picture(ODD[name][0], max_side=100)
    assert small.shape == (size[1], size[0], 3)
    assert difference(small, cv2.resize(truth, size, interpolation=cv2.INTER_AREA)) <= limit + 3.5


def test_all_eight_orientations_equal_the_reference_at_every_size() -> None:
    for side in (None, 192, 96):
        upright = picture(ODD["jpeg_exif_1_le"][0], max_side=side)
        for value in range(1, 9):
            for order in ("le", "be"):
                assert difference(picture(ODD[f"jpeg_exif_{value}_{order}"][0], max_side=side), upright) < 1.0
        lossless = picture(ODD["png"][0], max_side=side)
        for value in range(1, 9):
            stored = images.orient(images.reference(), value)
            for format, options in (
                ("PNG", {"exif": images.exif_block(value)}),
                ("TIFF", {"tiffinfo": {274: value}}),
            ):
                turned = picture(images.encode(stored, format, **options), max_side=side)
                assert difference(turned, lossless) < 0.6, (side, value, format)


def test_only_the_first_exif_block_counts_and_is_applied_once() -> None:
    data = images.insert_jpeg_segment(
        images.jpeg(images.reference(), exif=images.exif_block(6)), 0xE1, images.exif_block(1)
    )
    header = read_header(data, CONFIG)
    assert isinstance(header, Header)
    assert header.orientation == 1


@given(
    width=st.integers(1, 30_000),
    height=st.integers(1, 30_000),
    side=st.one_of(st.none(), st.integers(1, 5000)),
)
def test_working_size_is_exact_and_symmetric(width: int, height: int, side: int | None) -> None:
    w, h = working_size(width, height, side)
    assert working_size(height, width, side) == (h, w)
    if side is None or max(width, height) <= side:
        assert (w, h) == (width, height)
    else:
        assert max(w, h) == side
        assert min(w, h) == max(1, int(min(width, height) * side / max(width, height) + 0.5))


@settings(max_examples=40, deadline=None)
@given(width=st.integers(1, 700), height=st.integers(1, 700), side=st.integers(1, 300))
def test_every_format_gives_the_same_size(width: int, height: int, side: int) -> None:
    source = Image.new("RGB", (width, height), (10, 200, 90))
    expected = working_size(width, height, side)
    for format in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"):
        result = take(images.encode(source, format), max_side=side)
        assert isinstance(result, Decoded), result
        assert (result.pixels.shape[1], result.pixels.shape[0]) == expected
        assert result.scale == pytest.approx(max(expected) / max(width, height))
        assert np.abs(result.pixels.astype(int) - (10, 200, 90)).max() <= 4


@pytest.mark.parametrize("size", [(2000, 1333), (1281, 961), (5300, 40), (1600, 1200)])
def test_scaled_jpeg_looks_like_the_area_average_of_the_full_one(size: tuple[int, int]) -> None:
    source = cv2.resize(images.texture(7, 600, 400), size, interpolation=cv2.INTER_CUBIC)
    data = images.jpeg(source)
    small = picture(data, max_side=640)
    truth = cv2.resize(picture(data), (small.shape[1], small.shape[0]), interpolation=cv2.INTER_AREA)
    assert difference(small, truth) < 2.5


def test_sampling_factors_that_turbojpeg_does_not_name_go_through_pillow() -> None:
    """Luma 3 x 1, chroma 1 x 1: legal, and refused by TurboJPEG's interface. The coded data are written by hand:
    every block is `00` (no change of DC) and `1010` (end of block) in the standard luminance tables."""
    import simplejpeg

    data = bytearray(images.jpeg(np.zeros((64, 96, 3), np.uint8)))
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    data[frame + 11] = 0x31
    assert data[scan + 4] == 3
    for component in range(3):
        data[scan + 6 + 2 * component] = 0
    blocks = (96 // 24) * (64 // 8) * 5
    bits = "001010" * blocks
    body = int(bits, 2).to_bytes(len(bits) // 8, "big")
    odd = bytes(data[: scan + 14]) + body + b"\xff\xd9"
    with pytest.raises(ValueError, match="subsampling"):
        simplejpeg.decode_jpeg(odd)
    for side, shape in ((None, (64, 96, 3)), (48, (32, 48, 3)), (30, (20, 30, 3))):
        assert picture(odd, max_side=side).shape == shape
        assert (picture(odd, max_side=side) == 128).all()
    cut = take(odd[:-40], max_side=None)
    assert isinstance(cut, Problem)
    assert cut.reason is Reason.TRUNCATED


def test_progressive_scans_are_counted_before_they_are_decoded() -> None:
    result = take(images.scan_bomb(101))
    assert isinstance(result, Problem)
    assert result.reason is Reason.CORRUPT
    assert "scans" in result.detail


KEPT = sorted(name for name, (_, reason) in ODD.items() if reason is None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_read_by_standard_readers(name: str) -> None:
    """As `datasets` decodes: open, load, getexif, turn upright."""
    import datasets

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = datasets.Image().decode_example({"path": None, "bytes": ODD[name][0]})
        turned = image.convert("RGB")
    header = read_header(ODD[name][0], CONFIG)
    assert isinstance(header, Header)
    assert turned.size == (header.width, header.height)


SLOW_TO_READ = {"gif_huge_comment"}
"""Refused for the time and memory that readers take for them, not because they stop."""


@pytest.mark.parametrize(
    "name", sorted({name for name, (_, reason) in ODD.items() if reason is Reason.UNREADABLE} - SLOW_TO_READ)
)
def test_what_is_unreadable_stops_a_reader(name: str) -> None:
    # Where ultralytics was imported in this process, `Image.open` is its own, which looks for another package.
    stops = (OSError, ValueError, SyntaxError, ModuleNotFoundError)
    with pytest.raises(stops), Image.open(io.BytesIO(ODD[name][0])) as image:
        image.load()


def test_a_jpeg_that_pillow_does_not_open_is_unreadable_and_always_in_the_same_words() -> None:
    """TurboJPEG reads past zeros between segments; whatever Pillow makes of them, ours is the same verdict."""
    data = ODD["jpeg"][0]
    at = data.index(b"\xff\xdb")
    for stray in (b"\x00\x00", b"ab\xff\x00"):
        odd = data[:at] + stray + data[at:]
        try:
            with Image.open(io.BytesIO(odd)) as image:
                image.load()
            opened = True
        except OSError:
            opened = False
        result = take(odd)
        assert isinstance(result, Decoded) <= opened
        assert isinstance(result, Decoded) or result == take(odd)


def test_limits_are_configuration() -> None:
    data = ODD["png"][0]
    for config in (DecodeConfig(max_pixels=384 * 256 - 1), DecodeConfig(max_pixels=384 * 256)):
        result = take(data, config)
        assert isinstance(result, Decoded) == (config.max_pixels == 384 * 256)
    only_png = DecodeConfig(formats=("PNG",))
    assert isinstance(take(data, only_png), Decoded)
    refused = take(ODD["jpeg"][0], only_png)
    assert isinstance(refused, Problem)
    assert refused.reason is Reason.UNSUPPORTED_FORMAT


def test_full_size_can_be_too_large_where_working_size_is_not() -> None:
    config = DecodeConfig(max_memory=4 * 1024 * 1024)
    data = images.jpeg(images.texture(1, 2000, 1200), quality=80)
    assert isinstance(take(data, config, 640), Decoded)
    refused = take(data, config, None)
    assert isinstance(refused, Problem)
    assert refused.reason is Reason.TOO_MANY_PIXELS


def test_background_is_configuration() -> None:
    blue = picture(ODD["png_rgba_black"][0], DecodeConfig(background=(0, 0, 255)))
    assert blue[0, 0].tolist() == [0, 0, 0]
    assert blue[0, -1].tolist() == [0, 0, 255]


def test_icc_profiles_are_ignored_or_converted_as_configured() -> None:
    from PIL import ImageCms

    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    swapped = bytearray(srgb)  # red and blue primaries exchanged: a profile with a visible effect
    red, blue = swapped.index(b"rXYZ"), swapped.index(b"bXYZ")
    swapped[red : red + 4], swapped[blue : blue + 4] = b"bXYZ", b"rXYZ"
    flat = np.full((64, 96, 3), (250, 20, 20), np.uint8)
    for format, options in (("PNG", {}), ("JPEG", {"quality": 95, "subsampling": 0}), ("WEBP", {"lossless": True})):
        data = images.encode(flat, format, icc_profile=bytes(swapped), **options)
        assert difference(picture(data), flat) < 3
        converted = picture(data, DecodeConfig(icc="convert"))
        assert converted[..., 2].mean() > 240
        assert converted[..., 0].mean() < 60
        plain = images.encode(flat, format, icc_profile=srgb, **options)
        assert difference(picture(plain, DecodeConfig(icc="convert")), flat) < 3
    damaged = images.encode(flat, "PNG", icc_profile=srgb[:200])
    assert difference(picture(damaged, DecodeConfig(icc="convert")), flat) == 0


def test_pillow_switches_of_the_user_are_not_relied_on_and_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    for name in ("gif_cut_half", "bmp_cut_half", "png_cut_half_then_end", "tiff", "png_palette_alphas"):
        data, reason = ODD[name]
        result = take(data)
        assert (result.reason if isinstance(result, Problem) else None) == reason, name
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True
    assert Image.MAX_IMAGE_PIXELS == 10
    with pytest.raises(KeyError), pillow.guarded():
        raise KeyError
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


_SEEDS = [
    "jpeg",
    "jpeg_progressive",
    "jpeg_cmyk",
    "jpeg_exif_6_be",
    "png_rgba",
    "png_palette_transparent",
    "png_grey_16_key",
    "webp_animated",
    "webp_lossy",
    "gif_animated",
    "tiff",
    "tiff_jpeg",
    "tiff_pages",
    "tiff_grey_16",
    "bmp",
    "avif",
    "jpeg2000",
    "ppm",
]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files_never_raise_and_never_warn(data: st.DataObject) -> None:
    damaged = bytearray(ODD[data.draw(st.sampled_from(_SEEDS))][0])
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    reach = data.draw(st.sampled_from([64, 700, 1 << 30]))  # headers are where damage is most interesting
    for _ in range(data.draw(st.integers(0, 6))):
        if damaged:
            damaged[data.draw(st.integers(0, min(reach, len(damaged)) - 1))] = data.draw(st.integers(0, 255))
    result = take(bytes(damaged), max_side=data.draw(st.sampled_from([64, 640, None])))
    if isinstance(result, Decoded):
        assert result.pixels.ndim == 3
    else:
        assert isinstance(result.reason, Reason)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([b"", *(ODD[name][0][:40] for name in _SEEDS)]), st.binary(max_size=300))
def test_arbitrary_bytes_after_any_magic_never_raise(magic: bytes, tail: bytes) -> None:
    assert isinstance(take(magic + tail), (Decoded, Problem))


@pytest.mark.parametrize("name", ["jpeg", "jpeg_progressive", "jpeg_restarts", "jpeg_cmyk", "jpeg_grey"])
@pytest.mark.parametrize("ending", [b"", b"\xff\xd9"])
def test_a_cut_jpeg_never_gives_a_picture(name: str, ending: bytes) -> None:
    data = ODD[name][0]
    for share in np.linspace(0.02, 0.93, 14):
        cut = data[: int(len(data) * share)]
        cut = cut[:-1] if cut.endswith(b"\xff") else cut
        result = take(cut + ending, max_side=640)
        if isinstance(result, Decoded):
            # A progressive file cut exactly between two scans is whole, only less sharp.
            assert name == "jpeg_progressive"
            assert difference(result.pixels, images.reference()) < 8
        else:
            assert result.reason in (Reason.TRUNCATED, Reason.CORRUPT)


_MEMORY = """
import json, resource, sys
sys.path.insert(0, {root!r})
from tests.fixtures import images
from curation.codecs import sandbox
from curation.decode import DecodeConfig, Decoded, Header, decode, decode_memory, read_header
import numpy as np
def kilobytes(process, name):
    for line in open(f"/proc/{{process}}/status"):
        if line.startswith(name):
            return int(line.split()[1])
config = DecodeConfig()
warm = images.encode(images.reference(), {format!r})
decode(warm, read_header(warm, config), config, 640)
data = open({path!r}, "rb").read()
processes = ["self", *(child.process.pid for child in sandbox._idle)]
before = {{process: kilobytes(process, "VmRSS") for process in processes}}
for process in processes:
    try:
        open(f"/proc/{{process}}/clear_refs", "w").write("5")  # reset the peak
    except OSError:
        pass
header = read_header(data, config)
results = [
    decode(data, header, config, side) if isinstance(header, Header) else header for side in {sides!r}
]
assert ["self", *(child.process.pid for child in sandbox._idle)] == processes, "the child did not live through it"
used = sum(kilobytes(process, "VmHWM") - before[process] for process in processes)
bound = max((decode_memory(header, side) for side in {sides!r}), default=0) if isinstance(header, Header) else 0
print(json.dumps([used * 1024, bound, [isinstance(r, Decoded) for r in results]]))
"""


@functools.cache
def _noise() -> npt.NDArray[np.uint8]:
    return images.texture(5, 3000, 3000)


def _large(name: str) -> tuple[bytes, str, tuple[int | None, ...], bool]:
    """(bytes, format to warm up, sizes to decode at, whether a picture must come out)."""
    if name.startswith("bomb"):
        format = {"jpeg": "JPEG", "tiff": "TIFF"}.get(name.split("_")[1], "PNG")
        return ODD[name][0], format, (640,), ODD[name][1] is None
    if name == "png_9500_full":
        return ODD["bomb_png_9500"][0], "PNG", (None,), True
    if name == "png_rgba_16_large":
        return images.flat_png(5000, 5000, 16, 6), "PNG", (640,), True
    if name == "png_rgba_full":
        return images.flat_png(5000, 5000, 8, 6), "PNG", (None,), True
    if name in ODD:
        data, reason = ODD[name]
        format = {"png": "PNG", "gif": "GIF", "avif": "AVIF", "jpeg2000": "JPEG2000", "tiff": "TIFF"}[
            name.split("_")[0]
        ]
        return data, format, (640,), reason is None
    if name == "png_one_column":
        return images.flat_png(1, 5_000_000, 8, 0), "PNG", (640,), True
    if name == "png_many_texts":
        text = images.png_chunk(b"zTXt", b"a\x00\x00" + zlib.compress(bytes(1_000_000)))
        return images.flat_png(64, 64, extra=text * 60), "PNG", (640,), True
    if name == "pgm_plain_large":
        return b"P2 2000 2000 65535\n" + b"40000 " * 2000**2, "PPM", (640,), True
    if name == "jpeg2000_small_tiles":
        grey = images.texture(6, 512, 512)[..., 0]
        return images.encode(grey, "JPEG2000", tile_size=(4, 4), num_resolutions=1), "JPEG2000", (640,), True
    noise = _noise()
    if name == "webp_lossless_large":
        return images.encode(noise, "WEBP", lossless=True, quality=0, method=0), "WEBP", (640, None), True
    if name == "jpeg_progressive_large":
        return images.encode(noise, "JPEG", progressive=True, subsampling=0), "JPEG", (640, None), True
    if name == "jpeg_progressive_lie":
        data = images.encode(noise[:256, :256], "JPEG", progressive=True)
        return images.jpeg_header_lie(data, 10_000, 10_000), "JPEG", (640, None), False
    if name == "avif_large":
        return images.encode(noise, "AVIF", speed=10, quality=60), "AVIF", (640, None), True
    if name == "jpeg2000_large":
        return (
            images.encode(noise, "JPEG2000", quality_mode="rates", quality_layers=[60]),
            "JPEG2000",
            (640,),
            True,
        )
    if name == "tiff_strip_large":
        return images.tiff_bomb(12_000, 8_000), "TIFF", (640,), True
    raise AssertionError(name)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(
    "name",
    [
        "bomb_png_20000",
        "bomb_png_9500",
        "bomb_gif_canvas",
        "bomb_tiff_strip",
        "bomb_tiff_tile",
        "bomb_jpeg_progressive_lie",
        "png_9500_full",
        "png_rgba_16_large",
        "png_rgba_full",
        "webp_lossless_large",
        "jpeg_progressive_large",
        "jpeg_progressive_lie",
        "avif_large",
        "jpeg2000_large",
        "tiff_strip_large",
        "avif_lie",
        "gif_tiny_blocks",
        "gif_tiny_comments",
        "gif_huge_comment",
        "png_tiny_chunks",
        "png_text_3mb",
        "png_one_column",
        "png_many_texts",
        "pgm_plain_large",
        "jpeg2000_tiny_tiles",
        "jpeg2000_small_tiles",
        "tiff_lzma",
    ],
)
def test_no_decode_takes_more_than_its_budget_or_its_own_estimate(name: str, tmp_path: Path) -> None:
    data, format, sides, decodes = _large(name)
    path = tmp_path / "input"
    path.write_bytes(data)
    code = _MEMORY.format(root=str(ROOT), format=format, path=str(path), sides=sides)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    used, bound, decoded = json.loads(run.stdout)
    print(f"{name}: used {used / 2**20:.0f} MiB, estimated {bound / 2**20:.0f} MiB")
    assert used <= CONFIG.max_memory
    assert decoded == [decodes] * len(sides)
    if not decodes and name in ODD and not name.startswith("bomb"):
        assert used <= 96 * 2**20
    if decodes:
        assert used <= bound + 24 * 2**20  # allocator slack and lazily loaded code


def test_grey_thumbnail_is_the_area_average() -> None:
    for width, height in ((640, 427), (500, 375), (90, 200), (20, 10), (32, 32), (640, 640)):
        source = cv2.resize(images.texture(9, 640, 480), (width, height), interpolation=cv2.INTER_AREA)
        small = grey_thumbnail(source)
        grey = cv2.cvtColor(source, cv2.COLOR_RGB2GRAY)
        assert small.shape == (32, 32)
        assert small.dtype == np.uint8
        assert difference(small, cv2.resize(grey, (32, 32), interpolation=cv2.INTER_AREA)) < 1.5
        assert np.array_equal(small, grey_thumbnail(grey))


def test_memory_estimate_grows_with_progressive_coefficients() -> None:
    files = [ODD[name][0] for name in ("jpeg", "jpeg_progressive")]
    plain, progressive = (read_header(data, CONFIG) for data in files)
    assert isinstance(plain, Header)
    assert isinstance(progressive, Header)
    copies = len(files[1]) - len(files[0])  # of the file, which may have to be put together again
    assert decode_memory(progressive, None) - decode_memory(plain, None) == 384 * 256 * 3 * 2 + copies


@pytest.mark.parametrize(
    "start", [b"root:x:0:0:", b"P5 secret", b"P1 s3cret ", b"BM\x00\x00secret\x00\x00\x28\x00\x00\x00"]
)
def test_what_is_no_image_is_named_and_not_quoted(start: bytes) -> None:
    problem = read_header(start + b"root:x:0:0:root:/root:/bin/bash\n" * 20, DecodeConfig())
    assert isinstance(problem, Problem)
    assert problem.reason is Reason.NOT_AN_IMAGE
    assert not any(word in problem.detail for word in ("root", "cret", "x:0", "bash"))
    assert "bytes, " in problem.detail
