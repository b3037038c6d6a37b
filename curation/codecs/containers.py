"""Headers of PNG, WebP and GIF, read without Pillow: it would allocate canvases or inflate metadata to read them."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from curation.codecs.base import Header, Problem
from curation.codecs.exif import orientation as exif_orientation
from curation.reasons import Reason

_PNG_MODES = {
    **{(0, depth): mode for depth, mode in ((1, "1"), (2, "L"), (4, "L"), (8, "L"), (16, "I;16"))},
    (2, 8): "RGB",
    (2, 16): "RGB;16",
    (4, 8): "LA",
    (4, 16): "LA;16",
    (6, 8): "RGBA",
    (6, 16): "RGBA;16",
    **{(3, depth): "P" for depth in (1, 2, 4, 8)},
}
_PNG_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2}
_PNG_PIXELS = frozenset((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"))
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))

WEBP_PIXEL_BYTES = 18
"""Two RGBA canvases of libwebp's animation decoder, a copy as bytes, and Pillow's: 16.4 were measured."""
WEBP_FRAME_BYTES = 512
"""What libwebp's demultiplexer keeps of each frame."""
GIF_PIXEL_BYTES = 3
MAX_SMALL_PARTS = 65_536
"""Chunks or sub-blocks that may be of any size; beyond them the mean must be `MIN_PART_BYTES`. Encoders write PNG
chunks of 8 KB and more and GIF sub-blocks of 255 bytes; a file of empty ones costs a reader seconds and gigabytes."""
MIN_PART_BYTES = 64
MAX_GIF_PREFACE = 4 * 1024 * 1024
"""Bytes of comments and extensions before the first frame of a GIF, which every reader holds."""
_TEXT_BYTES = 5 << 20
"""What Pillow takes for one compressed text of at most 1 MiB: its bytes, and four bytes a character."""
MAX_TEXT_BYTES = 5 * (64 << 20)
"""Pillow refuses texts of more than 64 MiB in all."""


def read_png(data: bytes) -> Header | Problem:
    """Walk the chunks. An eXIf chunk counts wherever it stands; without IEND the file ends early."""
    if len(data) < 33:
        return Problem(Reason.TRUNCATED, "the PNG ends inside its header")
    if data[8:16] != b"\x00\x00\x00\rIHDR":
        return Problem(Reason.CORRUPT, "the PNG does not start with IHDR")
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    mode = _PNG_MODES.get((colour, depth))
    if mode is None or not 0 < width < 1 << 31 or not 0 < height < 1 << 31:
        return Problem(Reason.CORRUPT, f"PNG of {width} x {height} pixels, colour type {colour}, {depth} bits")
    frames, orientation, ended, position, chunks, text = 1, 1, False, 33, 0, 0
    while position + 12 <= len(data) and not ended:
        chunks += 1
        length, name = struct.unpack_from(">I4s", data, position)
        if position + 12 + length > len(data):
            break
        if name == b"eXIf":
            orientation = exif_orientation(data[position + 8 : position + 8 + length])
        elif name in (b"zTXt", b"iTXt", b"iCCP", b"tEXt"):
            text += _TEXT_BYTES + 5 * length
        elif name == b"acTL" and length == 8:
            frames = max(1, struct.unpack_from(">I", data, position + 8)[0])
        elif not name[0] & 0x20 and name not in _PNG_PIXELS:
            return Problem(Reason.UNSUPPORTED_FORMAT, f"PNG with the private critical chunk {name!r}")
        ended = name == b"IEND"
        position += 12 + length
    if chunks > MAX_SMALL_PARTS + len(data) // MIN_PART_BYTES:
        return Problem(Reason.CORRUPT, f"PNG of {chunks} chunks in {len(data)} bytes")
    if orientation >= 5:
        width, height = height, width
    return Header(
        "PNG",
        width,
        height,
        orientation,
        mode,
        min(frames, 2**31 - 1),
        pixel_bytes=_PNG_PIXEL_BYTES.get(mode, 4),
        buffer_bytes=len(data) + min(text, MAX_TEXT_BYTES),
        ends_early=not ended,
    )


def strip_png(data: bytes, keep_profile: bool) -> bytes:
    """The same PNG with nothing but its picture. Compressed text, profiles and animation chunks are legal traps: a
    reader that inflates them takes their memory, or refuses a good picture because of them."""
    kept = bytearray(data[:8])
    position = 8
    view = memoryview(data)
    while position + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if name in _PNG_PIXELS or (keep_profile and name == b"iCCP"):
            kept += view[position:end]
        if name == b"IEND":
            break
        position = end
    return bytes(kept)


