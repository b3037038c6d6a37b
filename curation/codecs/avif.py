"""The size that an AV1 stream in an AVIF file says of its frames: what the decoder allocates, whatever the file says.

An AVIF file states the size of its image in a property of its own (`ispe`), which decoders crop to.
"""

from __future__ import annotations

_SEQUENCE_HEADER = 0x0A  # an OBU of that type, with its size, without an extension (AV1 specification, 5.3.2)
_TEMPORAL_DELIMITER = b"\x12\x00"
_CONFIG_BYTES = 4  # of av1C before its OBUs
MAX_CROP = 4
"""Frames may have this many times the pixels of the image: grids and odd sizes are cropped by less."""


class _Bits:
    def __init__(self, data: bytes) -> None:
        self._value, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def take(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise ValueError("the sequence header ends early")
        return (self._value >> self._left) & ((1 << count) - 1)


def frame_size(data: bytes) -> tuple[int, int] | None:
    """Largest width and height of the frames, by the first sequence header at the beginning of a codec configuration or
    of the media data; None where there is none, or one of a form that still images do not have."""
    for name, skip in ((b"av1C", _CONFIG_BYTES), (b"mdat", 0)):
        start = data.find(name)
        while start >= 0:
            at = start + 4 + skip
            if data.startswith(_TEMPORAL_DELIMITER, at):
                at += len(_TEMPORAL_DELIMITER)
            if data[at : at + 1] == bytes([_SEQUENCE_HEADER]):
                try:
                    found = _sequence_header(data[at + 2 : at + 34])
                except ValueError:
                    found = None
                if found is not None:
                    return found
            start = data.find(name, start + 4)
    return None


def _sequence_header(data: bytes) -> tuple[int, int] | None:
    """AV1 specification, 5.5.1, as far as the size."""
    bits = _Bits(data)
    bits.take(4)  # profile, still picture
    if bits.take(1):  # reduced still picture header
        bits.take(5)  # level
    else:
        if bits.take(1):  # timing information
            return None
        delays = bits.take(1)
        for _ in range(bits.take(5) + 1):
            bits.take(12)
            if bits.take(5) > 7:
                bits.take(1)
            if delays and bits.take(1):
                bits.take(4)
    width_bits, height_bits = bits.take(4) + 1, bits.take(4) + 1
    return bits.take(width_bits) + 1, bits.take(height_bits) + 1
