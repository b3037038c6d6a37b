"""JPEG: a header walk in pure Python, and a scaled decode that accepts whole pictures only.

libjpeg-turbo fills what is missing from a JPEG with grey and says so in a warning that Pillow and OpenCV do not
pass on. simplejpeg's strict mode turns warnings into errors, so the decision is taken on the message.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from curation.codecs import jpeg_parts, pillow
from curation.codecs.base import DecodeConfig, Header, Problem, working_size
from curation.codecs.exif import orientation as exif_orientation
from curation.codecs.jpeg_parts import MAX_SEGMENTS, Parts, is_frame, next_marker
from curation.reasons import Reason
from curation.records import Pixels

MAX_BLOCK_VISITS = 1 << 25
"""Blocks of 8 x 8 coefficients that the scans of one file may go over: twelve times those of 178 megapixels in one
color, which the default script of libjpeg (10 scans, 4:2:0) goes over eight times. About five seconds."""

MAX_STRAY_BYTES = 16
"""Bytes between the last coded block and the marker after it that are taken for padding, not for lost
synchronization. libjpeg counts them; up to 8 more that it has read ahead it does not count."""

_STRAY = re.compile(r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0x([0-9a-f]+)")
_LOST = (
    "Premature end of JPEG file",
    "Corrupt JPEG data: premature end of data segment",
    "Corrupt JPEG data: bad Huffman code",
    "Corrupt JPEG data: found marker",  # instead of the restart marker that is due
)
"""All of libjpeg-turbo's warnings that mean lost blocks. Of its others, those about stray bytes, the JFIF revision,
Adobe's transform, ICC numbering and the parameters of a sequential scan are gone when the file has been put together
again; an inconsistent progression is looked into; arithmetic codes and too many lines do not occur."""

ROW_BYTES = 32
"""For each component and pixel of the width: the rows that the decoder works on at a time, 8 and their neighbors."""

_BAND_PIXELS = 1 << 19
_BAND_BYTES = 24 * _BAND_PIXELS
_SAMPLINGS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
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
    position, profile_bytes = 2, 0
    for _ in range(MAX_SEGMENTS):
        marker, position = next_marker(data, position)
        if marker < 0:
            return Problem(Reason.TRUNCATED, "the JPEG ends before its first scan")
        if marker == 0 or 0xD0 <= marker <= 0xD7:
            continue  # no marker, or one without length and meaning
        if marker < 0xC0 or marker == 0xD8:  # refused by libjpeg, by Pillow, or both
            return Problem(Reason.CORRUPT, f"the JPEG has a marker 0x{marker:02x} between its segments")
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
        elif marker == 0xE2:
            profile_bytes += end - position
        elif is_frame(marker):
            if frame is not None:
                return Problem(Reason.CORRUPT, "the JPEG has two frame headers")
            frame = marker, data[position + 2 : end]
        position = end
    else:
        return Problem(Reason.CORRUPT, f"JPEG with more than {MAX_SEGMENTS} segments")
    if frame is None:
        return Problem(Reason.CORRUPT, "the JPEG has a scan before its frame header")
    # Beside the pixels: the profile that the decoder keeps, and a copy without what it stumbles over.
    extra_bytes = profile_bytes + min(profile_bytes, 255 << 16) + size
    return _from_frame(*frame, data[position + 2], orientation or 1, extra_bytes)


def _from_frame(marker: int, body: bytes, scan_components: int, orientation: int, extra_bytes: int) -> Header | Problem:
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
    across, down = max(h for h, _ in factors), max(v for _, v in factors)
    units = -(-width // (8 * across)) * -(-height // (8 * down))
    several_scans = marker == 0xC2 or scan_components < components
    blocks = sum(h * v for h, v in factors) * units if several_scans else 0
    extra_bytes += 128 * blocks + ROW_BYTES * components * down * width
    if components > 1 and not _usual_sampling(factors):
        extra_bytes += 4 * width * height + pillow.TILE_BYTES  # Pillow's image at full size
    if components == 4:
        extra_bytes += min(24 * width * height, _BAND_BYTES)
    if orientation >= 5:
        width, height = height, width
    return Header(
        "JPEG",
        width,
        height,
        orientation,
        mode={1: "L", 3: "RGB", 4: "CMYK"}[components],
        pixel_bytes=7 if components == 4 else 3,
        buffer_bytes=extra_bytes,
        blocks=blocks,
    )


def _usual_sampling(factors: list[tuple[int, int]]) -> bool:
    """Whether these are sampling factors that TurboJPEG takes; there are some more."""
    return (
        all(pair == (1, 1) for pair in factors[1:3])
        and factors[0] in _SAMPLINGS
        and (len(factors) == 3 or factors[3] in ((1, 1), factors[0]))
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
    problem = _check_scans(data) if header.blocks else None
    if problem is not None:
        return problem
    try:
        # The decoder's own idea of the size bounds its memory, so it has to agree with ours first.
        if simplejpeg.decode_jpeg_header(data)[:2] != (height, width):
            return Problem(Reason.CORRUPT, "the JPEG has two different sizes")
        array = _turbo(data, header, factor)
    except (ValueError, KeyError) as error:
        array = _look_again(data, header, config, factor, str(error))
        if isinstance(array, Problem):
            return array
    if array.shape[:2] != expected:
        return Problem(Reason.CORRUPT, f"decoded to {array.shape[1]} x {array.shape[0]}, not {expected[::-1]}")
    return _cmyk_to_rgb(array) if array.shape[2] == 4 else array


def _turbo(data: bytes, header: Header, factor: int, strict: bool = True) -> Any:
    """RGB or CMYK, uint8 [ceil(h / factor), ceil(w / factor), 3 or 4]. Strict: raises ValueError with the first
    warning as its message."""
    import simplejpeg

    width, height = header.stored_size
    return simplejpeg.decode_jpeg(
        data,
        "CMYK" if header.mode == "CMYK" else "RGB",
        min_height=-(-height // factor) if factor > 1 else 0,
        min_width=-(-width // factor) if factor > 1 else 0,
        strict=strict,
    )


def _check_scans(data: bytes) -> Problem | None:
    """Whether all components are there and the scans are not too much work."""
    parts = jpeg_parts.take_apart(data)
    if isinstance(parts, Problem):
        return parts
    visits = parts.block_visits()
    if visits > MAX_BLOCK_VISITS:
        return Problem(
            Reason.TOO_MANY_PIXELS,
            f"{len(parts.scans)} scans go over {visits} blocks of 8 x 8 pixels, more than {MAX_BLOCK_VISITS}",
        )
    return parts.missing()


def _look_again(data: bytes, header: Header, config: DecodeConfig, factor: int, message: str) -> Any:
    """The image of a file that the strict decoder has refused with `message`, or the Problem with it."""
    if _padding(message):
        return _turbo(data, header, factor, strict=False)
    if message.startswith(_LOST):
        return _lost(message)
    parts = jpeg_parts.take_apart(data)
    if isinstance(parts, Problem):
        return parts
    plain = parts.joined()
    try:
        return _turbo(plain, header, factor)
    except (ValueError, KeyError) as error:
        message = str(error)
    del plain  # one copy at a time
    if "subsampling" in message:
        return _pillow(parts, header, config, factor)
    if _padding(message):
        problem = None
    elif _STRAY.fullmatch(message) is not None:
        problem = jpeg_parts.loss_behind_stray_bytes(parts, _stray, MAX_BLOCK_VISITS)
    elif message.startswith("Inconsistent progression sequence"):
        problem = _untold_loss(parts, lambda joined: zlib.crc32(_turbo(joined, header, factor, strict=False)))
    else:
        problem = _lost(message)
    return problem or _turbo(parts.joined(), header, factor, strict=False)


def _lost(message: str) -> Problem:
    return Problem(Reason.TRUNCATED if "remature end" in message else Reason.CORRUPT, message)


def _stray(data: bytes) -> int | Problem:
    """The stray bytes before the end marker of a JPEG, or what else is wrong with it."""
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except ValueError as error:
        return _padding(str(error)) or _lost(str(error))
    return 0


def _padding(message: str) -> int:
    """How many bytes were left when all scans had been decoded, where they were few; 0 for other messages."""
    stray = _STRAY.fullmatch(message)
    return int(stray[1]) if stray and stray[2] == "d9" and int(stray[1]) <= MAX_STRAY_BYTES else 0


def _untold_loss(parts: Parts, digest: Callable[[bytes], int]) -> Problem | None:
    """Whether blocks are missing, for decoders that do not tell: what they put in place of the missing ones depends
    on the bytes that follow, and a whole image does not."""
    problem = parts.missing() or parts.missing_intervals()
    if problem is not None:
        return problem
    if 3 * parts.block_visits() > MAX_BLOCK_VISITS:
        return Problem(Reason.TOO_MANY_PIXELS, "an odd JPEG that is too large to look for missing blocks")
    whole = digest(parts.joined())
    if digest(parts.joined(jpeg_parts.lengthened)) != whole:
        return Problem(Reason.TRUNCATED, "the JPEG has blocks missing")
    if len(parts.scans) == 1:
        count = MAX_STRAY_BYTES + 1
        if len(parts.scans[0].coded) > count and whole == digest(
            parts.joined(lambda coded: jpeg_parts.altered(coded, count))
        ):
            return Problem(Reason.CORRUPT, f"the JPEG has more than {MAX_STRAY_BYTES} bytes after its last block")
    return None


def _pillow(parts: Parts, header: Header, config: DecodeConfig, factor: int) -> Any:
    """For the few that TurboJPEG's interface does not take (odd sampling factors)."""
    from PIL.JpegImagePlugin import JpegImageFile

    width, height = header.stored_size

    def digest(joined: bytes) -> int:
        image, crc = JpegImageFile(io.BytesIO(joined)), 0
        for top in range(0, height, 64):
            crc = zlib.crc32(image.crop((0, top, width, min(height, top + 64))).tobytes(), crc)
        return crc

    with pillow.guarded():
        problem = _untold_loss(parts, digest)
        if problem is not None:
            return problem
        image = JpegImageFile(io.BytesIO(parts.joined()))
        image.draft(None, (max(1, width // factor), max(1, height // factor)))
        return pillow.to_rgb(image, config.background, 1)


def _cmyk_to_rgb(cmyk: Any) -> Pixels:
    """JPEG stores inverted ink (Adobe's convention, which Pillow assumes too): R = C * K / 255, in bands of rows."""
    height, width = cmyk.shape[:2]
    rgb = np.empty((height, width, 3), np.uint8)
    rows = max(1, _BAND_PIXELS // width)
    for top in range(0, height, rows):
        band = cmyk[top : top + rows].astype(np.uint16)
        rgb[top : top + rows] = (band[..., :3] * band[..., 3:] + 127) // 255
    return rgb
