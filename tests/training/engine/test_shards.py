"""Parts of flattened tensors: every number is held by one rank, at whatever number of ranks, and is found again."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.engine.shards import Piece, names_that_differ, own_part, ranks_of, whole_piece


@given(numel=st.integers(0, 50), world=st.integers(1, 8), extra=st.integers(0, 3))
def test_parts_cover_a_tensor_once(numel: int, world: int, extra: int) -> None:
    padded = -(-numel // world) + extra
    held = [index for rank in range(world) for index in range(*own_part(numel, padded, rank))]
    assert held == list(range(numel))


@given(numel=st.integers(1, 50), world=st.integers(1, 8), extra=st.integers(0, 3), data=st.data())
def test_any_stretch_is_found_in_the_parts(numel: int, world: int, extra: int, data: st.DataObject) -> None:
    padded = -(-numel // world) + extra
    start = data.draw(st.integers(0, numel))
    stop = data.draw(st.integers(start, numel))
    parts = [list(range(*own_part(numel, padded, rank))) for rank in range(world)]
    part = max(1, len(parts[0]))  # what a checkpoint knows: the length of the first rank's
    found: list[int] = []
    for rank, first, last in ranks_of(start, stop, part):
        assert 0 <= first < last <= len(parts[rank])
        found += parts[rank][first:last]
    assert found == list(range(start, stop))


def test_a_whole_piece_reads_and_writes_the_live_tensor() -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    piece = whole_piece("student/a", parameter)
    assert (piece.name, piece.shape, piece.start, piece.stop) == ("student/a", (2, 3), 0, 6)
    with torch.no_grad():
        parameter[1, 2] = 9
    assert piece.read().tolist() == [0, 1, 2, 3, 4, 9]
    piece.write(torch.ones(6))
    assert parameter.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_differences_of_names_and_shapes_are_told_apart() -> None:
    pieces = [Piece(name, (2,), 0, 2, lambda: torch.zeros(2), lambda values: None) for name in ("b", "a", "c", "d")]
    shapes = {"c": (2,), "d": (1, 2), "f": (2,), "e": (2,)}
    assert names_that_differ(pieces, shapes) == (["a", "b"], ["e", "f"], ["d"])
