"""From a network's maps back to a picture's pixels, in strips of rows so that memory does not grow with classes x size.

Bilinear, corners not aligned, no antialiasing, as released inference does it. The padding of a letterbox is cropped off
exactly: pixels at the picture's border repeat the outermost row or column of its content and never mix with padding.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from training.tasks.frames import Frame

STRIP_BYTES = 64 << 20


def strips(maps: Tensor, frame: Frame, max_bytes: int = STRIP_BYTES) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Maps of a frame sampled at a picture's pixels, some rows of the picture at a time.

    Args:
        maps: float [C, h, w]; h x w need not be the frame's size: the maps span the frame.
        frame: how the frame was taken from the picture.
        max_bytes: a strip is at most this large (and at least one row).

    Yields:
        The rows, their values [C, rows, W], and bool [rows, W]: which of the pixels the frame shows. Where it does not,
        values repeat the frame's border.
    """
    height, width = frame.source
    rows = max(1, max_bytes // (maps.shape[0] * width * maps.element_size()))
    for top in range(0, height, rows):
        wanted = slice(top, min(top + rows, height))
        yield wanted, *_strip(maps, frame, wanted)


def to_picture(maps: Tensor, frame: Frame, fill: float = 0.0) -> Tensor:
    """All strips in one: float [C, h, w] -> [C, H, W] in picture pixels, `fill` where the frame does not show them."""
    result = maps.new_empty(maps.shape[0], *frame.source)
    for rows, values, shown in strips(maps, frame):
        result[:, rows] = torch.where(shown, values, fill)
    return result


def _strip(maps: Tensor, frame: Frame, rows: slice) -> tuple[Tensor, Tensor]:
    matrix = torch.from_numpy(frame.matrix.copy())
    u = torch.arange(frame.source[1], dtype=torch.float64)
    v = torch.arange(rows.start, rows.stop, dtype=torch.float64)
    if frame.axis_aligned:
        x, shown_x = _along(matrix[0, 0] * u + matrix[0, 2], float(matrix[0, 0]), float(matrix[0, 2]), frame, 1, maps)
        y, shown_y = _along(matrix[1, 1] * v + matrix[1, 2], float(matrix[1, 1]), float(matrix[1, 2]), frame, 0, maps)
        # Columns first, on the rows that this strip needs: there are fewer of them than rows of the picture.
        first, last = int(y.min()), int(y.max()) + 2
        values = _lerp(_lerp_columns(maps[:, first:last], x), y - first, 1)
        return values, (shown_y[:, None] & shown_x[None, :]).to(maps.device)
    x = matrix[0, 0] * u + matrix[0, 1] * v[:, None] + matrix[0, 2]
    y = matrix[1, 0] * u + matrix[1, 1] * v[:, None] + matrix[1, 2]
    height, width = frame.size
    shown = (x >= -0.5) & (x < width - 0.5) & (y >= -0.5) & (y < height - 0.5)
    # grid_sample counts -1..1 from edge to edge, so the size of the maps does not enter.
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)
    values = F.grid_sample(
        maps[None], grid[None].to(maps), mode="bilinear", padding_mode="border", align_corners=False
    )[0]
    return values, shown.to(maps.device)


def _along(
    position: Tensor, step: float, offset: float, frame: Frame, side: int, maps: Tensor
) -> tuple[Tensor, Tensor]:
    """Frame coordinates along one side -> coordinates in the maps, kept on the picture's content; and which are shown.

    side: 0 rows, 1 columns.
    """
    length, cells = frame.size[side], maps.shape[1 + side]
    shown = (position >= -0.5) & (position < length - 0.5)
    edges = sorted(step * end + offset + 0.5 for end in (-0.5, frame.source[side] - 0.5))
    first, last = (min(max(edge, 0.0), float(length)) * cells / length for edge in edges)
    # A cell that is content by half is content; a letterbox's edges are whole pixels but for rounding.
    low = min(round(first), cells - 1)
    high = max(round(last) - 1, low)
    return ((position + 0.5) * cells / length - 0.5).clamp(low, high), shown


def _lerp_columns(maps: Tensor, position: Tensor) -> Tensor:
    """`_lerp` along the columns of [C, h, w]; columns are made rows for it, whose copies are several times as fast."""
    return _lerp(maps.permute(2, 0, 1).contiguous(), position, 0).permute(1, 2, 0).contiguous()


def _lerp(maps: Tensor, position: Tensor, dim: int) -> Tensor:
    """Linear interpolation of maps at fractional indices along one dimension."""
    last = maps.shape[dim] - 1
    lower = position.floor().clamp(0, last)
    share = (position - lower).to(maps)
    first = lower.long().to(maps.device)
    second = (first + 1).clamp(max=last)
    shape = [1] * maps.ndim
    shape[dim] = -1
    share = share.reshape(shape)
    return torch.lerp(maps.index_select(dim, first), maps.index_select(dim, second), share)
