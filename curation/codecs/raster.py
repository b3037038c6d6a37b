"""Every format but JPEG: headers that Pillow reads, and the decode through Pillow."""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.codecs import avif, containers, jpeg2000, pillow, readers, tiff_jpeg
from curation.codecs.base import DecodeConfig, Header, Problem, working_size
from curation.codecs.exif import orientation as exif_orientation
from curation.reasons import Reason

if TYPE_CHECKING:
    from curation.records import Pixels  # which loads Arrow: the decoding child does without

_PLUGINS = {
    "PNG": ("PngImagePlugin", "PngImageFile"),
    "WEBP": ("WebPImagePlugin", "WebPImageFile"),
    "GIF": ("GifImagePlugin", "GifImageFile"),
    "BMP": ("BmpImagePlugin", "BmpImageFile"),
    "TIFF": ("TiffImagePlugin", "TiffImageFile"),
    "AVIF": ("AvifImagePlugin", "AvifImageFile"),
    "JPEG2000": ("Jpeg2KImagePlugin", "Jpeg2KImageFile"),
    "PPM": ("PpmImagePlugin", "PpmImageFile"),
}
_FEATURES = {"WEBP": "webp", "AVIF": "avif", "JPEG2000": "jpg_2000"}
_PIXEL_BYTES = {
    "AVIF": 20,  # 11 were measured for 8 bits with alpha; deeper ones have planes of 16 bits
    "JPEG2000": 26,  # 19 were measured for RGB and 24 with alpha: OpenJPEG works on 32-bit integers
}
_SMALL_MODES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
_MARKS: dict[str, Any] = {"L": 1, "P": 255, "LA": (1, 2), "RGB": (1, 2, 3), "RGBA": (1, 2, 3, 4)}
_MAX_PAGES = 10_000
_LZMA_BYTES = 72 << 20
"""The dictionary of the highest preset of xz, and what goes with it."""
_PPM_HEADER = 65_536
MAX_SLOW_SAMPLES = 32 << 20
"""Samples, and encoded bytes, of the forms that Pillow decodes in Python (plain PNM, PNM of a maximum other than 255 or
65535, BMP in runs): about 0.4 us each, so 15 s."""


def missing_codec(format: str) -> bool:
    """True when this build of Pillow cannot decode the format."""
    from PIL import features

    return format in _FEATURES and not features.check(_FEATURES[format])


def open_image(format: str, data: bytes) -> Any:
    """The plug-in's own class: `Image.open` would try other formats and apply its own pixel cap."""
    module_name, name = _PLUGINS[format]
    module = importlib.import_module(f"PIL.{module_name}")
    readers.check_magic(module, data)
    return getattr(module, name)(io.BytesIO(data))


def read_header(format: Any, data: bytes) -> Header | Problem:
    """BMP, TIFF, AVIF, JPEG 2000 and PNM. Raises whatever Pillow raises."""
    if format in ("AVIF", "JPEG2000") and _boxes_end_early(data):
        return Problem(Reason.TRUNCATED, f"the {format} ends inside a box")
    tiles = jpeg2000.tiles(data) if format == "JPEG2000" else None
    if isinstance(tiles, Problem):
        return tiles
    with pillow.guarded():
        image = open_image(format, data[:_PPM_HEADER] if format == "PPM" else data)
    width, height = image.size
    mode, orientation, buffer, ends_early = image.mode, 1, 0, False
    frames: int | None = 1
    if format == "AVIF":
        coded = avif.frame_size(data)
        if coded is not None and coded[0] * coded[1] > avif.MAX_CROP * width * height:
            return Problem(
                Reason.CORRUPT, f"the AVIF says {width} x {height}, and its frames {coded[0]} x {coded[1]} pixels"
            )
        frames = getattr(image, "n_frames", 1)
        orientation = exif_orientation(image.info.get("exif") or b"")
        if orientation >= 5:
            width, height = height, width
    elif format == "TIFF":
        tags = image.tag_v2
        if 50706 in tags or _number(tags, 254) & 1:
            return Problem(Reason.UNSUPPORTED_FORMAT, "camera raw: the first page is a preview")
        orientation = _number(tags, 274, 1)
        orientation = orientation if 1 <= orientation <= 8 else 1
        buffer, ends_early, frames = _tiff_buffer(tags, *image.size), _tiff_ends_early(tags, data), _pages(data)
    if (mode in ("I", "F") and format != "PPM") or mode in ("F", "I;16S"):
        return Problem(Reason.UNSUPPORTED_FORMAT, f"{format} with float or 32-bit samples: no agreed range to show")
    pixel_bytes = _PIXEL_BYTES.get(format) or _SMALL_MODES.get(mode, 4)
    if format == "TIFF" and orientation != 1:
        pixel_bytes *= 2  # Pillow turns the whole picture
    if format in ("TIFF", "JPEG2000", "AVIF"):
        buffer += 3 * len(data)
    if format == "TIFF" and _number(image.tag_v2, 259) == 34925:
        buffer += _LZMA_BYTES
    if tiles is not None:
        if tiles[:2] != (width, height):
            return Problem(Reason.CORRUPT, f"the JPEG 2000 has two sizes: {tiles[:2]} and {(width, height)}")
        buffer += jpeg2000.TILE_BYTES * tiles[2] * tiles[3]
    if image.tile and image.tile[0][0] in ("ppm", "ppm_plain", "bmp_rle"):
        samples = width * height * len(image.getbands())
        if max(samples, len(data)) > MAX_SLOW_SAMPLES:
            return Problem(Reason.TOO_MANY_PIXELS, f"{format} in a form that takes minutes: {samples} samples")
        buffer += 9 * samples * (4 if mode == "I" else 1) // 4 + (64 << 20 if format == "PPM" else 0)
    return Header(format, width, height, orientation, mode, frames, pixel_bytes, buffer, ends_early)


