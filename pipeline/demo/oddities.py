"""Odd and broken files: every encoding that a pool carries, and everything that only looks like a picture."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image, features

BOMB_SIDE = 20_000
"""Side of the decompression bomb, px: 400 million pixels in 50 KB."""

Encoded = tuple[bytes, str]
"""Bytes and file extension."""

_ORIENTATION = 0x0112
_UNDO = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def exif_rotated(image: Image.Image, orientation: int) -> bytes:
    """JPEG whose pixels lie as a turned camera stores them; with the tag 2..8 applied it shows `image`."""
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return _save(image.transpose(_UNDO[orientation]), "JPEG", quality=90, exif=exif)


def _save(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _grey16(image: Image.Image) -> bytes:
    grey = np.asarray(image.convert("L"), dtype=np.uint16) * 257
    return _save(Image.fromarray(grey), "PNG", compress_level=1)


def rgb16_png(image: Image.Image) -> bytes:
    """16 bits per channel, which Pillow cannot write."""
    pixels = (np.asarray(image, dtype=np.uint16) * 257).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", image.width, image.height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    )


def _with_alpha(image: Image.Image) -> bytes:
    image = image.copy()
    # The corners fade out; composited on white they become white, and the middle stays.
    fade = Image.radial_gradient("L").resize(image.size).point(lambda value: 255 if value < 200 else 2 * (328 - value))
    image.putalpha(fade.point(lambda value: max(0, min(255, value))))
    return _save(image, "PNG", compress_level=1)


def _animated(image: Image.Image, kind: str) -> bytes:
    others = [Image.new("RGB", image.size, shade) for shade in ((200, 30, 30), (30, 30, 200))]
    return _save(image, kind, save_all=True, append_images=others, duration=200)


def _profiled(image: Image.Image) -> bytes:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return _save(image, "JPEG", quality=90, icc_profile=profile)


def _avif(image: Image.Image) -> Encoded:
    # Not every build of Pillow has AVIF; lossless WebP takes its place in the pool then.
    if features.check("avif"):
        return _save(image, "AVIF", quality=85, speed=10), "avif"
    return _save(image, "WEBP", lossless=True, method=0), "webp"


FORMATS: tuple[tuple[str, Callable[[Image.Image], Encoded]], ...] = (
    ("16-bit grey PNG", lambda image: (_grey16(image), "png")),
    ("16-bit RGB PNG", lambda image: (rgb16_png(image), "png")),
    ("CMYK JPEG", lambda image: (_save(image.convert("CMYK"), "JPEG", quality=92), "jpg")),
    ("grey JPEG", lambda image: (_save(image.convert("L"), "JPEG", quality=90), "jpeg")),
    ("progressive JPEG", lambda image: (_save(image, "JPEG", quality=85, progressive=True), "JPG")),
    ("JPEG with an ICC profile", lambda image: (_profiled(image), "jpg")),
    ("palette PNG", lambda image: (_save(image.quantize(200), "PNG", compress_level=1), "png")),
    ("PNG with alpha", lambda image: (_with_alpha(image), "png")),
    ("animated GIF", lambda image: (_animated(image, "GIF"), "gif")),
    ("animated WebP", lambda image: (_animated(image, "WEBP"), "webp")),
    ("BMP", lambda image: (_save(image, "BMP"), "bmp")),
    ("BMP named .jpg", lambda image: (_save(image, "BMP"), "jpg")),
    ("TIFF", lambda image: (_save(image, "TIFF", compression="tiff_lzw"), "tif")),
    ("AVIF", _avif),
    ("no file extension", lambda image: (_save(image, "JPEG", quality=90), "")),
)
"""Encodings of a picture that must all be read."""


def truncated(rng: random.Random, data: bytes) -> bytes:
    """The first 30 to 70 % of a file."""
    return data[: round(len(data) * rng.uniform(0.3, 0.7))]


def cut_by_two(data: bytes) -> bytes:
    """A download that lost its last two bytes: the end-of-image marker of a JPEG."""
    return data[:-2]


def corrupt_png(rng: random.Random, data: bytes) -> bytes:
    """A complete PNG whose compressed stream is overwritten in the middle and whose checksums are right."""
    start = data.index(b"IDAT")
    length = struct.unpack(">I", data[start - 4 : start])[0]
    body = bytearray(data[start + 4 : start + 4 + length])
    middle = len(body) // 2
    body[middle : middle + 256] = rng.randbytes(256)
    checksum = struct.pack(">I", zlib.crc32(b"IDAT" + bytes(body)))
    return data[: start + 4] + bytes(body) + checksum + data[start + 8 + length :]


def html_page(rng: random.Random) -> bytes:
    """What a server sends instead of a picture that is gone."""
    return (
        f"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body>{rng.random()}</body></html>".encode()
    )


def svg_drawing(rng: random.Random) -> bytes:
    """A vector drawing."""
    radius = rng.randint(10, 90)
    return (
        '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="600" height="600">'
        f'<circle cx="300" cy="300" r="{radius}"/></svg>'
    ).encode()


def heic_header(rng: random.Random) -> bytes:
    """The start of a HEIC file, as phones write it, and noise."""
    return struct.pack(">I", 24) + b"ftypheic\0\0\0\0mif1heic" + rng.randbytes(4000)


def bomb(rng: random.Random) -> bytes:
    """A 1-bit PNG of 20,000 x 20,000 px in about 50 KB; 1.2 GB once decoded to RGB."""
    row = b"\0" + bytes([rng.randrange(256)]) * (BOMB_SIDE // 8)
    compressor = zlib.compressobj(9)
    body = b"".join([compressor.compress(row) for _ in range(BOMB_SIDE)]) + compressor.flush()
    header = struct.pack(">IIBBBBB", BOMB_SIDE, BOMB_SIDE, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    )
