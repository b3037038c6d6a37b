"""JPEG: a header walk in pure Python, and a scaled decode that accepts whole pictures only.

libjpeg-turbo fills what is missing from a JPEG with grey and says so in a warning that Pillow and OpenCV do not
pass on. simplejpeg's strict mode turns warnings into errors, so the decision is taken on the message.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from curation.codecs import pillow
from curation.codecs.base import DecodeConfig, Header, Problem, working_size
from curation.codecs.exif import orientation as exif_orientation
from curation.reasons import Reason
from curation.records import Pixels

MAX_SCANS = 100
"""More scans than any encoder writes (mozjpeg's optimised scripts stay under 64). A picture of a few kilobytes and
hundreds of scans costs minutes; libjpeg-turbo's own fuzzing limit is 500."""

MAX_STRAY_BYTES = 16
"""Bytes between the last coded block and the end marker that are taken for padding, not for lost synchronisation."""

_STRAY = re.compile(r"(\d+) extraneous bytes before marker 0xd9")
_HARMLESS = ("Invalid SOS parameters", "Inconsistent progression sequence")
_UNSUPPORTED_FRAMES = {
    **dict.fromkeys((0xC3, 0xC7, 0xCB, 0xCF), "lossless JPEG"),
    **dict.fromkeys((0xC5, 0xC6, 0xCD, 0xCE), "hierarchical JPEG"),
    **dict.fromkeys((0xC9, 0xCA), "arithmetic-coded JPEG"),
}


def read_header(data: bytes) -> Header | Problem:
    """Walk the markers up to the first scan. About 5 us for a usual file."""
    size = len(data)
    orientation: int | None = None
    frame: tuple[int, bytes] | None = None
    position = 2
    while True:
        position = data.find(b"\xff", position)
        while 0 <= position < size and data[position] == 0xFF:
            position += 1
        if not 0 <= position < size:
            return Problem(Reason.TRUNCATED, "the JPEG ends before its first scan")
        marker = data[position]
        position += 1
        if marker < 0xC0 or 0xD0 <= marker <= 0xD8:
            continue  # stray bytes, and markers without a length
        if marker == 0xD9:
            return Problem(Reason.CORRUPT, "the JPEG has no picture")
        end = position + int.from_bytes(data[position : position + 2], "big")
        if position + 2 > size or end > size:
            return Problem(Reason.TRUNCATED, "the JPEG ends before its first scan")
        if end < position + 2:
            return Problem(Reason.CORRUPT, f"a JPEG segment of {end - position} bytes")
        if marker == 0xE1 and orientation is None and data.startswith(b"Exif\x00\x00", position + 2):
            orientation = exif_orientation(data[position + 2 : end])
        elif marker == 0xDA:
            break
        elif marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            if frame is not None:
                return Problem(Reason.CORRUPT, "the JPEG has two frame headers")
            frame = marker, data[position + 2 : end]
        position = end
    if frame is None:
        return Problem(Reason.CORRUPT, "the JPEG has a scan before its frame header")
    return _from_frame(*frame, scan_components=data[position + 2], orientation=orientation or 1)


def _from_frame(marker: int, body: bytes, scan_components: int, orientation: int) -> Header | Problem:
    if marker in _UNSUPPORTED_FRAMES:
        return Problem(Reason.UNSUPPORTED_FORMAT, _UNSUPPORTED_FRAMES[marker])
    if len(body) < 6 or len(body) < 6 + 3 * body[5]:
        return Problem(Reason.CORRUPT, "the JPEG frame header is too short")
    height, width, components = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big"), body[5]
    if body[0] != 8 or components not in (1, 3, 4):
        return Problem(Reason.UNSUPPORTED_FORMAT, f"JPEG with {components} components of {body[0]} bits")
    factors = [(body[7 + 3 * i] >> 4, body[7 + 3 * i] & 15) for i in range(components)]
    if not width or not height or not all(1 <= h <= 4 and 1 <= v <= 4 for h, v in factors):
        return Problem(Reason.CORRUPT, f"JPEG of {width} x {height} pixels, sampling {factors}")
    buffered = marker == 0xC2 or scan_components < components
    across, down = max(h for h, _ in factors), max(v for _, v in factors)
    units = -(-width // (8 * across)) * -(-height // (8 * down))
    if orientation >= 5:
        width, height = height, width
    return Header(
        "JPEG",
        width,
        height,
        orientation,
        mode={1: "L", 3: "RGB", 4: "CMYK"}[components],
        pixel_bytes=7 if components == 4 else 3,
        buffer_bytes=sum(h * v for h, v in factors) * units * 128 if buffered else 0,
    )


def reduction(width: int, height: int, max_side: int | None) -> int:
    """The DCT reduction 1, 2, 4 or 8 (the sizes that have SIMD code) that leaves at least the working size."""
    target = working_size(width, height, max_side)
    for factor in (8, 4, 2):
        if -(-width // factor) >= target[0] and -(-height // factor) >= target[1]:
            return factor
    return 1


def decode(data: bytes, header: Header, config: DecodeConfig, max_side: int | None) -> Pixels | Problem:
    """RGB, uint8 [ceil(h / f), ceil(w / f), 3] with f = `reduction`, not yet oriented."""
    import simplejpeg

    width, height = header.stored_size
    factor = reduction(width, height, max_side)
    expected = (-(-height // factor), -(-width // factor))
    if header.buffer_bytes and data.count(b"\xff\xda") > MAX_SCANS:
        return Problem(Reason.CORRUPT, f"JPEG with more than {MAX_SCANS} scans")

    def attempt(strict: bool) -> Any:
        # The decoder's own idea of the size bounds its memory, so it has to agree with ours first.
        if simplejpeg.decode_jpeg_header(data, strict=strict)[:2] != (height, width):
            raise ValueError("the JPEG has two different sizes")
        return simplejpeg.decode_jpeg(
            data,
            "CMYK" if header.mode == "CMYK" else "RGB",
            min_height=expected[0] if factor > 1 else 0,
            min_width=expected[1] if factor > 1 else 0,
            strict=strict,
        )

    try:
        array = attempt(strict=True)
    except ValueError as error:
        message = str(error)
        reason = _reason(message, data)
        if reason is not None:
            return Problem(reason, message)
        if "Corrupt" in message or message.startswith(_HARMLESS):
            array = attempt(strict=False)
        else:
            array = _pillow(data, header, config, factor)
            if isinstance(array, Problem):
                return array
    if array.shape[:2] != expected:
        return Problem(Reason.CORRUPT, f"decoded to {array.shape[1]} x {array.shape[0]}, not {expected[::-1]}")
    return _cmyk_to_rgb(array) if array.shape[2] == 4 else array


def _reason(message: str, data: bytes) -> Reason | None:
    """The verdict on a message of simplejpeg's strict mode; None when the picture may be whole."""
    if "remature end" in message:
        return Reason.TRUNCATED
    stray = _STRAY.search(message)
    if stray is not None:
        return Reason.CORRUPT if int(stray[1]) > MAX_STRAY_BYTES else None
    if message.startswith(_HARMLESS):
        # Only the first warning is told, so a later one must be ruled out another way.
        return None if data.rfind(b"\xff\xd9") > data.find(b"\xff\xda") else Reason.TRUNCATED
    return Reason.CORRUPT if "Corrupt" in message or "two different sizes" in message else None


def _pillow(data: bytes, header: Header, config: DecodeConfig, factor: int) -> Any:
    """For the few that TurboJPEG's interface does not take (odd sampling factors)."""
    from PIL.JpegImagePlugin import JpegImageFile

    width, height = header.stored_size
    need = header.buffer_bytes + 8 * -(-width // factor) * -(-height // factor)
    if need > config.max_memory:
        return Problem(Reason.TOO_MANY_PIXELS, f"decoding would take {need} bytes")
    with pillow.guarded():
        image = JpegImageFile(io.BytesIO(data))
        image.draft(None, (max(1, width // factor), max(1, height // factor)))
        return pillow.to_rgb(image, config.background, 1)


def _cmyk_to_rgb(cmyk: Any) -> Pixels:
    """JPEG stores inverted ink (Adobe's convention, which Pillow assumes too): R = C * K / 255, in bands of rows."""
    height, width = cmyk.shape[:2]
    rgb = np.empty((height, width, 3), np.uint8)
    rows = max(1, (1 << 19) // width)
    for top in range(0, height, rows):
        band = cmyk[top : top + rows].astype(np.uint16)
        rgb[top : top + rows] = (band[..., :3] * band[..., 3:] + 127) // 255
    return rgb
