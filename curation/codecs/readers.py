"""Would a reader take the image? Kept means readable by Pillow at its defaults, as Hugging Face `datasets` and
`webdataset` call it: `open`, `load`, `getexif`, and the turn by the EXIF orientation.

The decoders of this package are more careful about memory and less about metadata, so each format asks here whether
its file would stop a reader that comes after us.
"""

from __future__ import annotations

import io
import re
from typing import Any

from curation.codecs.exif import copied_bytes

_EXIF = b"Exif\x00\x00"
_MAX_COPIES = 8
_MAX_JUNK = 1 << 18
_SHORTEST = {0xE0: (b"JFIF", 14), 0xE2: (b"ICC_PROFILE\x00", 14), 0xEE: (b"Adobe", 12)}
"""Marker -> name of its segment, and the bytes that it has at least; Pillow reads beyond the end of shorter ones."""
_NO_FILL = re.compile(rb"[^\xff]")


class UnreadableError(Exception):
    """Pillow at its defaults refuses the file, though its pixels could be decoded."""


def check_magic(module: Any, data: bytes) -> None:
    """Raise `UnreadableError` where `Image.open` would not recognise a file that our own sniffing does."""
    if module._accept(data[:16]) is not True:
        raise UnreadableError(f"Pillow does not recognise a file that starts with {data[:16]!r}")


def check_metadata(image: Any) -> None:
    """What `datasets` does with an opened image beside its pixels. Raises `UnreadableError`."""
    block = image.info.get("exif")
    if isinstance(block, bytes) and copied_bytes(block) > _MAX_COPIES * len(block) + (1 << 20):
        raise UnreadableError("EXIF whose entries repeat the same bytes without end")
    try:
        exif = image.getexif()
        if exif.get(0x0112) in range(2, 9) and "exif" in image.info:
            exif.tobytes()  # `ImageOps.exif_transpose` writes the block again without its orientation
    except MemoryError:
        raise
    except Exception as error:
        raise UnreadableError(f"its EXIF: {type(error).__name__}: {error}"[:300]) from error


def check_jpeg(data: bytes) -> None:
    """Raise `UnreadableError` where Pillow refuses the segments before the first scan.

    Only what can make it refuse is shown to it: EXIF that is damaged or that turns the image, and the index
    of a multi-picture file (0.2 ms). The usual file costs 5 us.
    """
    if not _is_odd(data):
        return
    from PIL.JpegImagePlugin import jpeg_factory

    from curation.codecs.pillow import guarded

    with guarded():
        try:
            image = jpeg_factory(io.BytesIO(data))  # not `Image.open`, which other packages replace
        except MemoryError:
            raise
        except Exception as error:
            # Pillow's message has an address in it, and the same bytes shall give the same words.
            raise UnreadableError("Pillow does not open it") from error
        check_metadata(image)


def _is_odd(data: bytes) -> bool:
    """Whether anything before the first scan may stop Pillow. Raises `UnreadableError` where it would take Pillow,
    which reads what lies between segments byte by byte, seconds or minutes to find out."""
    from curation.codecs.exif import is_sound, orientation

    position, size, blocks, junk, odd = 2, len(data), 0, 0, False
    while position + 4 <= size:
        start = position
        marker = data[position + 1]
        if data[position] != 0xFF:  # stray bytes: Pillow has its own idea of them
            odd, position = True, data.find(b"\xff", position)
        elif marker == 0xFF:
            found = _NO_FILL.search(data, position)
            position = -1 if found is None else found.start() - 1
        elif marker < 0xC0 or 0xD0 <= marker <= 0xD8:  # a marker without a length
            odd, position = True, position + 2
        elif marker == 0xDA:
            return odd
        else:
            end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
            if marker == 0xE1 and data.startswith(_EXIF, position + 4):
                block = data[position + 4 : end]
                blocks += 1
                odd = odd or blocks > 1 or not is_sound(block) or orientation(block) != 1
            elif marker == 0xE2 and data.startswith(b"MPF\x00", position + 4):
                odd = True
            elif marker in _SHORTEST:
                name, least = _SHORTEST[marker]
                odd = odd or (data.startswith(name, position + 4) and end - position - 4 < least)
            start = position = max(end, position + 2)
        if position < 0:
            return True
        junk += position - start
        if junk > _MAX_JUNK:
            raise UnreadableError(f"more than {_MAX_JUNK} bytes between the segments before its first scan")
    return True
