"""The check of `keep`, the positions of visible tokens."""

from __future__ import annotations

import torch
from torch import Tensor


def check_positions(keep: Tensor, tokens: int) -> None:
    """Raise unless positions are within the grid and distinct within an image.

    On the CPU, and not while compiling: on a GPU a look at the values would wait for all work before it, so that there
    wrong positions are an index error of the device, and repeated ones encode a token twice.

    Args:
        keep: int64 [B, K].
        tokens: of the grid.

    Raises:
        ValueError: a position outside of 0..tokens-1, or one that comes twice.
    """
    if keep.device.type != "cpu" or torch.compiler.is_compiling() or not keep.numel():
        return
    ordered = keep.sort(dim=1).values
    low, high = int(ordered[:, 0].min()), int(ordered[:, -1].max())
    if low < 0 or high >= tokens:
        raise ValueError(f"keep holds position {low if low < 0 else high}; the grid has tokens 0 to {tokens - 1}")
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        raise ValueError("keep names a token twice in one image; give distinct positions")
