"""Which rows of a set of duplicate pairs survive: stars, not chains.

Connected components would join A and C because both resemble B. Here rows are taken in order of quality; a row that is
still there is kept, and its neighbours are dropped in its favour. So no two kept rows are a pair, and every dropped row
names a kept row that it is a pair with: the best such row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def quality_order(quality: npt.ArrayLike, ids: Sequence[Any] | npt.NDArray[Any]) -> Indices:
    """Rows from best to worst.

    Args:
        quality: float64 [n], or [n, k] compared column by column; higher is better, NaN is the worst.
        ids: [n] strings, bytes or integers; equal quality goes by ascending id.

    Returns:
        int64 [n], a permutation that does not depend on the order of the rows.

    Raises:
        ValueError: shapes do not match, or two rows have equal quality and equal id.
    """
    keys = np.asarray(quality, dtype=np.float64)
    names = np.asarray(ids)
    if names.dtype == object:
        names = names.astype(str)
    if keys.ndim not in (1, 2) or names.ndim != 1 or len(keys) != len(names):
        raise ValueError(
            f"quality must be [n] or [n, k] and ids [n], got shapes {keys.shape} and {names.shape}; "
            "give one quality and one id per row"
        )
    if keys.ndim == 1:
        keys = keys[:, None]
    # + 0.0 turns -0.0 into 0.0; NaN compares below everything.
    keys = np.where(np.isnan(keys), -np.inf, keys) + 0.0
    order = np.lexsort([-column for column in keys.T[::-1]]).astype(np.int64) if keys.shape[1] else np.arange(len(keys))
    ordered = keys[order]
    ties = (ordered[1:] == ordered[:-1]).all(axis=1)
    if ties.any():
        # Ids are long strings: sort only those of rows that need it.
        tied = np.concatenate([ties, [False]]) | np.concatenate([[False], ties])
        level = np.concatenate([[0], np.cumsum(~ties)])[tied]
        rows = order[tied]
        by_id = np.lexsort([names[rows], level])
        order[tied] = rows = rows[by_id]
        twice = (level[1:] == level[:-1]) & (names[rows[1:]] == names[rows[:-1]])
        if twice.any():
            name = names[rows[int(np.argmax(twice))]]
            raise ValueError(f"two rows have the id {str(name)!r} and equal quality: ids must be unique")
    return order


def survivors(
    pairs: npt.ArrayLike, quality: npt.ArrayLike, ids: Sequence[Any] | npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Resolve duplicate pairs to stars.

    Args:
        pairs: int64 [m, 2] row indices, in any order, repeats allowed.
        quality: float64 [n] or [n, k], see `quality_order`.
        ids: [n], see `quality_order`.

    Returns:
        keeper: int64 [n]; -1 for a kept row, else the kept row in whose favour this row is dropped: of all kept rows
        that it is paired with, the best in quality order. Near-linear in n + m; the same for any order of rows and
        pairs.

    Raises:
        ValueError: bad shapes, an index out of range, a row paired with itself, or ids that are not unique.
    """
    order = quality_order(quality, ids)
    n = len(order)
    edges = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    if len(edges) and (edges.min() < 0 or edges.max() >= n):
        raise ValueError(f"pairs must hold row indices 0..{n - 1}, got {edges.min()}..{edges.max()}")
    if (edges[:, 0] == edges[:, 1]).any():
        raise ValueError("pairs must join two different rows; one joins a row with itself")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    ranked = rank[edges]
    keeper_rank = resolve_ranks(ranked.min(axis=1), ranked.max(axis=1), n)
    keeper = np.full(n, -1, dtype=np.int64)
    dropped = keeper_rank >= 0
    keeper[order[dropped]] = order[keeper_rank[dropped]]
    return keeper


def resolve_ranks(better: Indices, worse: Indices, n: int) -> Indices:
    """Stars among rows that are numbered by rank, 0 the best.

    Args:
        better, worse: int64 [m], the two ends of each pair, better < worse.
        n: number of rows.

    Returns:
        int64 [n]: -1 for a kept rank, else the rank that it is dropped for.
    """
    keeper = np.full(n, -1, dtype=np.int64)
    by_better = np.argsort(better, kind="stable")
    better, worse = better[by_better], worse[by_better]
    begins = np.flatnonzero(np.diff(better, prepend=-1))
    heads = better[begins].tolist()
    bounds = [*begins.tolist(), len(better)]
    # In rank order a row's first mark comes from its best kept neighbour, and a row is final when its turn comes.
    for head, (begin, end) in zip(heads, pairwise(bounds), strict=True):
        if keeper[head] < 0:
            neighbours = worse[begin:end]
            keeper[neighbours[keeper[neighbours] < 0]] = head
    return keeper
