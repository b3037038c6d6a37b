"""Uniform borders around an image: letterboxes, pillarboxes, white frames, the paper around a product.

A border is a run of rows (or columns) from one side, all of whose pixels are within `TOLERANCE` of one level, which
ends abruptly: within `EDGE` rows some pixel differs by `CONTRAST`. Where it fades out instead (a sky, a wall out of
focus), its end would depend on the noise of the copy, and copies of one image would be hashed in different parts; so
such sides are left alone. Borders may differ from side to side in color and width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

TOLERANCE = 6
"""Levels of 256 by which pixels of a border may differ from its level: room for JPEG's noise and the averaging of a
smaller size."""

CONTRAST = 32
"""Levels of 256 by which a pixel just inside must differ from the border."""

EDGE = 6
"""Rows in which it must, and where it does the content begins: those before are a mixture of border and content, or
what JPEG's blocks carry over from the content (8 rows of an image of twice this size, so 4 of these)."""

LEAST_CONTENT = 1 / 16
"""Share of the width and of the height that must be left; with less, the image is taken as a whole."""

Box = tuple[int, int, int, int]
"""left, top, right, bottom in pixels; right and bottom are exclusive."""


def content_box(grey: npt.NDArray[np.uint8]) -> Box | None:
    """What is inside the borders of an image; None where it has none, or too little is left.

    Args:
        grey: luma, uint8 [height, width].
    """
    height, width = grey.shape
    top, bottom = _ends(grey, 1)
    left, right = _ends(grey, 0)
    if not (top or bottom or left or right):
        return None
    # A frame's rows hide its columns from no one, but the bars of a letterbox do: look again inside of them.
    if (top or bottom) and top + bottom < height and not (left or right):
        left, right = _ends(grey[top : height - bottom], 0)
    elif (left or right) and left + right < width and not (top or bottom):
        top, bottom = _ends(np.ascontiguousarray(grey[:, left : width - right]), 1)
    box = left, top, width - right, height - bottom
    if box[2] - left < LEAST_CONTENT * width or box[3] - top < LEAST_CONTENT * height:
        return None
    return box


def content_share(shape: Sequence[int], box: Box | None) -> float:
    """Share of an image's area that is inside its borders, 0..1; 1 without borders.

    A pixel is taken off at each side that has a border: it may be a mixture, and a padded copy must not seem larger
    than its original.
    """
    if box is None:
        return 1.0
    height, width = shape
    left, top, right, bottom = box
    inside_width = right - left - (left > 0) - (right < width)
    inside_height = bottom - top - (top > 0) - (bottom < height)
    return max(inside_width, 1) * max(inside_height, 1) / (width * height)


def _ends(grey: npt.NDArray[np.uint8], axis: int) -> tuple[int, int]:
    """Pixels of border at the start and at the end: of rows for axis 1, of columns for axis 0."""
    import cv2

    outer = (grey[0], grey[-1]) if axis == 1 else (grey[:, 0], grey[:, -1])
    if all(int(line.max()) - int(line.min()) > 2 * TOLERANCE for line in outer):
        return 0, 0  # nearly all photographs: no look beyond the outermost lines
    high = np.asarray(cv2.reduce(grey, axis, cv2.REDUCE_MAX), np.uint8).ravel()
    low = np.asarray(cv2.reduce(grey, axis, cv2.REDUCE_MIN), np.uint8).ravel()
    return _run(low, high), _run(low[::-1], high[::-1])


def _run(low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8]) -> int:
    """Length of the border that rows with these smallest and largest levels begin with; 0 for none."""
    first, last = int(low[0]), int(high[0])
    if last - first > 2 * TOLERANCE:
        return 0
    level = (first + last) / 2
    away = np.maximum(high - level, level - low)
    outside = away > TOLERANCE
    end = int(outside.argmax())
    if not outside[end]:
        return 0  # uniform all over
    inside = away[end : end + EDGE] >= CONTRAST
    return end + int(inside.argmax()) if inside.any() else 0
