"""The canonical camera of pointmaps: what makes metric shape learnable from pictures of unknown focal length.

The released rule: X, Y, Z in metres times 768 / fx, for frames 768 pixels wide. Ours for any width W of the frame: the
canonical focal length is W pixels (as if every picture had a horizontal field of view of 53 degrees), so

    canonical XYZ = metric XYZ * scale,  scale = W / fx,  metric XYZ = canonical XYZ / scale,

which is the release at W = 768, and does not change when a picture is resized (fx grows with W). fx is that of the
frame, in its pixels, after all of crop, resize and padding.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from training.data.labelled import pointmap

RELEASED_FOCAL = 768.0
"""Focal length in pixels of the released canonical camera; its frames are 768 pixels wide."""


def canonical_focal(width: int) -> float:
    """Focal length in pixels of the canonical camera for frames of this width: the width itself."""
    if width < 1:
        raise ValueError(f"a frame is {width} pixels wide; give at least 1")
    return float(width)


def canonical_scale(intrinsics: npt.NDArray[np.float64], width: int) -> float:
    """What metric XYZ is multiplied with: canonical focal length / fx.

    Args:
        intrinsics: float [3, 3] of the frame, in its pixels.
        width: of the frame, in pixels.

    Raises:
        ValueError: fx is not a positive number.
    """
    fx = float(intrinsics[0, 0])
    if not math.isfinite(fx) or fx <= 0:
        raise ValueError(f"intrinsics have fx {fx}; a focal length is a positive number of pixels")
    return canonical_focal(width) / fx


def focal_from_scale(scale: float, width: int) -> float:
    """fx in pixels of a frame of this width, from a (predicted) scale: the inverse of `canonical_scale`.

    Raises:
        ValueError: the scale is not a positive number.
    """
    if not math.isfinite(scale) or scale <= 0:
        raise ValueError(f"a scale of {scale} belongs to no camera; it must be a positive number")
    return canonical_focal(width) / scale


def canonical_pointmap(
    depth: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_], intrinsics: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Canonical XYZ of a frame: X = (u - cx) Z / fx, Y = (v - cy) Z / fy at integer pixel indices, times the scale.

    Args:
        depth: float [H, W], z in metres.
        mask: bool [H, W], where depth is known.
        intrinsics: float [3, 3] of the frame.

    Returns:
        float32 [H, W, 3]; 0 outside the mask.
    """
    points = pointmap(np.where(mask, depth, 0).astype(np.float32), intrinsics)
    return (points.astype(np.float64) * canonical_scale(intrinsics, depth.shape[1])).astype(np.float32)
