"""The one value that decoding needs from EXIF: the orientation."""

from __future__ import annotations

import struct

_TAG = 0x0112
_FORMATS = {1: "B", 3: "H", 4: "I"}


def orientation(block: bytes) -> int:
    """The orientation in an EXIF block (a TIFF header, with or without `Exif\\0\\0` before it).

    Returns:
        1..8; 1 when there is none, when its value is anything else, and when the block is damaged.
    """
    block = block.removeprefix(b"Exif\x00\x00")
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 10:
        return 1
    start = struct.unpack_from(order + "I", block, 4)[0]
    if start + 2 > len(block):
        return 1
    count = struct.unpack_from(order + "H", block, start)[0]
    for entry in range(start + 2, min(start + 2 + 12 * count, len(block) - 11), 12):
        tag, kind = struct.unpack_from(order + "HH", block, entry)
        if tag == _TAG:
            if kind not in _FORMATS:
                return 1
            value: int = struct.unpack_from(order + _FORMATS[kind], block, entry + 8)[0]
            return value if 1 <= value <= 8 else 1
    return 1


_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}


def is_sound(block: bytes) -> bool:
    """True when the first directory is as cameras write it: known types, every value inside the block."""
    return 0 <= _walk(block, strict=True) <= len(block)


def copied_bytes(block: bytes) -> int:
    """Bytes that a reader takes which copies the value of every entry of the first directory."""
    return _walk(block, strict=False)


def _walk(block: bytes, strict: bool) -> int:
    block = block.removeprefix(b"Exif\x00\x00")
    order = {b"II*\x00": "<", b"MM\x00*": ">"}.get(block[:4])
    if order is None or len(block) < 10:
        return -1
    start = struct.unpack_from(order + "I", block, 4)[0]
    if start + 2 > len(block):
        return -1
    count = struct.unpack_from(order + "H", block, start)[0]
    if strict and start + 2 + 12 * count > len(block):
        return -1
    total = 0
    entries = block[start + 2 : start + 2 + 12 * count]
    for _, kind, number, offset in struct.iter_unpack(order + "HHII", entries[: len(entries) // 12 * 12]):
        size = _SIZES.get(kind, 0) * number
        if strict and (not size or (size > 4 and offset + size > len(block))):
            return -1
        total += min(size, len(block))
    return total
