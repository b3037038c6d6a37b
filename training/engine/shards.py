"""The state of training as pieces of flat tensors.

A parameter of n numbers, flattened, is held in equal parts by the ranks; a piece is what one rank holds of one tensor,
with its place in the whole. Pieces are what checkpoints store, so any number of ranks can read what another wrote, and
no conversion is needed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Piece:
    """What a rank holds of a flattened tensor.

    Attributes:
        name: of the whole tensor, e.g. `student/backbone.cls_token` or `exp_avg/backbone.cls_token`.
        shape: of the whole tensor.
        start: index of the piece's first number in the flattened whole.
        stop: index after its last.
        read: gives float32 [stop - start], on any device; perhaps a view of the live state.
        write: puts such a tensor into the state.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    read: Callable[[], Tensor]
    write: Callable[[Tensor], object]


def whole_piece(name: str, tensor: Tensor) -> Piece:
    """The piece of a tensor that is not partitioned."""
    flat = tensor.data.view(-1)
    return Piece(name, tuple(tensor.shape), 0, flat.numel(), lambda: flat, flat.copy_)


def own_part(numel: int, padded: int, rank: int) -> tuple[int, int]:
    """[start, stop) of a flattened tensor of `numel` numbers that `rank` holds, with `padded` numbers to a rank.

    The last ranks may hold only padding; their part is empty.
    """
    start = min(rank * padded, numel)
    return start, min(start + padded, numel)


def ranks_of(start: int, stop: int, part: int) -> Iterator[tuple[int, int, int]]:
    """Which ranks hold [start, stop) of a tensor that was held in parts of `part` numbers.

    Yields:
        (rank, first, last): numbers [first, last) of that rank's own piece.
    """
    while start < stop:
        rank = start // part
        end = min(stop, (rank + 1) * part)
        yield rank, start - rank * part, end - rank * part
        start = end


def names_that_differ(
    pieces: Sequence[Piece], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[str], list[str], list[str]]:
    """(not stored, stored but not wanted, of another shape): names of tensors, sorted."""
    wanted = {piece.name: piece.shape for piece in pieces}
    missing = sorted(wanted.keys() - shapes.keys())
    extra = sorted(shapes.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & shapes.keys() if wanted[name] != tuple(shapes[name]))
    return missing, extra, other