def png_lacks_rows(data: bytes) -> bool:
    """True when the zlib stream inflates to fewer bytes than the picture has. Reads the whole stream, a mebibyte at
    a time: for pictures of which the decoder's result does not show that its last row was there."""
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    passes = _ADAM7 if data[28] else ((0, 0, 1, 1),)
    need = 0
    for left, top, step, down in passes:
        columns, rows = -(-(width - left) // step), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            need += rows * (1 + (columns * bits + 7) // 8)
    inflater, position, view = zlib.decompressobj(), 8, memoryview(data)
    while position + 12 <= len(data) and need > 0 and not inflater.eof:
        length, name = struct.unpack_from(">I4s", data, position)
        pending: Any = view[position + 8 : position + 8 + length] if name == b"IDAT" else b""
        while len(pending) and need > 0 and not inflater.eof:
            need -= len(inflater.decompress(pending, 1 << 20))
            pending = inflater.unconsumed_tail
        position += 12 + length
    while need > 0 and not inflater.eof and (rest := inflater.decompress(inflater.unconsumed_tail, 1 << 20)):
        need -= len(rest)
    return need > 0


def read_webp(data: bytes) -> Header | Problem:
    """VP8, VP8L or VP8X, with the frames counted and EXIF found."""
    if len(data) < 30:
        return Problem(Reason.TRUNCATED, "the WebP ends inside its header")
    kind = data[12:16]
    if kind == b"VP8 ":
        if data[23:26] != b"\x9d\x01\x2a":
            return Problem(Reason.CORRUPT, "the WebP has no key frame")
        width, height = (value & 0x3FFF for value in struct.unpack_from("<HH", data, 26))
        alpha = False
    elif kind == b"VP8L":
        if data[20] != 0x2F:
            return Problem(Reason.CORRUPT, "the WebP has no lossless signature")
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height, alpha = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1)
    elif kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        alpha = bool(data[20] & 0x10)
    else:
        return Problem(Reason.CORRUPT, f"WebP with the first chunk {kind!r}")
    if not width or not height:
        return Problem(Reason.CORRUPT, f"WebP of {width} x {height} pixels")
    orientation, frames, position = 1, 0, 12
    while kind == b"VP8X" and position + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, position)
        frames += name == b"ANMF"
        if name == b"EXIF":
            orientation = exif_orientation(data[position + 8 : position + 8 + length])
        position += 8 + length + (length & 1)
    if orientation >= 5:
        width, height = height, width
    return Header(
        "WEBP",
        width,
        height,
        orientation,
        "RGBA" if alpha else "RGB",
        max(1, frames),
        WEBP_PIXEL_BYTES,
        buffer_bytes=3 * len(data) + WEBP_FRAME_BYTES * frames,
        ends_early=struct.unpack_from("<I", data, 4)[0] + 8 > len(data),
    )


def read_gif(data: bytes) -> Header | Problem:
    """The canvas, grown to hold the first frame as Pillow does, and the number of frames."""
    if len(data) < 13:
        return Problem(Reason.TRUNCATED, "the GIF ends inside its header")
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    size = len(data)
    frames, position = 0, 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    blocks, most = 0, MAX_SMALL_PARTS + size // MIN_PART_BYTES
    while position < size and data[position] in (0x21, 0x2C):
        if data[position] == 0x2C:
            if position + 10 > size:
                break
            left, top, across, down, flags = struct.unpack_from("<HHHHB", data, position + 1)
            if frames == 0:
                width, height = max(width, left + across), max(height, top + down)
                if position > MAX_GIF_PREFACE:
                    return Problem(Reason.UNREADABLE, f"{position} bytes of comments before the first frame")
            frames += 1
            position += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
        else:
            position += 2
        while position < size and data[position]:
            position += data[position] + 1
            blocks += 1
            if blocks > most:
                return Problem(Reason.CORRUPT, f"GIF of {blocks} sub-blocks in {position} bytes")
        position += 1
    if frames == 0:
        return Problem(Reason.TRUNCATED if position >= size else Reason.CORRUPT, "the GIF has no frame")
    if not width or not height:
        return Problem(Reason.CORRUPT, f"GIF of {width} x {height} pixels")
    return Header("GIF", width, height, 1, "P", frames, GIF_PIXEL_BYTES, buffer_bytes=2 * len(data) + MAX_GIF_PREFACE)
