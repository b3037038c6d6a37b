"""One mask file -> which pixels are people.

| file | people are |
|---|---|
| 1-bit or palette PNG, .npy of bool or whole numbers that are no bytes | values above 0: classes, or 1 = person |
| PNG with transparency that varies (RGBA, LA, tRNS): a cut-out | its alpha, as grey values below |
| grey PNG of 8 or 16 bits (also written as RGB of equal channels), .npy of bytes | see below |
| .npy of floats in 0..1 | above the threshold; of whole numbers beyond that, above 0 |
| colours | refused: no colour says that it is a person |

Grey values below 64 without a 255 are classes, above 0; 0 and one other value are a plain mask, above 0. All others are
a soft mask, of which values above `threshold` x 255 (65535 of 16 bits) are people. A threshold that is given holds for
all grey values, alpha and floats; 0 takes everything above 0.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from curation.codecs.pillow import guarded

Mask = npt.NDArray[np.bool_]
SOFT = 0.5
"""Threshold of soft masks where none is given."""

_CLASSES = 64  # a class id is smaller (29 are released)


class MaskError(ValueError):
    """A mask file cannot be used; the message names it, and says how to mend it."""


def read_mask(path: Path, size: tuple[int, int], threshold: float | None = None) -> Mask:
    """Bool [H, W] of a PNG or .npy file, see the module. One of another size but the same shape is resized.

    Args:
        path: of the file.
        size: height and width of the picture.
        threshold: in 0..1, share of the largest value; None: by the file's values.

    Raises:
        MaskError: it is damaged, in colours, or of another shape.
    """
    try:
        data = path.read_bytes()
        values = _npy(data) if path.suffix == ".npy" else _png(data)
    except MaskError as error:
        raise MaskError(f"mask {path} {error}") from None
    except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged bytes
        # Pillow's own words for bytes of no image hold an address in memory.
        why = "no image" if type(error).__name__ == "UnidentifiedImageError" else str(error)[:120]
        raise MaskError(f"mask {path} cannot be read ({why}): write it anew") from None
    if values.ndim != 2 or not values.size:
        raise MaskError(f"mask {path} is {list(values.shape)}: give [height, width]")
    if abs(values.shape[0] * size[1] / (values.shape[1] * size[0]) - 1) > 0.01:
        turned = abs(values.shape[1] * size[1] / (values.shape[0] * size[0]) - 1) <= 0.01
        raise MaskError(
            f"mask {path} is {values.shape[1]} x {values.shape[0]}, its picture {size[1]} x {size[0]} (width x height"
            f", upright): give one of the same shape{', turned as the picture is by its EXIF orientation' * turned}"
        )
    try:
        mask = _people(values, threshold).astype(np.uint8)
    except MaskError as error:
        raise MaskError(f"mask {path} {error}") from None
    if mask.shape != size:
        mask = np.asarray(cv2.resize(mask, size[::-1], interpolation=cv2.INTER_NEAREST), np.uint8)
    return mask.astype(bool)


def _npy(data: bytes) -> npt.NDArray[Any]:
    values = np.load(io.BytesIO(data), allow_pickle=False)
    if values.dtype.kind not in "bfiu":
        raise MaskError(f"holds {values.dtype}: save an array of numbers")
    return _one_channel(values)


def _png(data: bytes) -> npt.NDArray[Any]:
    """[H, W]: bool or int64 where values are classes, uint8 or uint16 where they are greys or alpha."""
    from PIL import Image

    with guarded(), Image.open(io.BytesIO(data)) as picture:
        if "A" in picture.getbands() or "transparency" in picture.info:
            # A palette's transparency is that of its colours; "RGBA" has it by pixel.
            alpha = np.asarray(picture.convert("RGBA"))[..., 3]
            if alpha.min() < 255:
                return alpha
        if picture.mode == "P":
            return np.asarray(picture).astype(np.int64)  # a palette PNG's values, not its colours
        if picture.mode in ("PA", "RGBA", "LA", "CMYK", "YCbCr"):
            return _one_channel(np.asarray(picture.convert("RGB")))
        values = np.asarray(picture)
    return _one_channel(values.astype(np.uint16) if values.dtype == np.int32 and values.max() < 2**16 else values)


def _one_channel(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[H, W] of [H, W, 1], equal channels, or four of which the last is alpha."""
    if values.ndim != 3:
        return values
    if values.shape[2] in (2, 4) and values[..., -1].min() < values[..., -1].max():
        return np.asarray(values[..., -1])
    colours = values[..., :3] if values.shape[2] >= 3 else values[..., :1]
    if (colours != colours[..., :1]).any():
        raise MaskError(
            "is in colours, and none of them says that it is a person: save people as white on black (8-bit grey), as "
            "alpha, or as class ids with 0 for the background"
        )
    return np.asarray(colours[..., 0])


def _people(values: npt.NDArray[Any], threshold: float | None) -> Mask:
    kind = values.dtype.kind
    if kind == "f":
        if not np.isfinite(values).all():
            raise MaskError("holds nan or infinity: save numbers in 0..1")
        if values.min() < 0 or values.max() > 1:
            if (values == np.rint(values)).all():
                return np.asarray(values > 0)
            raise MaskError(f"goes from {values.min():.4g} to {values.max():.4g}: save numbers in 0..1, or class ids")
        return np.asarray(values > (SOFT if threshold is None else threshold))
    if values.dtype not in (np.uint8, np.uint16):
        return np.asarray(values > 0)
    full = np.iinfo(values.dtype).max
    if threshold is not None:
        return np.asarray(values > threshold * full)
    present = np.unique(values)
    present = present[present > 0]
    plain = len(present) <= 1 or present.max() < _CLASSES
    return np.asarray(values > (0 if plain else SOFT * full))
