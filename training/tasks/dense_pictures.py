"""Pictures of dense predictions: uint8 RGB arrays of the picture's size, or side by side with it."""

from __future__ import annotations

import colorsys

import cv2
import numpy as np
import numpy.typing as npt

from training.tasks.parts import PartClasses

Pixels = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]

DEPTH_LIMITS = (0.1, 250.0)
"""Metres that the bounds of a depth picture are kept in (released)."""
ALBEDO_BACKGROUND = 100
_GOLDEN = (5**0.5 - 1) / 2  # a turn by this share of the circle keeps all hues so far well apart
_IGNORED = (255, 255, 255)


def palette(classes: PartClasses) -> Pixels:
    """A colour per class, uint8 [classes, 3] RGB: black for the background, one hue for a class and its mirror image.

    The second of a flip pair (the right side in the released classes) is darker.
    """
    colours = np.zeros((len(classes), 3), np.uint8)
    hue = 0.0
    for index, mirrored in enumerate(classes.flip):
        if index == classes.background or mirrored < index:
            continue
        hue = (hue + _GOLDEN) % 1.0
        for which, value in ((mirrored, 0.6), (index, 1.0)):
            colours[which] = np.round(255 * np.array(colorsys.hsv_to_rgb(hue, 0.75, value)))
    return colours


def parts_picture(image: Pixels, labels: Pixels, classes: PartClasses, opacity: float = 0.5) -> Pixels:
    """Colours of the parts over the image; the background keeps the image, ignored pixels (255) turn white.

    Args:
        image: uint8 [H, W, 3].
        labels: uint8 [H, W].
        classes: those of the labels.
        opacity: share of the colours (released 0.5).
    """
    _same_size(image, labels)
    table = np.full((256, 3), _IGNORED, np.uint8)
    table[: len(classes)] = palette(classes)
    mixed = np.round((1 - opacity) * image + opacity * table[labels]).astype(np.uint8)
    if classes.background is None:
        return mixed
    return np.where((labels == classes.background)[..., None], image, mixed)


def normals_picture(normals: Floats, mask: Mask | None = None, background: Pixels | None = None) -> Pixels:
    """(n + 1) / 2 * 255 with x as red, y as green and z as blue (released).

    Args:
        normals: float32 [H, W, 3], unit vectors.
        mask: bool [H, W], what is drawn; None = all.
        background: uint8 [H, W, 3] where nothing is; None = black.
    """
    colours = np.round((np.nan_to_num(normals).clip(-1, 1) + 1) * 127.5).astype(np.uint8)
    return _on(colours, mask, background)


def depth_bounds(depth: Floats, mask: Mask | None = None) -> tuple[float, float]:
    """Near and far bound for pictures: 1st and 99th percentile of valid depths, kept in 0.1..250 m (released).

    Give the same bounds to all pictures that are to be compared. (0.1, 250) where no depth is valid.
    """
    values = depth[_valid_depth(depth, mask)]
    if not values.size:
        return DEPTH_LIMITS
    near, far = np.percentile(values, (1, 99)).clip(*DEPTH_LIMITS)
    return float(near), float(far)


def depth_picture(
    depth: Floats,
    mask: Mask | None = None,
    bounds: tuple[float, float] | None = None,
    background: Pixels | None = None,
) -> Pixels:
    """Inverse depth in turbo colours: near is red, far is blue.

    Args:
        depth: float32 [H, W], metres; pixels that are not above 0 are not drawn.
        mask: bool [H, W], what is drawn; None = all.
        bounds: near and far in metres, as from `depth_bounds`; None = this picture's own.
        background: uint8 [H, W, 3] where nothing is; None = black.
    """
    near, far = bounds or depth_bounds(depth, mask)
    if not 0 < near <= far:
        raise ValueError(f"bounds are ({near}, {far}); give 0 < near <= far in metres")
    valid = _valid_depth(depth, mask)
    inverse = 1 / np.where(valid, depth, far).clip(near, far)
    share = (inverse - 1 / far) / max(1 / near - 1 / far, 1e-12)
    colours = np.asarray(
        cv2.applyColorMap(np.round(255 * share).astype(np.uint8), cv2.COLORMAP_TURBO)[..., ::-1], np.uint8
    )
    return _on(colours, valid, background)


def albedo_picture(image: Pixels, albedo: Floats, mask: Mask | None = None, linear: bool = True) -> Pixels:
    """Image and albedo side by side, uint8 [H, 2 W, 3]; grey 100 where the albedo is not drawn (released).

    Args:
        image: uint8 [H, W, 3].
        albedo: float32 [H, W, 3] in 0..1.
        mask: bool [H, W], what is drawn; None = all.
        linear: the albedo is linear light (as our renderer's) and is encoded as sRGB to be seen; off: shown as it is.
    """
    _same_size(image, albedo)
    values = np.nan_to_num(albedo).clip(0, 1)
    if linear:  # IEC 61966-2-1
        values = np.where(values <= 0.0031308, 12.92 * values, 1.055 * values ** (1 / 2.4) - 0.055)
    colours = np.round(255 * values).astype(np.uint8)
    return np.concatenate([image, _on(colours, mask, np.full_like(colours, ALBEDO_BACKGROUND))], axis=1)


def _valid_depth(depth: Floats, mask: Mask | None) -> Mask:
    valid = np.isfinite(depth) & (depth > 0)
    return valid if mask is None else valid & mask


def _on(colours: Pixels, mask: Mask | None, background: Pixels | None) -> Pixels:
    if mask is None:
        return np.ascontiguousarray(colours)
    _same_size(colours, mask)
    return np.where(mask[..., None], colours, np.zeros_like(colours) if background is None else background)


def _same_size(first: npt.NDArray[np.generic], second: npt.NDArray[np.generic]) -> None:
    if first.shape[:2] != second.shape[:2]:
        raise ValueError(
            f"sizes differ: {first.shape[:2]} and {second.shape[:2]} (height, width); resize one to the other"
        )
