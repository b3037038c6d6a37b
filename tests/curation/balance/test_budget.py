"""Budgets flow down a tree exactly: what a node gets is what its children get, by water-filling at each node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.balance import NO_LEAF, budgets, cell_quotas, water_fill, water_fill_groups

GROUPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=25)


@settings(max_examples=80, deadline=None)
@given(GROUPS, st.lists(st.integers(0, 40), min_size=5, max_size=5), st.integers(0, 2))
def test_groups_are_filled_as_one_by_one(rows: list[tuple[int, int]], given_: list[int], seed: int) -> None:
    group, sizes = np.array(rows, np.int64).reshape(-1, 2).T
    result = water_fill_groups(sizes, group, given_, seed=seed)
    for one in range(5):
        inside = np.flatnonzero(group == one)
        assert result[inside].tolist() == water_fill(sizes[inside], given_[one], inside, seed=seed).tolist()


def test_many_groups_near_the_limit_of_64_bits() -> None:
    sizes = np.array([2**62, 2**61, 7, 2**61 - 8])
    result = water_fill_groups(sizes, [0, 0, 0, 1], [2**62 + 9, 5])
    assert result.tolist() == [2**61 + 1, 2**61 + 1, 7, 5] or result.tolist() == [2**61 + 2, 2**61, 7, 5]
    assert sum(result.tolist()) == 2**62 + 9 + 5
    with pytest.raises(ValueError, match="below 2\\^63"):
        water_fill_groups([2**62, 2**62], [0, 1], [1, 1])


def test_a_hundred_thousand_groups_at_once() -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 100_000, 300_000)
    sizes = rng.zipf(1.5, 300_000).clip(max=1000)
    given_ = rng.integers(0, 50, 100_000)
    result = water_fill_groups(sizes, group, given_)
    total = np.bincount(group, sizes, 100_000).astype(int)
    assert np.array_equal(np.bincount(group, result, 100_000).astype(int), np.minimum(total, given_))
    assert (result <= sizes).all()


def reference(parents: list[list[int]], sizes: list[int], budget: int) -> list[list[int]]:
    """Node by node, by the definition."""
    levels = [np.array(sizes)]
    for level, up in enumerate(parents):
        known = len(parents[level + 1]) if level + 1 < len(parents) else max(up) + 1
        levels.append(np.array([levels[-1][np.array(up) == node].sum() for node in range(known)]))
    flow = [water_fill(levels[-1], budget)]
    for up, size in zip(parents[::-1], levels[-2::-1], strict=True):
        below = np.zeros(len(size), np.int64)
        for node, amount in enumerate(flow[-1]):
            children = np.flatnonzero(np.array(up) == node)
            below[children] = water_fill(size[children], int(amount), children)
        flow.append(below)
    return [part.tolist() for part in flow[::-1]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 200))
def test_a_hierarchy_is_filled_node_by_node(seed: int, budget: int) -> None:
    rng = np.random.default_rng(seed)
    parents = [rng.integers(0, 6, 12).tolist(), rng.integers(0, 3, 6).tolist()]
    sizes = rng.integers(0, 20, 12).tolist()
    result = budgets(parents, sizes, budget)
    assert [part.tolist() for part in result] == reference(parents, sizes, budget)
    assert {int(part.sum()) for part in result} == {min(budget, sum(sizes))}


def test_one_level_is_plain_water_filling_and_no_rows_are_no_budget() -> None:
    assert [part.tolist() for part in budgets([], [5, 1, 9], 9)] == [[4, 1, 4]]
    assert [part.tolist() for part in budgets([[0, 0]], [0, 0], 9)] == [[0, 0], [0]]
    assert [part.tolist() for part in budgets([[]], [], 9)] == [[], []]


def test_a_small_branch_gets_as_much_as_a_large_one() -> None:
    # Three leaves of 100 below node 0, one leaf of 100 below node 1: flat filling would give node 1 a quarter.
    leaves, tops = budgets([[0, 0, 0, 1]], [100] * 4, 60)
    assert tops.tolist() == [30, 30]
    assert leaves.tolist() == [10, 10, 10, 30]


@pytest.mark.parametrize(
    ("parents", "sizes", "what"),
    [
        ([[0]], [1, 2], "one parent per node"),
        ([[0, 5], [0, 0]], [1, 2], "names node 5"),
        ([[0, -1]], [1, 2], "got -1"),
        ([], [1, -2], "got -2"),
        ([], [2**62, 2**62], "below 2\\^63"),
    ],
)
def test_bad_trees_are_errors(parents, sizes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        budgets(parents, sizes, 3)


# Leaves 0 and 1 below top 0, leaf 2 below top 1.
PARENTS = [[0, 0, 1]]


def quotas(cells: list[tuple[int, int, int]], budget: int, order: str, **more) -> dict[tuple[int, int], int]:
    leaf, stratum, count = np.array(cells).T
    result = cell_quotas(leaf, stratum, count, PARENTS, budget, order=order, **more)
    return {(int(a), int(b)): int(c) for a, b, c in zip(leaf, stratum, result, strict=True)}


def test_outside_balances_strata_first_inside_clusters_first() -> None:
    # Stratum 0 is in all leaves, stratum 1 in leaf 0 only.
    cells = [(0, 0, 90), (1, 0, 90), (2, 0, 90), (0, 1, 90)]
    outside = quotas(cells, 80, "outside")
    assert outside == {(0, 1): 40, (2, 0): 20, (0, 0): 10, (1, 0): 10}
    inside = quotas(cells, 80, "inside")
    assert inside == {(2, 0): 40, (1, 0): 20, (0, 0): 10, (0, 1): 10}


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_rows_without_embedding_are_one_cluster_below_the_root(order: str) -> None:
    assert quotas([(0, 0, 50), (1, 0, 50), (2, 0, 50), (NO_LEAF, 0, 50)], 60, order) == {
        (0, 0): 10,
        (1, 0): 10,
        (2, 0): 20,
        (NO_LEAF, 0): 20,
    }


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_quotas_do_not_depend_on_the_order_of_cells_nor_on_empty_ones(order: str) -> None:
    rng = np.random.default_rng(3)
    cells = [(leaf, stratum, int(rng.integers(0, 9))) for leaf in range(-1, 3) for stratum in range(4)]
    for budget in range(0, 90, 7):
        full = quotas(cells, budget, order, seed=budget)
        assert sum(full.values()) == min(budget, sum(count for *_, count in cells))
        assert all(full[leaf, stratum] <= count for leaf, stratum, count in cells)
        assert quotas(cells[::-1], budget, order, seed=budget) == full
        filled = [cell for cell in cells if cell[2]]
        assert quotas(filled, budget, order, seed=budget) == {cell[:2]: full[cell[:2]] for cell in filled}


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_more_budget_never_takes_a_cells_rows_away_in_the_limit(order: str) -> None:
    cells = [(0, 0, 3), (1, 1, 4), (2, 0, 5), (NO_LEAF, 1, 6)]
    total = 18
    assert quotas(cells, total, order) == {cell[:2]: cell[2] for cell in cells}
    assert quotas(cells, 10 * total, order) == {cell[:2]: cell[2] for cell in cells}
    assert set(quotas(cells, 0, order).values()) == {0}


def test_no_cells() -> None:
    assert cell_quotas([], [], [], PARENTS, 5).tolist() == []


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ([(0, 0, 1), (0, 0, 2)], "comes twice"),
        ([(3, 0, 1)], "leaf 3 is not in the hierarchy"),
        ([(-2, 0, 1)], "got -2"),
        ([(0, -1, 1)], "stratum"),
        ([(0, 0, -1)], "count"),
    ],
)
def test_bad_cells_are_errors(cells, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        quotas(cells, 1, "inside")


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(ValueError, match='"inside" or "outside"'):
        quotas([(0, 0, 1)], 1, "across")
