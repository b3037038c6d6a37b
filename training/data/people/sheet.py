"""Contact sheets: pictures beside their labels, to look at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from training.data.labelled import Picture
from training.data.people.light import srgb

_STEPS = (37, 91, 151)  # colours of indices: multiples of these, modulo 256, are far apart for small numbers


def index_colours(labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Colours [H, W, 3] of class indices [H, W]; 0 is black."""
    wide = labels.astype(np.int64)[..., None]
    return np.where(wide > 0, (wide * np.array(_STEPS) + 60) % 256, 0).astype(np.uint8)


def panels(picture: Picture) -> list[npt.NDArray[np.uint8]]:
    """The image, then each label that it has, as uint8 [H, W, 3]."""
    shown = [picture.image.copy()]
    if picture.keypoints is not None:
        marked = picture.image.copy()
        for points in picture.keypoints:
            for x, y, v in points[points[:, 2] > 0].tolist():
                colour = (0, 255, 0) if v == 2 else (255, 0, 0)
                cv2.circle(marked, (round(x), round(y)), 1, colour, -1)
        shown.append(marked)
    if picture.parts is not None:
        shown.append(index_colours(picture.parts))
    if picture.normals is not None:
        flipped = picture.normals * (1, -1, -1)
        shown.append(np.where(picture.mask[..., None], 127.5 * (flipped + 1), 0).astype(np.uint8))
    if picture.depth is not None:
        near = np.where(picture.mask, 1 / np.maximum(picture.depth, 1e-6), 0)
        low, high = (near[picture.mask].min(), near[picture.mask].max()) if picture.mask.any() else (0.0, 1.0)
        grey = np.where(picture.mask, 60 + 195 * (near - low) / max(high - low, 1e-9), 0)
        shown.append(np.repeat(grey[..., None], 3, axis=2).astype(np.uint8))
    if picture.albedo is not None:
        shown.append((255 * srgb(picture.albedo)).astype(np.uint8))
    return shown


def contact_sheet(
    pictures: Iterable[Picture], file: str | Path, columns: int = 4, images_only: bool = False, scale: int = 1
) -> None:
    """Write a PNG of pictures of one size, each as a strip of its panels.

    Args:
        pictures: at least one.
        file: where to write; its folder exists.
        columns: strips beside each other.
        images_only: leave the labels out.
        scale: enlargement, a whole number.

    Raises:
        ValueError: no pictures.
    """
    strips = [np.concatenate(panels(picture)[: 1 if images_only else None], axis=1) for picture in pictures]
    if not strips:
        raise ValueError("contact_sheet: got no pictures; give at least one")
    strips += [np.zeros_like(strips[0])] * (-len(strips) % columns)
    rows = [np.concatenate(strips[i : i + columns], axis=1) for i in range(0, len(strips), columns)]
    sheet = np.concatenate(rows, axis=0).repeat(scale, axis=0).repeat(scale, axis=1)
    if not cv2.imwrite(str(file), sheet[..., ::-1]):
        raise OSError(f"contact_sheet: could not write {file}; does its folder exist?")
