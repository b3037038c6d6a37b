"""What an image itself says about data mining: `plus:DataMining` and `tdm:reservation` in its XMP.

Only bytes beside the pixels are looked at, at most `MAX_PACKETS` packets of 256 KiB: JPEG APP1 segments before the
first scan, PNG iTXt chunks before the first IDAT, the XMP chunk of a WebP. TIFF, AVIF, JPEG 2000 and GIF store it in
more ways than it is worth to walk: there the values are looked for in the first and last 64 KiB. A JPEG
costs 10 to 20 us.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from curation.rights import prohibits

MAX_PACKETS = 8
_PACKET_BYTES = 256 << 10
_END_BYTES = 64 << 10
_MAX_SEGMENTS = 256
_XAP = b"http://ns.adobe.com/xap/1.0/\x00"
_ITXT = b"XML:com.adobe.xmp\x00"
_SEARCHED = frozenset(("TIFF", "AVIF", "JPEG2000", "GIF"))

# As an attribute, as an element's text, or as an element's resource; the name of the prefix is free.
_VALUE = rb"""(?:\s*=\s*["']|(?:\s+[\w:]*resource\s*=\s*["']|\s*>))\s*([^"'<>]{0,200})"""
_DATA_MINING = re.compile(rb"[:<\s]DataMining" + _VALUE)
_VOCABULARY = re.compile(rb"DMI-[A-Z-]{1,60}")
_RESERVATION = re.compile(rb":reservation" + _VALUE)


def data_mining(data: bytes, format_name: str) -> str | None:
    """The value of PLUS's vocabulary, such as 'DMI-PROHIBITED-AIMLTRAINING'; 'tdm-reservation: 1'; None when nothing is
    said. Of several, the first that prohibits counts. Never raises on the bytes.
    """
    first: str | None = None
    for packet in _packets(data, format_name):
        for value in _said(packet):
            if prohibits(value):
                return value
            first = first or value
    return first


def _said(packet: bytes) -> Iterator[str]:
    if b"DataMining" in packet:
        for match in _DATA_MINING.finditer(packet):
            token = _VOCABULARY.search(match[1].upper())
            if token:
                yield token[0].decode()
    if b"tdmrep" in packet and any(match[1].strip() == b"1" for match in _RESERVATION.finditer(packet)):
        yield "tdm-reservation: 1"


def _packets(data: bytes, format_name: str) -> Iterator[bytes]:
    if format_name == "JPEG":
        return _jpeg(data)
    if format_name == "PNG":
        return _png(data)
    if format_name == "WEBP":
        return _webp(data)
    return _ends(data) if format_name in _SEARCHED else iter(())


def _jpeg(data: bytes) -> Iterator[bytes]:
    position, found = 2, 0
    for _ in range(_MAX_SEGMENTS):
        position = data.find(b"\xff", position) + 1
        if not 0 < position < len(data) - 2:
            return
        marker = data[position]
        if marker < 0xC0 or marker == 0xFF or 0xD0 <= marker <= 0xD8:
            continue  # stray bytes, fill bytes, and markers without a length
        if marker in (0xD9, 0xDA):
            return
        start, end = position + 3, position + 1 + int.from_bytes(data[position + 1 : position + 3], "big")
        if marker == 0xE1 and data.startswith(_XAP, start) and found < MAX_PACKETS:
            found += 1
            yield data[start + len(_XAP) : end]
        position = max(end, start)


def _png(data: bytes) -> Iterator[bytes]:
    position, found = 33, 0
    for _ in range(_MAX_SEGMENTS):
        if position + 12 > len(data):
            return
        length, name = struct.unpack_from(">I4s", data, position)
        if name == b"IDAT" or found >= MAX_PACKETS:
            return
        start = position + 8
        if name == b"iTXt" and data.startswith(_ITXT, start):
            found += 1
            yield _international_text(data[start + len(_ITXT) : start + min(length, _PACKET_BYTES)])
        position += 12 + length


def _international_text(body: bytes) -> bytes:
    """The text of an iTXt chunk, behind its keyword: compression flag and method, language, translated keyword."""
    parts = body[2:].split(b"\x00", 2)
    if len(parts) < 3:
        return b""
    if body[:1] != b"\x01":
        return parts[2]
    try:
        return zlib.decompressobj().decompress(parts[2], _PACKET_BYTES)
    except zlib.error:
        return b""


def _webp(data: bytes) -> Iterator[bytes]:
    position = 12
    for _ in range(_MAX_SEGMENTS):
        if position + 8 > len(data):
            return
        name, length = struct.unpack_from("<4sI", data, position)
        if name == b"XMP ":
            yield data[position + 8 : position + 8 + min(length, _PACKET_BYTES)]
            return
        position += 8 + length + (length & 1)


def _ends(data: bytes) -> Iterator[bytes]:
    for end in sorted({min(len(data), _END_BYTES), len(data)}):
        part = data[max(0, end - _END_BYTES) : end]
        if b"adobe:ns:meta" in part:
            yield part
