"""Axial rotary position embedding (RoPE) of the encoder.

A head of d channels has d / 4 periods. A token at (row, column) is turned by d / 4 row angles and d / 4 column angles;
channel i makes a pair with channel i + d / 2. Coordinates are pixel centres scaled to (-1, 1) along either axis, so a
model meets the same range of angles at any image size.

The released models do all of it in bfloat16, step by step, also inside a float32 model; features of the released
weights change by up to 1e-2 in float32. Hence the order of operations below is part of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from training.models.config import BackboneConfig
from training.models.layers import Device

Rope = tuple[Tensor, Tensor]
"""Cosines and sines, each [1 or B, 1, N, head_dim / 2]: broadcast over [B, heads, N, head_dim / 2]."""


def rope_periods(config: BackboneConfig, device: Device = None) -> Tensor:
    """The periods base^(2j / (head_dim / 2)), j = 0 ... head_dim / 4 - 1, computed and kept in `config.rope_dtype`."""
    dtype = getattr(torch, config.rope_dtype)
    # Integers first: inside DeepSpeed's zero.Init, floating tensors made by torch.arange get the model's dtype.
    index = torch.arange(config.head_dim // 4, device=device).to(dtype)
    if index.is_meta:
        return index  # only shape and dtype count, and powers on the meta device cost an import of seconds
    return config.rope_base ** (2 * index / (config.head_dim // 2))


def rope_table(periods: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position of a grid, row-major: each [rows * columns, head_dim / 2]."""
    table: tuple[Tensor, Tensor] = torch.ops.populace.rope_table(periods, rows, columns)
    return table


# An operator of its own, so that torch.compile leaves the roundings between the steps alone.
torch.library.define("populace::rope_table", "(Tensor periods, SymInt rows, SymInt columns) -> (Tensor, Tensor)")


@torch.library.impl("populace::rope_table", "default")
def _rope_table(periods: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    angles = []
    # Autocast to float16 refuses to join bfloat16 tensors; the dtype of the tables is fixed anyway.
    with torch.autocast(autocast_device(periods), enabled=False):
        for count in (rows, columns):
            centres = (torch.arange(count, device=periods.device).to(torch.float32) + 0.5).to(periods.dtype)
            coordinates = 2.0 * (centres / count) - 1.0
            angles.append(2 * math.pi * coordinates[:, None] / periods)
        by_row, by_column = angles
        return (
            _grid_table(by_row.cos(), by_column.cos()),
            _grid_table(by_row.sin(), by_column.sin()),
        )


def autocast_device(tensor: Tensor) -> str:
    """The device type whose autocast applies to a tensor; "cpu" for the meta device, which has none."""
    return "cuda" if tensor.device.type == "cuda" else "cpu"


def _grid_table(by_row: Tensor, by_column: Tensor) -> Tensor:
    rows, columns = len(by_row), len(by_column)
    parts = [by_row[:, None].expand(-1, columns, -1), by_column[None].expand(rows, -1, -1)]
    return torch.cat(parts, dim=-1).flatten(0, 1)


@torch.library.register_fake("populace::rope_table")
def _(periods: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    shape = (rows * columns, 2 * periods.shape[0])
    return periods.new_empty(shape), periods.new_empty(shape)


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Turn x [B, heads, N, head_dim] by its positions, in the dtype of the tables; contiguous, in x's dtype."""
    cos, sin = rope
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    with torch.autocast(autocast_device(x), enabled=False):
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype, memory_format=torch.contiguous_format)


class RopeEmbed(nn.Module):
    """Holds the periods, and makes the tables once a forward pass. `periods` keeps its dtype through `.to(dtype)`."""

    periods: Tensor

    def __init__(self, config: BackboneConfig, device: Device = None) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("periods", rope_periods(config, device))

    def reset_parameters(self) -> None:
        """Compute the periods anew, after `to_empty`."""
        self.periods = rope_periods(self.config, self.periods.device)

    def forward(self, grid: tuple[int, int], keep: Tensor | None = None) -> Rope:
        """Tables for [CLS], the registers, and the tokens of a grid.

        Args:
            grid: rows and columns.
            keep: int64 [B, K], row-major positions of the visible tokens; None = all.
        """
        cos, sin = rope_table(self.periods, *grid)
        cos, sin = (cos[None], sin[None]) if keep is None else (cos[keep], sin[keep])
        # An angle of 0 leaves the front tokens as they are, and saves splitting and joining the tensors.
        front = cos.shape[0], self.config.front_tokens, cos.shape[2]
        with torch.autocast(autocast_device(cos), enabled=False):
            cos = torch.cat([cos.new_ones(front), cos], dim=1)
            sin = torch.cat([sin.new_zeros(front), sin], dim=1)
        return cos[:, None], sin[:, None]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = self.periods
        super()._apply(fn, recurse)
        if self.periods.dtype != before.dtype:
            self.periods = before.to(self.periods.device)
        return self
