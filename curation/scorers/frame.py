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

MAX_FRAMES = 6
"""Borders inside of borders that are looked for."""

Box = tuple[int, int, int, int]
"""left, top, right, bottom in pixels; right and bottom are exclusive."""


def content_box(grey: npt.NDArray[np.uint8]) -> Box | None:
    """What is inside the borders of an image; None where it has none, or too little is left.

    Args:
        grey: luma, uint8 [height, width].
    """
    height, width = grey.shape
    box = 0, 0, width, height
    # The bars of a letterbox hide the frame inside of them, and a line around an image the paper around it.
    for _ in range(MAX_FRAMES):
        inner = np.ascontiguousarray(grey[box[1] : box[3], box[0] : box[2]])
        top, bottom = _ends(inner, 1)
        left, right = _ends(inner, 0)
        smaller = box[0] + left, box[1] + top, box[2] - right, box[3] - bottom
        too_small = smaller[2] - smaller[0] < LEAST_CONTENT * width or smaller[3] - smaller[1] < LEAST_CONTENT * height
        if smaller == box or too_small:
            break
        box = smaller
    return None if box == (0, 0, width, height) else box


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
