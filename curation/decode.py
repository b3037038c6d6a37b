"""The one decode policy: how encoded bytes become a picture, in curation and in training.

A header is read first, and a picture is refused from it alone when it is too large; only then are pixels decoded.
Neither step ever raises on the bytes or emits a warning: the result is a picture or a `Problem` with one of
the reasons below.

| input | outcome |
|---|---|
| zero bytes | EMPTY |
| no known magic number (HTML, text, TGA, video) | NOT_AN_IMAGE |
| HEIF, JPEG XL, SVG, PSD, ICO, camera raw, ...; a format not in `formats`, or that Pillow was built without | \
UNSUPPORTED_FORMAT |
| lossless, hierarchical, arithmetic-coded or 12-bit JPEG; float or 32-bit samples (no agreed range to show) | \
UNSUPPORTED_FORMAT |
| width * height > `max_pixels`, or the decode would take more than `max_memory`; a JPEG whose scans go over more \
than 2^25 blocks (12 times the largest image) | TOO_MANY_PIXELS |
| the data ends early: a JPEG without its end marker or with blocks, restart intervals or a component missing, \
a PNG without IEND, a RIFF, strip or stream that is too short | TRUNCATED, never a picture with a grey part |
| a PNG whose zlib stream has fewer rows, a GIF or BMP whose codes have fewer pixels, a JPEG 2000 that lacks tiles, \
a TIFF with a cut JPEG strip | TRUNCATED |
| anything else that the decoder refuses; a JPEG that has lost synchronisation, of more than 100 scans, or of more \
than 65,536 segments | CORRUPT |
| JPEG: stray bytes between segments; up to 16 (and 8 that libjpeg does not count) after a scan or restart interval; \
wrong ICC numbers, JFIF revision, Adobe transform, or parameters of a sequential scan; scans out of order; any \
sampling factors | decoded, when all of it is there |
| more than 65,536 PNG chunks or GIF sub-blocks of less than 64 bytes on average; more JPEG 2000 tiles than can be \
numbered | CORRUPT |
| PNM in plain text or of an unusual maximum, and BMP in runs, of more than 32 Mi samples or bytes (15 s) | \
TOO_MANY_PIXELS |
| AVIF, JPEG 2000 or TIFF that takes more memory than its header says, or more than a minute | TOO_MANY_PIXELS, or \
CORRUPT where the codec does not tell lack of memory from damage |
| whole pixels in a file that Pillow at its defaults refuses (a PNG with a damaged ancillary chunk, text of more than \
1 MiB, a damaged multi-picture index, 4 MiB of GIF comments) | UNREADABLE |
| file extension | not looked at |
| EXIF orientation (JPEG, PNG, WebP, AVIF's own, TIFF tag) | applied once; 0, 9, damaged EXIF: 1 |
| animation, multi-page TIFF, MPO | first frame |
| alpha: RGBA, LA, palette with transparency, PNG tRNS | composited on `background` (white) |
| 16-bit grey | value / 257, rounded; a TIFF where white is zero is inverted |
| 16-bit colour | the high byte (within 1 of value / 257) |
| 1-bit, palette, grey, CMYK, YCCK, YCbCr, LAB | converted to RGB; JPEG's CMYK is taken as inverted (Adobe) |
| ICC profile | ignored by default; `icc=convert` maps RGB profiles to sRGB |
| damaged or huge metadata that Pillow takes, bytes after the end | ignored |

Size: `working_size(width, height, max_side)` exactly, whatever the format. JPEGs are decoded at 1/2, 1/4 or 1/8 of
their size where that still covers it (inverse DCT of fewer coefficients); other formats, and JPEGs beyond 1/8, are
averaged in whole blocks (the last of which may be smaller, which moves the far edge by less than a pixel of the
result). That leaves less than twice the size, and one bilinear resize gives the exact one: there
it reads every pixel, and it costs an eighth of `cv2.INTER_AREA`, which is slow by factors that are not whole (4.4
against 0.5 ms from 1000 x 750 to 640 x 480, a fifth of decoding 12 megapixels).

Memory: `decode_memory` is computed from the header and is an upper bound of what a decode takes beside the bytes.
AVIF, JPEG 2000 and TIFF take sizes from inside their compressed data, so they are decoded in a child process that the
kernel holds to the bound and to a minute of processor time (`codecs.sandbox`); the child itself takes 55 MB, and is
started at the first such image.

While a decode through Pillow runs, `ImageFile.LOAD_TRUNCATED_IMAGES` is False, `Image.MAX_IMAGE_PIXELS` is None and
warnings are off, for the whole process; the user's values are put back afterwards and are never relied on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from curation.codecs import containers, jpeg, pillow, raster, readers, sandbox
from curation.codecs.base import ALL_FORMATS, DecodeConfig, Decoded, Format, Header, Problem, working_size
from curation.codecs.sniff import sniff
from curation.content import kind_of_content
from curation.reasons import Reason
from curation.records import Pixels

__all__ = [
    "ALL_FORMATS",
    "DecodeConfig",
    "Decoded",
    "Format",
    "Header",
    "Problem",
    "decode",
    "decode_memory",
    "grey_thumbnail",
    "halve",
    "luma",
    "read_header",
    "working_size",
]

_READERS = {
    "JPEG": jpeg.read_header,
    "PNG": containers.read_png,
    "WEBP": containers.read_webp,
    "GIF": containers.read_gif,
}
_ISOLATED = frozenset(("AVIF", "JPEG2000", "TIFF"))
_WEAK_MAGIC = frozenset(("BMP", "PPM"))


def read_header(data: bytes, config: DecodeConfig) -> Header | Problem:
    """What the file says of itself, or why it is refused. Decodes no pixel."""
    if not data:
        return Problem(Reason.EMPTY, "zero bytes")
    found = sniff(data)
    if found is None:
        return Problem(Reason.NOT_AN_IMAGE, f"{len(data)} bytes, {kind_of_content(data)}")
    name, decodable = found
    if not decodable or name not in config.formats:
        return Problem(Reason.UNSUPPORTED_FORMAT, name)
    try:
        reader = _READERS.get(name)
        if raster.missing_codec(name):
            return Problem(Reason.UNSUPPORTED_FORMAT, f"{name}: this Pillow was built without it")
        header: Header | Problem
        if name in _ISOLATED:
            header = sandbox.read_header(name, data, config)
        else:
            header = reader(data) if reader is not None else raster.read_header(name, data)
    except readers.UnreadableError as error:
        return Problem(Reason.UNREADABLE, str(error))
    except Exception as error:  # noqa: BLE001 - hostile bytes make decoders raise anything
        return _header_problem(name, data, error)
    if isinstance(header, Problem):
        return header
    return _too_large(header, config, config.work_side) or header


def decode(data: bytes, header: Header, config: DecodeConfig, max_side: int | None) -> Decoded | Problem:
    """Decode to `working_size(header.width, header.height, max_side)`.

    Args:
        data: the bytes that `header` was read from.
        header: from `read_header` with the same configuration.
        max_side: longest side of the result in pixels; None for the full size (training).
    """
    if header.ends_early:
        return Problem(Reason.TRUNCATED, f"the {header.format} ends before its end")
    problem = _too_large(header, config, max_side)
    if problem is not None:
        return problem
    try:
        profile = None
        if header.format == "JPEG":
            stored = jpeg.decode(data, header, config, max_side)
            if isinstance(stored, Problem):
                return stored
            readers.check_jpeg(data)
            if config.icc == "convert" and header.mode == "RGB":
                profile = _jpeg_profile(data)
        elif header.format in _ISOLATED:
            found = sandbox.decode(data, header, config, max_side, decode_memory(header, max_side))
            if isinstance(found, Problem):
                return found
            stored, profile = found
        else:
            stored, profile = raster.decode(data, header, config, max_side)
        pixels = _finish(stored, header, max_side)
        if profile:
            pixels = pillow.to_srgb(pixels, profile)
    except readers.UnreadableError as error:
        return Problem(Reason.UNREADABLE, str(error))
    except Exception as error:  # noqa: BLE001 - hostile bytes make decoders raise anything
        return _decode_problem(error)
    return Decoded(pixels, max(pixels.shape[:2]) / max(header.width, header.height))


def decode_memory(header: Header, max_side: int | None) -> int:
    """Upper bound of the bytes that `decode` takes beside the encoded bytes; the result is included."""
    width, height = header.stored_size
    target = working_size(width, height, max_side)
    is_jpeg = header.format == "JPEG"
    factor = (jpeg if is_jpeg else raster).reduction(width, height, max_side)
    reduced = -(-width // factor) * -(-height // factor)
    if is_jpeg:
        need = reduced * header.pixel_bytes
    else:
        need = width * height * header.pixel_bytes + 3 * reduced + min(pillow.TILE_BYTES, 24 * width * height)
        need += pillow.ROW_BYTES * height + pillow.TILE_ROW_BYTES * min(height, pillow.TILE_BYTES // 24)
        need += 3 * reduced if header.format in _ISOLATED else 0  # once in the child, once here
    resized = target != (-(-width // factor), -(-height // factor))
    copies = int(resized) + int(header.orientation != 1 and header.format != "TIFF")
    return need + header.buffer_bytes + 3 * copies * target[0] * target[1]


def luma(pixels: Pixels) -> npt.NDArray[np.uint8]:
    """BT.601 luma, uint8 [height, width]."""
    import cv2

    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8)


def grey_thumbnail(pixels: Pixels) -> npt.NDArray[np.uint8]:
    """Luma, uint8 [32, 32], averaged without keeping the aspect ratio: what the perceptual hash is taken of.

    Args:
        pixels: RGB uint8 [height, width, 3], or luma uint8 [height, width].
    """
    import cv2

    grey = pixels if pixels.ndim == 2 else luma(pixels)
    while max(grey.shape) >= 128:
        grey = halve(grey)
    return np.asarray(cv2.resize(grey, (32, 32), interpolation=cv2.INTER_AREA), np.uint8)


def halve(grey: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Half the size along each axis of 64 or more: the mean of neighbours.

    An odd last row or column is left out of large pictures (an exact half is seven times as fast) and kept in small
    ones. Repeated halving, then averaging what is left, is ten times as fast as one `cv2.INTER_AREA` by a factor
    that is not whole.
    """
    import cv2

    height, width = grey.shape
    if min(height, width) >= 256:
        height, width = height // 2 * 2, width // 2 * 2
    size = (-(-width // 2) if width >= 64 else width, -(-height // 2) if height >= 64 else height)
    return np.asarray(cv2.resize(grey[:height, :width], size, interpolation=cv2.INTER_LINEAR), np.uint8)


def _too_large(header: Header, config: DecodeConfig, max_side: int | None) -> Problem | None:
    size = f"{header.width} x {header.height} pixels"
    if header.width * header.height > config.max_pixels:
        return Problem(Reason.TOO_MANY_PIXELS, f"{size}, more than {config.max_pixels}")
    need = decode_memory(header, max_side)
    if need > config.max_memory:
        return Problem(
            Reason.TOO_MANY_PIXELS, f"{size} would take {need} bytes to decode, more than {config.max_memory}"
        )
    return None


def _finish(stored: Pixels, header: Header, max_side: int | None) -> Pixels:
    """Resize to the exact size and turn upright."""
    import cv2

    applied = 1 if header.format == "TIFF" else header.orientation  # Pillow has turned a TIFF already
    width, height = (header.width, header.height) if applied == 1 else header.stored_size
    size = working_size(width, height, max_side)
    pixels: Any = stored
    factor = max(pixels.shape[:2]) // max(size)
    if factor >= 2:
        pixels = pillow.reduce(pixels, factor)
    if (pixels.shape[1], pixels.shape[0]) != size:
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
    if applied >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if applied in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if applied in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _jpeg_profile(data: bytes) -> bytes | None:
    import io

    from PIL.JpegImagePlugin import JpegImageFile

    with pillow.guarded():
        profile: bytes | None = JpegImageFile(io.BytesIO(data)).info.get("icc_profile")
    return profile


def _message(error: BaseException) -> str:
    return str(error) if isinstance(error, sandbox.RefusedError) else f"{type(error).__name__}: {error}"[:300]


def _says_truncated(error: BaseException) -> bool:
    message = str(error).lower()
    return isinstance(error, EOFError) or any(
        word in message for word in ("truncated", "end of file", "eoferror", "not enough image data")
    )


def _header_problem(name: str, data: bytes, error: BaseException) -> Problem:
    if name == "TIFF" and int.from_bytes(data[4:8], "little" if data[:2] == b"II" else "big") >= len(data) - 2:
        return Problem(Reason.TRUNCATED, "the TIFF ends before its directory")
    if _says_truncated(error):
        return Problem(Reason.TRUNCATED, _message(error))
    if name in _WEAK_MAGIC:  # the decoder's message quotes what it found, and that is no image's
        return Problem(Reason.NOT_AN_IMAGE, f"{len(data)} bytes, {kind_of_content(data)} that begins like {name}")
    return Problem(Reason.CORRUPT, _message(error))


def _decode_problem(error: BaseException) -> Problem:
    if isinstance(error, MemoryError):
        return Problem(Reason.TOO_MANY_PIXELS, "out of memory while decoding")
    return Problem(Reason.TRUNCATED if _says_truncated(error) else Reason.CORRUPT, _message(error))
