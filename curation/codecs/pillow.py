"""Pillow with its process-wide switches at known values, and its pictures as RGB arrays in little memory."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFile

if TYPE_CHECKING:
    from curation.records import Pixels  # which loads Arrow: the decoding child does without


_TILE_SIDE = 4096
_TILE_PIXELS = 1 << 20
TILE_BYTES = 24 * _TILE_PIXELS
"""What converting one tile takes at most: RGBA, its background, the mask and the array."""
ROW_BYTES = 16
"""What Pillow takes for each row beside its pixels: a pointer, and padding to a whole word."""
TILE_ROW_BYTES = 64
"""The same for each row of a tile, which exists in up to four modes at once."""

_lock = threading.Lock()
_depth = 0
_saved: tuple[bool, int | None, Any] = (False, None, None)


@contextmanager
def guarded() -> Iterator[None]:
    """Silence warnings, and make Pillow strict about truncation and free of its own pixel cap (ours came first).

    These are globals of the process: they are set while at least one guarded block runs, in any thread, and put
    back to what the user had afterwards.
    """
    global _depth, _saved
    with _lock:
        if _depth == 0:
            catcher = warnings.catch_warnings()
            catcher.__enter__()
            warnings.simplefilter("ignore")
            _saved = ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, catcher
            ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = False, None
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, catcher = _saved
                catcher.__exit__(None, None, None)


def to_rgb(image: Image.Image, background: tuple[int, int, int], factor: int, invert: bool = False) -> Pixels:
    """Load a Pillow image and convert it tile by tile.

    Args:
        image: opened, of any mode except I and F (other than I;16 and a 16-bit PGM's I).
        background: RGB that alpha is composited on.
        factor: reduce by this whole number in both directions (the mean of each factor x factor block).
        invert: white is zero (16-bit grey only; Pillow handles the others).

    Returns:
        uint8 [ceil(h / factor), ceil(w / factor), 3].
    """
    image.load()
    width, height = image.size
    columns = min(width, max(factor, _TILE_SIDE // factor * factor))
    rows = max(factor, _TILE_PIXELS // columns // factor * factor)
    out = np.empty((-(-height // factor), -(-width // factor), 3), np.uint8)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            tile = image.crop((left, top, min(width, left + columns), min(height, top + rows)))
            tile = _tile_rgb(tile, background, invert)
            if factor > 1:
                tile = tile.reduce(factor)
            array = np.asarray(tile)
            y, x = top // factor, left // factor
            out[y : y + array.shape[0], x : x + array.shape[1]] = array if array.ndim == 3 else array[..., None]
    return out


def reduce(pixels: Pixels, factor: int) -> Pixels:
    """The mean of each factor x factor block; those at the right and lower edge may be smaller."""
    return np.asarray(Image.fromarray(pixels).reduce(factor))


def _tile_rgb(tile: Image.Image, background: tuple[int, int, int], invert: bool) -> Image.Image:
    """RGB or L."""
    mode, transparent = tile.mode, tile.info.get("transparency")
    if mode in ("I", "F") or mode.startswith("I;16"):
        return _deep_grey(tile, background, transparent, invert)
    if transparent is not None and mode in ("1", "L", "RGB", "P"):
        if mode == "RGB" and isinstance(transparent, tuple) and max(transparent) > 255:
            tile.info["transparency"] = tuple(value >> 8 for value in transparent)  # a 16-bit PNG: high bytes
        tile = tile.convert("RGBA")
    elif mode in ("LA", "PA", "La", "RGBa") or (mode == "P" and tile.palette and tile.palette.mode == "RGBA"):
        tile = tile.convert("RGBA")
    if tile.mode == "RGBA":
        canvas = Image.new("RGB", tile.size, background)
        canvas.paste(tile, mask=tile.getchannel("A"))
        return canvas
    if tile.mode == "LAB":
        return _lab(tile)
    return tile if tile.mode in ("L", "RGB") else tile.convert("RGB")


def _deep_grey(tile: Image.Image, background: tuple[int, int, int], transparent: Any, invert: bool) -> Image.Image:
    """16-bit grey to 8 bits: value / 257, rounded. Pillow's own conversion clips at 255, which is white."""
    deep = np.asarray(tile).astype(np.uint32)
    if invert:
        deep = 65535 - deep
    grey = ((deep + 128) // 257).astype(np.uint8)
    if not isinstance(transparent, int):
        return Image.fromarray(grey)
    rgb = np.repeat(grey[..., None], 3, axis=2)
    rgb[deep == transparent] = background
    return Image.fromarray(rgb)


def _lab(tile: Image.Image) -> Image.Image:
    from PIL import ImageCms

    transform = ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")
    result = ImageCms.applyTransform(tile, transform)
    assert result is not None
    return result


def to_srgb(pixels: Pixels, profile: bytes | None) -> Pixels:
    """Convert from an embedded RGB profile to sRGB (relative colorimetric is what little-cms takes by default).
    Profiles that are absent, damaged or of another colour space leave the pixels alone."""
    if not profile or len(profile) < 128 or profile[16:20] != b"RGB ":
        return pixels
    import io

    from PIL import ImageCms

    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), "RGB", "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return pixels
    rows = max(1, _TILE_PIXELS // pixels.shape[1])
    for top in range(0, pixels.shape[0], rows):
        band = Image.fromarray(np.ascontiguousarray(pixels[top : top + rows]))
        ImageCms.applyTransform(band, transform, inPlace=True)
        pixels[top : top + rows] = np.asarray(band)
    return pixels
