"""Which tokens of a view stay visible: 25 % of them, chosen at random or around rectangles that are hidden.

Sapiens2 hides 75 % of the tokens, "blockwise" with probability 0.4 and token by token otherwise (paper, A.1.2). It says
neither whether the kinds mix within an image (here they do not: one draw for a view, our reading) nor what the blocks
look like. Here they are DINOv3's rectangles: aspect ratio between 0.3 and 1 / 0.3, at least 4 tokens, at most half of
the grid, 10 tries for each. The number of visible tokens is the same for every draw, so that batches are rectangular.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from pydantic import Field

from curation.config import Config

Positions = npt.NDArray[np.int64]
Rectangle = tuple[int, int, int, int]


class MaskConfig(Config):
    """How many tokens of a global view are hidden, and in what pattern."""

    ratio: float = Field(0.75, ge=0, lt=1, description="share of the tokens hidden (Sapiens2 paper, A.1.2)")
    block_probability: float = Field(
        0.4, ge=0, le=1, description="probability that a view hides rectangles, not single tokens (paper, A.1.2)"
    )
    min_block: int = Field(4, ge=1, description="smallest rectangle, in tokens (DINOv3's default)")
    max_block_share: float = Field(
        0.5, gt=0, le=1, description="largest rectangle, as a share of the grid (DINOv3's default)"
    )
    aspect: float = Field(
        0.3, gt=0, le=1, description="flattest rectangle; height / width is between this and 1 / this (DINOv3)"
    )
    attempts: int = Field(10, ge=1, description="tries to place one more rectangle before giving up (DINOv3)")


def visible_count(tokens: int, ratio: float) -> int:
    """How many of a grid's tokens stay visible: tokens - round(ratio * tokens), at least 1.

    Halves are rounded up; the 3,072 tokens of a 1024x768 view leave 768.

    Raises:
        ValueError: no tokens, or a ratio outside of [0, 1).
    """
    if tokens < 1 or not 0 <= ratio < 1:
        raise ValueError(f"{tokens} tokens of which a share of {ratio} is hidden: give 1 or more, and 0 <= ratio < 1")
    return max(1, tokens - math.floor(ratio * tokens + 0.5))


def sample_keep(rng: np.random.Generator, grid: tuple[int, int], config: MaskConfig) -> Positions:
    """Draw the visible tokens of one view.

    Args:
        rng: keyed by the sample and the view, so that the draw depends on nothing else.
        grid: (height, width) in tokens.
        config: number and pattern.

    Returns:
        int64 [K], row-major positions, ascending, distinct; K = `visible_count(height * width, config.ratio)` for
        every draw: rectangles never hide too many, and what they leave over is hidden token by token.

    Raises:
        ValueError: a grid without tokens.
    """
    height, width = grid
    if height < 1 or width < 1:
        raise ValueError(f"a grid of {height}x{width} tokens: give a height and a width of at least 1")
    tokens = height * width
    hidden = tokens - visible_count(tokens, config.ratio)
    # Drawn always, so that the stream of numbers does not shift when the probability is set to 0 or 1.
    blockwise = rng.random() < config.block_probability
    mask = np.zeros(grid, bool)
    if blockwise:
        for top, left, rows, columns in sample_blocks(rng, grid, hidden, config):
            mask[top : top + rows, left : left + columns] = True
    flat = mask.reshape(-1)
    free = np.flatnonzero(~flat)
    flat[rng.permutation(free)[: hidden - (tokens - len(free))]] = True
    return np.flatnonzero(~flat).astype(np.int64, copy=False)


def sample_blocks(rng: np.random.Generator, grid: tuple[int, int], hidden: int, config: MaskConfig) -> list[Rectangle]:
    """Draw rectangles until they hide nearly `hidden` tokens, and never more.

    Each has an area that is uniform between `min_block` and the smaller of what is left to hide and `max_block_share`
    of the grid, an aspect ratio that is uniform in its logarithm, and a uniform place. They may overlap; one that hides
    nothing new, or too much, is drawn again, up to `attempts` times. The end is when fewer than `min_block` tokens are
    left to hide, or when the attempts for one rectangle are used up.

    Args:
        rng: consumed.
        grid: (height, width) in tokens.
        hidden: most tokens that the union may hold.
        config: `min_block`, `max_block_share`, `aspect` and `attempts` are read.

    Returns:
        (top, left, height, width) of each, inside of the grid, in tokens.
    """
    height, width = grid
    largest = config.max_block_share * height * width
    skew = math.log(config.aspect)
    mask = np.zeros(grid, bool)
    blocks: list[Rectangle] = []
    left_over = hidden
    while left_over >= config.min_block:
        for _ in range(config.attempts):
            area = rng.uniform(config.min_block, max(config.min_block, min(left_over, largest)))
            ratio = math.exp(skew * rng.uniform(-1, 1))
            rows, columns = max(1, round(math.sqrt(area * ratio))), max(1, round(math.sqrt(area / ratio)))
            if rows > height or columns > width:
                continue
            top, left = int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1))
            window = mask[top : top + rows, left : left + columns]
            fresh = rows * columns - int(np.count_nonzero(window))
            if 0 < fresh <= left_over:
                break
        else:
            break
        window[:] = True
        left_over -= fresh
        blocks.append((top, left, rows, columns))
    return blocks
