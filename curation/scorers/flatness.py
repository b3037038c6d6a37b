"""Whether an image is flat everywhere, or only around what it shows.

Entropy over the whole image takes a person before white paper for a blank page: most pixels are of one level. So it is
taken where there is most of it. An image of photographic content has a tile whose histogram is wide; a solid color, a
blank page, flat icons and noise of compression have none. A gradient has wide histograms and no detail: neighbors
hardly differ, wherever one looks.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 160
"""Entropy of tiles is taken of pixels sampled from the luma at this side at most: whole levels, no averages."""

TILES = 8
"""Tiles along each axis: a person of a fortieth of the image's area still fills most of one."""

STEP = 6
"""Levels of 256 by which neighboring samples must differ to count as detail. A ramp from black to white over the
image's height has steps of 2; JPEG's noise on an even area, 1 to 3."""

LEAST_DETAIL = 0.002
"""Share of neighboring samples that must differ by more than `STEP`."""


def local_entropy(grey: npt.NDArray[np.uint8], entropy: float) -> float:
    """The entropy of an image where there is most of it, bits, 0..8.

    Args:
        grey: luma, uint8 [height, width].
        entropy: of the whole image or of what is inside its borders, bits.

    Returns:
        The largest of `entropy` and the entropies of `TILES` x `TILES` tiles; 0 where the image has no detail. Never
        less than `entropy` for an image with detail.
    """
    step = -(-max(grey.shape) // SIDE)
    samples = np.ascontiguousarray(grey[::step, ::step])
    if not _has_detail(samples):
        return 0.0
    height, width = samples.shape
    if min(height, width) < 4 * TILES:
        return entropy
    offsets, sizes = _tiles(height, width)
    counts = np.bincount((offsets + samples).ravel(), minlength=256 * TILES * TILES).reshape(-1, 256)
    # The entropy of n counts is log2(n) - sum(count log2 count) / n; sizes of tiles differ by a row or a column.
    spent = _n_log_n(int(sizes.max())).take(counts).sum(axis=1)
    return max(entropy, float((np.log2(sizes) - spent / sizes).max()))


def _has_detail(samples: npt.NDArray[np.uint8]) -> bool:
    import cv2

    found = 0
    for first, second in ((samples[:, 1:], samples[:, :-1]), (samples[1:], samples[:-1])):
        if first.size:
            difference = np.asarray(cv2.absdiff(first, second), np.uint8)
            found += int(np.count_nonzero(difference > STEP))
    return found > LEAST_DETAIL * 2 * samples.size


@functools.lru_cache(64)
def _tiles(height: int, width: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """256 x the number of each sample's tile, intp [height, width]; and the samples of each tile, float64 [tiles]."""
    rows, columns = np.arange(height) * TILES // height, np.arange(width) * TILES // width
    tile = rows[:, None] * TILES + columns
    return 256 * tile, np.bincount(tile.ravel(), minlength=TILES * TILES).astype(np.float64)


@functools.lru_cache(64)
def _n_log_n(largest: int) -> npt.NDArray[Any]:
    numbers = np.arange(1, largest + 1, dtype=np.float64)
    return np.concatenate([[0.0], numbers * np.log2(numbers)])
