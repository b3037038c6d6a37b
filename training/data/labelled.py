"""The contract between what yields labelled pictures (folders, shards, the people renderer) and the human tasks.

Conventions. Images are uint8 RGB. Camera axes: x right, y down, z forward, metres. A pixel (u, v) is the integer
column and row of the pixel's CENTRE, so that a camera ray is K^-1 (u, v, 1). Intrinsics are float64 [3, 3] without
skew. Left and right are the person's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IGNORE_PART = 255  # parts: a pixel of unknown class (the released segmentation's ignore index)


def _check(name: str, value: Any, dtype: type, shape: tuple[int | None, ...]) -> None:
    """Raise where an array is not of this dtype and shape; None in `shape` stands for any length."""
    if not isinstance(value, np.ndarray) or value.dtype != np.dtype(dtype):
        given = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"{name}: expected a numpy array of {np.dtype(dtype)}, got {given}; convert it with .astype()")
    fits = value.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, value.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise ValueError(f"{name}: expected shape [{wanted}], got {list(value.shape)}")


@dataclass(frozen=True)
class Picture:
    """One picture with its labels. None = not labelled; every dense label has the image's height and width.

    Attributes:
        image: uint8 [H, W, 3], sRGB.
        mask: bool [H, W], true on any person.
        person: int16 [H, W], index of the person that a pixel shows, -1 on the background.
        parts: uint8 [H, W], classes (seg29.json unless a dataset has its own), 255 = ignore.
        normals: float32 [H, W, 3], unit vectors in camera axes that face the camera; 0 on the background.
        depth: float32 [H, W], z in metres (not the ray's length); 0 on the background.
        albedo: float32 [H, W, 3], linear RGB in 0..1.
        intrinsics: float64 [3, 3].
        keypoints: float32 [n, K, 3], per person x, y in pixels (centre convention) and v: 0 not labelled or outside
            of the picture, 1 occluded, 2 visible (COCO).
        boxes: float32 [n, 4], left, top, right, bottom in pixel EDGES (right - left is the width in pixels: the box
            of a single pixel (u, v) is u, v, u + 1, v + 1, as a COCO box x, y, x + w, y + h drawn round a mask).
        areas: float32 [n], pixels of each person's visible mask.
        id: a name that is unique in its dataset.

    Raises:
        TypeError, ValueError: an array of another dtype or shape.
    """

    image: npt.NDArray[np.uint8]
    mask: npt.NDArray[np.bool_]
    person: npt.NDArray[np.int16]
    parts: npt.NDArray[np.uint8] | None = None
    normals: npt.NDArray[np.float32] | None = None
    depth: npt.NDArray[np.float32] | None = None
    albedo: npt.NDArray[np.float32] | None = None
    intrinsics: npt.NDArray[np.float64] | None = None
    keypoints: npt.NDArray[np.float32] | None = None
    boxes: npt.NDArray[np.float32] | None = None
    areas: npt.NDArray[np.float32] | None = None
    id: str = ""

    def __post_init__(self) -> None:
        _check("image", self.image, np.uint8, (None, None, 3))
        height, width = self.image.shape[:2]
        expected: dict[str, tuple[type, tuple[int | None, ...]]] = {
            "mask": (np.bool_, (height, width)),
            "person": (np.int16, (height, width)),
            "parts": (np.uint8, (height, width)),
            "normals": (np.float32, (height, width, 3)),
            "depth": (np.float32, (height, width)),
            "albedo": (np.float32, (height, width, 3)),
            "intrinsics": (np.float64, (3, 3)),
            "keypoints": (np.float32, (None, None, 3)),
            "boxes": (np.float32, (None, 4)),
            "areas": (np.float32, (None,)),
        }
        for name, (dtype, shape) in expected.items():
            value = getattr(self, name)
            if value is not None or name in ("mask", "person"):
                _check(name, value, dtype, shape)
        counts = {
            name: len(value) for name in ("keypoints", "boxes", "areas") if (value := getattr(self, name)) is not None
        }
        if len(set(counts.values())) > 1:
            raise ValueError(f"keypoints, boxes and areas must list the same people, got {counts}")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.image.shape[0], self.image.shape[1]


def pointmap(depth: npt.NDArray[np.float32], intrinsics: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Unproject depth: X = z K^-1 (u, v, 1).

    Args:
        depth: float [H, W], z in metres, 0 on the background.
        intrinsics: float [3, 3] without skew.

    Returns:
        float32 [H, W, 3], metres in camera axes; the zero vector where depth is 0.

    Raises:
        ValueError: shapes other than these, or a focal length that is not positive.
    """
    if np.ndim(depth) != 2 or np.shape(intrinsics) != (3, 3):
        raise ValueError(f"expected depth [H, W] and intrinsics [3, 3], got {np.shape(depth)}, {np.shape(intrinsics)}")
    fx, fy, skew = float(intrinsics[0, 0]), float(intrinsics[1, 1]), float(intrinsics[0, 1])
    cx, cy = float(intrinsics[0, 2]), float(intrinsics[1, 2])
    if fx <= 0 or fy <= 0 or skew != 0:
        raise ValueError(f"intrinsics need positive focal lengths and no skew, got fx {fx}, fy {fy}, skew {skew}")
    rows, columns = np.arange(depth.shape[0])[:, None], np.arange(depth.shape[1])
    z = depth.astype(np.float64)
    return np.stack([(columns - cx) / fx * z, (rows - cy) / fy * z, z], axis=-1).astype(np.float32)
