"""Survivors are stars: no two kept rows are a pair, and each dropped row names the best kept row that it pairs with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.dedup import quality_order, survivors


def naive(pairs: list[tuple[int, int]], quality: list[float], ids: list[str]) -> list[int]:
    keeper = [-1] * len(ids)
    for row in sorted(range(len(ids)), key=lambda row: (-quality[row], ids[row])):
        if keeper[row] < 0:
            for a, b in pairs:
                other = b if a == row else a if b == row else None
                if other is not None and keeper[other] < 0:
                    keeper[other] = row
    return keeper


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[float], list[str]]:
    n = draw(st.integers(2, 25))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), max_size=60))
    quality = draw(st.lists(st.sampled_from([0.0, 1.0, 1.5, 7.0]), min_size=n, max_size=n))
    return pairs, quality, draw(st.permutations([f"id{row:02d}" for row in range(n)]))


@given(graphs())
def test_equals_the_naive_greedy(graph: tuple[list[tuple[int, int]], list[float], list[str]]) -> None:
    assert survivors(np.array(graph[0]).reshape(-1, 2), *graph[1:]).tolist() == naive(*graph)


@given(graphs())
def test_guarantees(graph: tuple[list[tuple[int, int]], list[float], list[str]]) -> None:
    pairs, quality, ids = graph
    keeper = survivors(np.array(pairs).reshape(-1, 2), quality, ids).tolist()
    joined = {frozenset(pair) for pair in pairs}
    assert not any(keeper[a] < 0 and keeper[b] < 0 for a, b in pairs)
    for row, kept in enumerate(keeper):
        if kept >= 0:
            assert keeper[kept] == -1
            assert frozenset((row, kept)) in joined


@given(graphs(), st.randoms(use_true_random=False))
def test_order_of_rows_and_pairs_does_not_matter(graph: tuple, random: object) -> None:
    pairs, quality, ids = graph
    keeper = survivors(np.array(pairs).reshape(-1, 2), quality, ids)
    expected = {ids[row]: None if kept < 0 else ids[kept] for row, kept in enumerate(keeper)}
    rows = list(range(len(ids)))
    random.shuffle(rows)  # type: ignore[attr-defined]
    place = {row: position for position, row in enumerate(rows)}
    moved = [(place[b], place[a]) for a, b in pairs]
    random.shuffle(moved)  # type: ignore[attr-defined]
    new_ids = [ids[row] for row in rows]
    again = survivors(np.array(moved).reshape(-1, 2), [quality[row] for row in rows], new_ids)
    assert {new_ids[row]: None if kept < 0 else new_ids[kept] for row, kept in enumerate(again)} == expected


def test_a_chain_is_not_one_group() -> None:
    # 0 - 1 - 2 - 3 - 4 from best to worst: only direct neighbours of a kept row go.
    pairs = np.array([(0, 1), (1, 2), (2, 3), (3, 4)])
    assert survivors(pairs, [5, 4, 3, 2, 1], list("abcde")).tolist() == [-1, 0, -1, 2, -1]


def test_a_long_chain_in_rank_order_is_fast() -> None:
    n = 200_000
    pairs = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    keeper = survivors(pairs, -np.arange(n), np.arange(n))
    assert (keeper[::2] == -1).all()
    assert (keeper[1::2] == np.arange(0, n - 1, 2)).all()


def test_the_best_keeper_is_named() -> None:
    # 3 pairs with 0 and 1, which are both kept; 1 is better.
    assert survivors([(0, 3), (1, 3), (2, 3)], [2, 3, 1, 0], list("abcd")).tolist() == [-1, -1, -1, 1]


def test_no_pairs_keeps_everything() -> None:
    assert survivors(np.empty((0, 2), dtype=np.int64), [1, 2], ["a", "b"]).tolist() == [-1, -1]
    assert survivors([], [], []).tolist() == []


def test_quality_columns_compare_in_turn_and_ids_break_ties() -> None:
    quality = np.array([[1, 5], [2, 0], [1, 5], [1, 6], [np.nan, 9]])
    assert quality_order(quality, ["c", "d", "b", "a", "e"]).tolist() == [1, 3, 2, 0, 4]


def test_nan_is_the_worst_quality() -> None:
    assert quality_order([np.nan, 0.0, -np.inf, -0.0], ["a", "c", "b", "d"]).tolist() == [1, 3, 0, 2]


def test_object_and_integer_ids() -> None:
    assert quality_order([0, 0, 0], np.array(["b", "c", "a"], dtype=object)).tolist() == [2, 0, 1]
    assert quality_order([0, 0, 0], [10, 9, 11]).tolist() == [1, 0, 2]


def test_equal_ids_of_equal_quality_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'a'.*unique"):
        quality_order([1, 1, 1], ["a", "b", "a"])


@pytest.mark.parametrize("pairs", [[(0, 2)], [(-1, 0)], [(1, 1)]])
def test_bad_pairs_are_refused(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="pairs must"):
        survivors(pairs, [1, 2], ["a", "b"])


def test_lengths_must_match() -> None:
    with pytest.raises(ValueError, match="one quality and one id per row"):
        survivors([], [1, 2], ["a"])