def _number(tags: Any, tag: int, default: int = 0) -> int:
    value = tags.get(tag, default)
    value = value[0] if isinstance(value, tuple) and value else value
    return int(value) if isinstance(value, (int, float)) and value == value else default


def _tiff_buffer(tags: Any, width: int, height: int) -> int:
    """Bytes of one uncompressed strip or tile: libtiff decodes a whole one, whatever part of it is the picture."""
    bits = tags.get(258, (8,))
    bits = bits if isinstance(bits, tuple) else (bits,)
    depth = sum(int(value) for value in bits) * max(1, _number(tags, 277, 1) // max(1, len(bits)))
    pixel = max(4 if _number(tags, 262) == 6 else 1, -(-depth // 8))  # YCbCr is unpacked to RGBA
    if 322 in tags or 323 in tags:
        return 2 * pixel * _number(tags, 322) * _number(tags, 323)
    side = max(width, height)
    return pixel * (width * height // side if side else 0) * min(_number(tags, 278, side) or side, side)


def _tiff_ends_early(tags: Any, data: bytes) -> bool:
    for offsets, counts in ((273, 279), (324, 325)):
        starts, sizes = tags.get(offsets), tags.get(counts)
        if isinstance(starts, tuple) and isinstance(sizes, tuple) and len(starts) == len(sizes):
            return any(start + size > len(data) for start, size in zip(starts, sizes, strict=True))
    return False


def _boxes_end_early(data: bytes) -> bool:
    """True when a box at the top of an ISO base media or JP2 file is longer than the file."""
    if data[:2] == b"\xff\x4f":
        return False  # a bare JPEG 2000 codestream
    position = 0
    while position + 8 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        if length == 1:
            length = int.from_bytes(data[position + 8 : position + 16], "big")
        if length < 8:
            return False  # 0: up to the end of the file; others are damage, which the decoder will find
        position += length
    return position > len(data)


def _pages(data: bytes) -> int | None:
    """Image file directories in the main chain; None when the chain is broken."""
    order: Any = "little" if data[:2] == b"II" else "big"
    big = data[2:4] in (b"+\x00", b"\x00+")
    at, count_bytes, entry, offset_bytes = (8, 8, 20, 8) if big else (4, 2, 12, 4)
    seen: set[int] = set()
    while len(seen) < _MAX_PAGES:
        start = int.from_bytes(data[at : at + offset_bytes], order)
        if start == 0:
            return len(seen) or None
        if start in seen or start + count_bytes > len(data):
            return None
        seen.add(start)
        at = start + count_bytes + entry * int.from_bytes(data[start : start + count_bytes], order)
    return None


def reduction(width: int, height: int, max_side: int | None) -> int:
    """The whole factor that leaves between one and two times the working size for the last, exact resize."""
    return max(1, max(width, height) // max(working_size(width, height, max_side)))


def decode(data: bytes, header: Header, config: DecodeConfig, max_side: int | None) -> tuple[Pixels, bytes | None]:
    """RGB, uint8 [ceil(h / f), ceil(w / f), 3] with f = `reduction`, not yet oriented (a TIFF is); and the ICC
    profile.

    Raises:
        UnreadableError: the pixels are whole, and Pillow at its defaults refuses the file.
        Exception: whatever Pillow raises; OSError with "truncated" where rows are missing.
    """
    try:
        return _decode(data, header, config, max_side)
    except (readers.UnreadableError, MemoryError):
        raise
    except Exception as error:
        if header.format != "PNG":
            raise
        _decode(containers.strip_png(data, keep_profile=False), header, config, max_side)
        raise readers.UnreadableError(f"{type(error).__name__}: {error}"[:300]) from error


def _decode(data: bytes, header: Header, config: DecodeConfig, max_side: int | None) -> tuple[Pixels, bytes | None]:
    with pillow.guarded():
        image = open_image(header.format, data)
        expected = (header.width, header.height) if header.format == "TIFF" else header.stored_size
        if image.size != expected:
            raise ValueError(f"the header says {expected}, the decoder {image.size}")
        invert = header.format == "TIFF" and image.mode.startswith("I;16") and _number(image.tag_v2, 262, 1) == 0
        profile = image.info.get("icc_profile") if config.icc == "convert" else None
        if header.format == "TIFF" and _number(image.tag_v2, 259) == 7:
            tiff_jpeg.check(image.tag_v2, data)
        mark = _mark_last_row(image) if header.format == "PNG" else None
        pixels = pillow.to_rgb(image, config.background, reduction(*expected, max_side), invert)
        readers.check_metadata(image)
        if header.format == "PNG" and _keeps_mark(image, mark, data) and containers.png_lacks_rows(data):
            raise OSError("the PNG is truncated: its picture has fewer rows than its header says")
        return pixels, profile


def _mark_last_row(image: Any) -> Any:
    """Give the decoder a canvas whose last row has a colour that pictures rarely have, and return the colour."""
    from PIL import Image

    mark = _MARKS.get(image.mode, 0)
    canvas = Image.new(image.mode, image.size)
    canvas.paste(mark, (0, image.height - 1, image.width, image.height))
    image.im = canvas.im
    return mark


def _keeps_mark(image: Any, mark: Any, data: bytes) -> bool:
    """True when the last row may not have been decoded: Pillow writes whole rows in their order, so one that has lost
    its mark shows that all are there. Interlaced rows come in another order: they show nothing."""
    width, height = image.size
    return bool(data[28]) or bool((np.asarray(image.crop((0, height - 1, width, height))) == mark).all())
