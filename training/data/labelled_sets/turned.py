"""Labels of an image with an EXIF orientation whose size does not tell whether they are of the upright image.

An image that is turned by a quarter shows by its size that its labels are not: unless it is square. A half turn and a
mirror never show. What tells is whether edges of the labels lie on edges of the image; keypoints have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

CLEARLY = 1.3
"""Edges of the image under the edges of labels, one way to the other: less is no evidence (ours)."""

UPRIGHT, STORED, UNKNOWN = "upright", "stored", "unknown"


def is_ambiguous(orientation: int, size: tuple[int, int]) -> bool:
    """Whether an image (height, width) that is stored in this EXIF orientation has its upright size when stored."""
    return orientation in (2, 3, 4) or (orientation >= 5 and size[0] == size[1])


def oriented(array: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """[H, W, ...] as stored -> upright."""
    if orientation >= 5:
        array = array.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return array[::-1] if orientation in (3, 4, 7, 8) else array


def labels_are(image: npt.NDArray[np.uint8], labels: npt.NDArray[np.integer], orientation: int) -> str:
    """Of which image labels are: `UPRIGHT`, `STORED` (the un-turned one), or `UNKNOWN`.

    Args:
        image: uint8 [H, W, 3], upright.
        labels: integer [H, W], classes or people.
        orientation: EXIF's, of the stored image.
    """
    edges = _edges(image.astype(np.int32).sum(axis=-1))
    here, turned = (_mean(edges, way) for way in (labels, oriented(labels, orientation)))
    if here is None or turned is None or here == turned:
        return UNKNOWN
    if here > CLEARLY * turned:
        return UPRIGHT
    return STORED if turned > CLEARLY * here else UNKNOWN


def _edges(values: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """[H - 1, W - 1], the larger step to the right or down."""
    wide = values.astype(np.int64)
    return np.maximum(np.abs(np.diff(wide, axis=0))[:, :-1], np.abs(np.diff(wide, axis=1))[:-1])


def _mean(edges: npt.NDArray[np.int64], labels: npt.NDArray[np.integer]) -> float | None:
    """Mean step of the image where labels change; None where they do not."""
    changes = _edges(labels) > 0
    return float(edges[changes].mean()) if changes.any() else None
