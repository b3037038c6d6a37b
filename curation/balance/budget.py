"""Budgets that flow down a tree: at each node, what it has is spread over its children by water-filling.

Capacities come from below (how many rows there are), budgets from above. A level is one vectorised water-filling over
all its nodes, so a tree costs sorts of its levels, not a loop over its nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from curation.balance.water import Counts, check_counts, check_keys, check_whole, exact_sum, order_keys
from curation.mixing import Keys, mix64

StrataOrder = Literal["outside", "inside"]
"""outside: the budget is spread over strata first, then over the clusters in each. inside: over clusters first."""

NO_LEAF = -1
"""The leaf of rows without a usable embedding: together they are one cluster, directly below the root."""


def water_fill_groups(
    sizes: npt.ArrayLike,
    groups: npt.ArrayLike,
    budgets: npt.ArrayLike,
    keys: npt.ArrayLike | None = None,
    *,
    seed: int = 0,
) -> Counts:
    """`water_fill` in many groups at once: the same result as a call per group, by one sort.

    Args:
        sizes: integers [n], 0 or more; their sum is below 2^63.
        groups: integers [n], 0 <= group < g: which budget an entry shares.
        budgets: integers [g], 0 or more.
        keys: integers [n], distinct in a group; default: the index.
        seed: see `water_fill`.

    Returns:
        int64 [n].

    Raises:
        ValueError: as `water_fill`; or a group without a budget, or a sum of sizes of 2^63 or more.
    """
    limits = check_counts(sizes, "sizes").astype(np.int64)
    given = check_counts(budgets, "budgets").astype(np.int64)
    group = check_counts(groups, "groups").astype(np.int64)
    seed = check_whole(seed, "seed")
    n = len(limits)
    names = np.arange(n) if keys is None else check_keys(keys, n)
    if len(group) != n:
        raise ValueError(f"groups must be integers [{n}], one per size, got {len(group)}")
    if n == 0:
        return limits
    if int(group.max()) >= len(given):
        raise ValueError(f"group {int(group.max())} has no budget: budgets has {len(given)} entries")
    if exact_sum(limits) > 2**63 - 1:
        raise ValueError("the sum of sizes must be below 2^63; use water_fill, which takes any sum")
    order = np.lexsort((limits, group))
    size, owner = limits[order], group[order]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    count = np.diff(first, append=n)
    running = np.cumsum(size)
    before = (running - size)[first]
    filled_until = running - np.repeat(before, count)
    # What the group takes when every entry is cut to this size; at most the sum of its sizes, so it fits int64.
    rest = np.repeat(first + count, count) - np.arange(n) - 1
    full = filled_until + size * rest <= given[owner]
    # Entries that get all they can take come first in a group.
    n_full = np.add.reduceat(full, first, dtype=np.int64)
    taken = np.where(n_full > 0, filled_until[first + np.maximum(n_full, 1) - 1], 0)
    left, open_ = given[owner[first]] - taken, count - n_full
    cap, remainder = np.divmod(left, np.maximum(open_, 1))
    result = np.where(full, size, np.repeat(cap, count))
    bounded = np.flatnonzero(~full)
    if len(bounded):
        place = np.repeat(np.arange(len(first)), count)[bounded]
        ranked = bounded[np.lexsort((order[bounded], order_keys(names[order[bounded]], seed), place))]
        place = np.repeat(np.arange(len(first)), open_)
        rank = np.arange(len(ranked)) - np.repeat(np.cumsum(open_) - open_, open_)
        result[ranked[rank < remainder[place]]] += 1
    answer = np.empty(n, np.int64)
    answer[order] = result
    return answer


def budgets(
    parents: Sequence[npt.ArrayLike], leaf_sizes: npt.ArrayLike, budget: int, *, seed: int = 0
) -> tuple[Counts, ...]:
    """Let a budget flow from the root of a hierarchy to its leaves.

    Args:
        parents: from the leaves up, integers [nodes of a level]: the node of the next level that each one belongs to.
            Nodes of the last level belong to the root. Empty for a hierarchy of one level.
        leaf_sizes: integers [leaves]: rows in each.
        budget: rows to give in all.
        seed: see `water_fill`; a node's key is its index.

    Returns:
        Budgets of the nodes of each level, leaves first, int64. Those of a level add up to min(budget, rows); those of
        a node's children to its own.

    Raises:
        ValueError: bad counts, lengths that do not fit, or a parent that there is not.
    """
    sizes = [check_counts(leaf_sizes, "leaf_sizes").astype(np.int64)]
    if exact_sum(sizes[0]) > 2**63 - 1:
        raise ValueError("the sum of leaf_sizes must be below 2^63")
    ups: list[Counts] = []
    for level, parent in enumerate(parents):
        up = check_counts(parent, f"parents[{level}]").astype(np.int64)
        if len(up) != len(sizes[-1]):
            raise ValueError(
                f"parents[{level}] has {len(up)} entries and there are {len(sizes[-1])} nodes at that level; give one "
                "parent per node"
            )
        known = len(np.asarray(parents[level + 1])) if level + 1 < len(parents) else int(up.max(initial=-1)) + 1
        if len(up) and int(up.max()) >= known:
            raise ValueError(f"parents[{level}] names node {int(up.max())}; the next level has {known} nodes")
        ups.append(up)
        sizes.append(_sums(up, sizes[-1], known))
    root = np.array([min(check_whole(budget, "budget"), exact_sum(sizes[0]))], np.int64)
    flow = [water_fill_groups(sizes[-1], np.zeros(len(sizes[-1]), np.int64), root, seed=seed)]
    for up, size in zip(reversed(ups), reversed(sizes[:-1]), strict=True):
        flow.append(water_fill_groups(size, up, flow[-1], seed=seed))
    return tuple(reversed(flow))


def cell_quotas(
    leaf: npt.ArrayLike,
    stratum: npt.ArrayLike,
    count: npt.ArrayLike,
    parents: Sequence[npt.ArrayLike],
    budget: int,
    *,
    order: StrataOrder = "inside",
    seed: int = 0,
) -> Counts:
    """How many rows of each cell (cluster crossed with stratum) may stay.

    Args:
        leaf: integers [m]: leaf of the hierarchy, or `NO_LEAF`.
        stratum: integers [m], 0 or more. Each (leaf, stratum) comes at most once.
        count: integers [m]: rows in the cell.
        parents: from the leaves up, as in `budgets`.
        budget: rows to keep in all.
        order: "inside": root -> top clusters -> ... -> leaf -> stratum; "outside": root -> stratum -> top clusters ->
            ... -> leaf. What is nearer to the root is balanced better.
        seed: see `water_fill`.

    Returns:
        int64 [m], each <= count, their sum is min(budget, sum(count)). It depends neither on the order of the cells
        nor on absent cells being listed with a count of 0.

    Raises:
        ValueError: bad counts, a leaf that there is not, a cell that comes twice, or another order.
    """
    if order not in ("inside", "outside"):
        raise ValueError(f'order must be "inside" or "outside", got {order!r}')
    capacity = check_counts(count, "count").astype(np.int64)
    strata = check_counts(stratum, "stratum").astype(np.int64)
    leaves = check_keys(leaf, len(capacity)).astype(np.int64) if len(capacity) else np.empty(0, np.int64)
    if len(strata) != len(capacity):
        raise ValueError(f"leaf, stratum and count must have one length, got {len(leaves)}, {len(strata)} cells")
    budget = min(check_whole(budget, "budget"), exact_sum(capacity))
    path = _path(leaves, parents)
    labels = [*path, strata] if order == "inside" else [strata, *path]
    node = np.zeros(len(capacity), np.int64)
    name = np.zeros(len(capacity), np.uint64)
    levels: list[tuple[Counts, Counts, Keys]] = []
    for label in labels:
        # A node's key is made of the labels on its path alone: other cells do not change it.
        name = mix64(name + mix64((label + 1).astype(np.uint64)) + np.uint64(1))
        inverse, parent, key = _children(node, label, name)
        levels.append((inverse, parent, key))
        node = inverse
    if len(levels[-1][1]) != len(capacity):
        raise ValueError("a cell (leaf, stratum) comes twice; add up the counts of each cell first")
    flow = np.array([budget], np.int64)
    for inverse, parent, key in levels:
        flow = water_fill_groups(_sums(inverse, capacity, len(parent)), parent, flow, key, seed=seed)
    return flow[node]


def _sums(group: Counts, values: Counts, groups: int) -> Counts:
    """Sums of int64 by group; exact, unlike bincount's float64 weights."""
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, values)
    return sums


def _path(leaves: Counts, parents: Sequence[npt.ArrayLike]) -> list[Counts]:
    """Labels of the cells at each level of the hierarchy, top first; `NO_LEAF` all the way for `NO_LEAF`."""
    path = [leaves]
    if len(leaves) and int(leaves.min()) < NO_LEAF:
        raise ValueError(f"leaf must be {NO_LEAF} or more, got {int(leaves.min())}")
    for level, parent in enumerate(parents):
        up = check_counts(parent, f"parents[{level}]").astype(np.int64)
        if len(leaves) and int(path[-1].max()) >= len(up):
            what = "leaf" if level == 0 else f"node of level {level}"
            raise ValueError(f"{what} {int(path[-1].max())} is not in the hierarchy: that level has {len(up)} nodes")
        path.append(np.append(up, NO_LEAF)[path[-1]])
    return path[::-1]


def _children(node: Counts, label: Counts, name: Keys) -> tuple[Counts, Counts, Keys]:
    """Distinct (node, label): the child of each cell, and of each child its parent and its name."""
    order = np.lexsort((label, node))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(node[order]) != 0) | (np.diff(label[order]) != 0)
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.cumsum(new) - 1
    return inverse, node[order[new]], name[order[new]]
