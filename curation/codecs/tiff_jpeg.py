"""JPEG inside TIFF: libtiff fills what is missing from a strip with grey and tells nobody."""

from __future__ import annotations

from typing import Any


def check(tags: Any, data: bytes) -> None:
    """Decode every strip or tile by itself, strictly.

    Raises:
        OSError: one of them ends early or has lost synchronisation.
    """
    import simplejpeg

    shared = tags.get(347, b"")
    tables = shared[:-2] if shared[:2] == b"\xff\xd8" and shared[-2:] == b"\xff\xd9" else b"\xff\xd8"
    for offsets, counts in ((273, 279), (324, 325)):
        for start, size in zip(_numbers(tags, offsets), _numbers(tags, counts), strict=False):
            strip = tables + data[start + 2 : start + size]
            try:
                simplejpeg.decode_jpeg(strip, "CMYK" if tags.get(277) == 4 else "RGB", strict=True)
            except ValueError as error:
                if "remature end" in str(error):
                    raise OSError(f"a JPEG strip of the TIFF is truncated: {error}") from error
                if "Corrupt" in str(error):
                    raise OSError(f"a JPEG strip of the TIFF is damaged: {error}") from error


def _numbers(tags: Any, tag: int) -> tuple[int, ...]:
    value = tags.get(tag, ())
    return value if isinstance(value, tuple) else (value,)
