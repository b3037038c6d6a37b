"""Pixels through a `Frame`: images, masks, dense targets, whole `Picture`s, and predictions back to the picture.

Labels and geometry are taken from the nearest pixel (a mean of two depths or normals at a border is on no surface);
images and albedo are interpolated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import cv2
import numpy as np
import numpy.typing as npt

from training.data.labelled import IGNORE_PART, Picture
from training.tasks.frames import Frame, stretch

Interpolation = Literal["nearest", "linear", "cubic", "area", "auto", "warp"]
"""nearest, linear, cubic: at any scale, without a filter, as OpenCV's warps.
area: a mean of the pixels that a frame pixel covers where the frame shrinks (no aliasing), else linear.
auto: area where the frame shrinks, else cubic.
warp: linear where the frame shrinks, else cubic (what the released pose crop does, fact 6.4: it asks OpenCV for AREA,
which its warps take as linear)."""

Flip = Sequence[int] | npt.NDArray[np.integer] | None

_FLAGS = {"nearest": cv2.INTER_NEAREST, "linear": cv2.INTER_LINEAR, "cubic": cv2.INTER_CUBIC}
_LONGEST_SIDE = 32_766  # of OpenCV's warps, whose coordinates are 16 bits
_CHANNELS = 4  # that OpenCV warps at once


def warp(
    array: npt.NDArray[Any], frame: Frame, interpolation: Interpolation = "nearest", border: float | None = 0
) -> npt.NDArray[Any]:
    """Resample an array of the picture's pixels.

    Args:
        array: [H, W] or [H, W, C] of bool, uint8, int16, uint16 or float32; bool only to the nearest pixel.
        frame: whose source is (H, W).
        interpolation: see `Interpolation`.
        border: value outside of the picture; None: that of the nearest pixel of the picture.

    Returns:
        [h, w] or [h, w, C] of the same dtype, with (h, w) the frame's size.

    Raises:
        ValueError: an array of another size, an unknown interpolation, sides above 32,766 pixels.
    """
    if array.shape[:2] != frame.source or array.ndim not in (2, 3):
        raise ValueError(f"the frame is for pictures of {frame.source} (height, width), this one is {array.shape}")
    if interpolation not in get_args(Interpolation):
        raise ValueError(f"interpolation is {interpolation!r}: use one of {', '.join(get_args(Interpolation))}")
    if array.dtype == np.bool_:
        if interpolation != "nearest":
            raise ValueError("a bool mask has no mean: warp it with interpolation='nearest'")
        return warp(array.view(np.uint8), frame, "nearest", border).astype(bool)
    linear = frame.matrix[:, :2]
    lengths = np.linalg.norm(linear, axis=0)  # frame pixels per step along x and along y of the picture
    shrinks = bool(lengths.min() < 1)
    if interpolation in ("auto", "warp"):
        interpolation = "cubic" if not shrinks else "area" if interpolation == "auto" else "linear"
    if interpolation == "area":
        if shrinks and np.allclose(frame.matrix, stretch(frame.source, frame.size).matrix, rtol=0, atol=1e-9):
            height, width = frame.size
            return cv2.resize(array, (width, height), interpolation=cv2.INTER_AREA)
        array, frame = _shrink(array, frame, lengths)
        interpolation = "linear"
    if max(*frame.source, *frame.size) > _LONGEST_SIDE:
        raise ValueError(
            f"a picture of {frame.source} or a frame of {frame.size} is too large: OpenCV warps up to {_LONGEST_SIDE} "
            "pixels a side. Make it smaller first"
        )
    flags = _FLAGS[interpolation] | cv2.WARP_INVERSE_MAP
    mode = cv2.BORDER_REPLICATE if border is None else cv2.BORDER_CONSTANT
    matrix = frame.inverse().matrix
    size = frame.size[::-1]

    def resample(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
        fill = (0.0 if border is None else float(border),) * _CHANNELS
        return np.asarray(cv2.warpAffine(np.ascontiguousarray(part), matrix, size, None, flags, mode, fill))

    if array.ndim == 2 or array.shape[2] <= _CHANNELS:
        return resample(array).reshape(*frame.size, *array.shape[2:])
    result = np.empty((*frame.size, array.shape[2]), array.dtype)
    for start in range(0, array.shape[2], _CHANNELS):
        part = array[..., start : start + _CHANNELS]
        result[..., start : start + _CHANNELS] = resample(part).reshape(*frame.size, part.shape[2])
    return result


def _shrink(array: npt.NDArray[Any], frame: Frame, lengths: npt.NDArray[np.float64]) -> tuple[npt.NDArray[Any], Frame]:
    """A picture made smaller by a whole factor, so that what is left to shrink is less than a factor of 2."""
    factors = np.maximum(1, np.floor(1 / lengths + 1e-9).astype(int))
    if factors.max() == 1:
        return array, frame
    height, width = frame.source
    small = (max(1, height // int(factors[1])), max(1, width // int(factors[0])))
    shrunk = cv2.resize(array, small[::-1], interpolation=cv2.INTER_AREA).reshape(*small, *array.shape[2:])
    return shrunk, stretch(frame.source, small).inverse().then(frame)


def warp_normals(
    normals: npt.NDArray[np.float32], frame: Frame, intrinsics: npt.ArrayLike | None = None
) -> npt.NDArray[np.float32]:
    """Normals float32 [H, W, 3] to the frame [h, w, 3]: moved, and turned as `Frame.rotation` says."""
    return _turn(warp(normals, frame), frame, intrinsics)


def warp_points(points: npt.NDArray[np.float32], frame: Frame, intrinsics: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """A pointmap float32 [H, W, 3] to the frame [h, w, 3]: moved, and turned as `Frame.rotation` says."""
    return _turn(warp(points, frame), frame, intrinsics)


def _turn(vectors: npt.NDArray[np.float32], frame: Frame, intrinsics: npt.ArrayLike | None) -> npt.NDArray[np.float32]:
    rotation = frame.rotation(intrinsics)
    if np.array_equal(rotation, np.eye(3)):
        return vectors
    return np.asarray(vectors @ rotation.T.astype(np.float32))


def warp_labels(
    labels: npt.NDArray[np.uint8], frame: Frame, flip: Flip = None, border: int = IGNORE_PART
) -> npt.NDArray[np.uint8]:
    """Classes uint8 [H, W] to the frame; a mirrored one exchanges left and right.

    Args:
        labels: class ids, 255 = ignore.
        frame: the frame.
        flip: [classes], the class of the mirror image of each; needed for a mirrored frame, else not used. Ids beyond
            it stay as they are.
        border: class outside of the picture.
    """
    moved = warp(labels, frame, "nearest", border)
    if not frame.flipped:
        return moved
    if flip is None:
        raise ValueError("the frame is mirrored: give the flip permutation of the classes (left <-> right)")
    table = np.arange(256, dtype=np.uint8)
    table[: len(flip)] = np.asarray(flip)
    return table[moved]


def move(
    picture: Picture,
    frame: Frame,
    *,
    flip_keypoints: Flip = None,
    flip_parts: Flip = None,
    interpolation: Interpolation = "auto",
    parts_border: int = IGNORE_PART,
) -> Picture:
    """Everything of a picture to the frame: pixels, dense labels, camera, keypoints, boxes, areas.

    Args:
        picture: of the frame's source size.
        frame: the frame.
        flip_keypoints: mirror permutation of the keypoints, for mirrored frames of pictures with keypoints.
        flip_parts: mirror permutation of the classes, for mirrored frames of pictures with parts.
        interpolation: of the image; albedo, which is linear light, is interpolated linearly without overshoot.
        parts_border: class outside of the picture.

    Returns:
        a `Picture` of the frame's size. Boxes are not cut to it; areas are scaled, without what is cut off.

    Raises:
        ValueError: another size, or a permutation that is missing.
    """
    changes: dict[str, Any] = {
        "image": warp(picture.image, frame, interpolation),
        "mask": warp(picture.mask, frame),
        "person": warp(picture.person, frame, "nearest", -1),
    }
    if picture.parts is not None:
        changes["parts"] = warp_labels(picture.parts, frame, flip_parts, parts_border)
    if picture.normals is not None:
        changes["normals"] = warp_normals(picture.normals, frame, picture.intrinsics)
    if picture.depth is not None:
        changes["depth"] = warp(picture.depth, frame)
    if picture.albedo is not None:
        changes["albedo"] = warp(picture.albedo, frame, "area")
    if picture.intrinsics is not None:
        changes["intrinsics"] = frame.intrinsics(picture.intrinsics)
    if picture.keypoints is not None:
        changes["keypoints"] = frame.keypoints(picture.keypoints, flip_keypoints)
    if picture.boxes is not None:
        changes["boxes"] = frame.boxes(picture.boxes)
    if picture.areas is not None:
        changes["areas"] = (picture.areas * frame.scale**2).astype(np.float32)
    return dataclasses.replace(picture, **changes)


def restore(
    array: npt.NDArray[Any],
    frame: Frame,
    interpolation: Interpolation = "linear",
    border: float | None = None,
) -> npt.NDArray[Any]:
    """A prediction in the frame's pixels back to the picture's.

    Args:
        array: [h, w] or [h, w, C] of the frame's size. Vectors are not turned back: of normals or points in a mirrored
            or rotated frame, multiply by `Frame.rotation` afterwards.
        frame: picture -> frame.
        interpolation: see `Interpolation`.
        border: value of picture pixels outside of the frame; None: that of the nearest pixel of the frame.

    Returns:
        [H, W] or [H, W, C]. Of an upright frame what lies beyond the picture (a letterbox's padding) is cut off first,
        so that it is mixed into no pixel.
    """
    if array.shape[:2] != frame.size:
        raise ValueError(f"the prediction is {array.shape}, the frame {frame.size} (height, width)")
    back = frame.inverse()
    if frame.axis_aligned and border is None:
        height, width = frame.source
        x0, y0, x1, y1 = frame.boxes((0, 0, width, height), clip=True).astype(np.float64)
        left, top, right, bottom = (round(float(value)) for value in (x0, y0, x1, y1))
        if right > left and bottom > top:
            array = array[top:bottom, left:right]
            matrix = back.matrix.copy()
            matrix[:, 2] += matrix[:, :2] @ np.array((left, top))
            back = Frame(matrix, frame.source, (bottom - top, right - left))
    return warp(array, back, interpolation, border)
