"""How evenly rows are spread over clusters and strata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.balance.water import Counts, check_counts


def effective_number(counts: npt.ArrayLike) -> float:
    """The exponential of the entropy of shares: how many equal clusters would be as diverse (Hill number of order 1).

    Args:
        counts: integers [n], 0 or more: rows of each cluster, in any order; empty clusters do not count.

    Returns:
        0.0 without rows, 1.0 for one cluster, k for k equal ones; never more than the number of clusters with rows.

    Raises:
        ValueError: counts are negative, not integers or not one-dimensional.
    """
    array = check_counts(counts, "counts")
    # Sorted: the last bits of a sum depend on its order.
    filled = np.sort(array[array > 0]).astype(np.float64)
    if not len(filled):
        return 0.0
    shares = filled / filled.sum()
    return float(min(np.exp(-(shares * np.log(shares)).sum()), len(filled)))


def spread(counts: npt.ArrayLike) -> dict[str, Any]:
    """A summary of cluster sizes, as JSON.

    Args:
        counts: integers [n], 0 or more.

    Returns:
        rows, clusters (with rows), effective, largest (rows), and sizes: how many clusters have 1, 2..3, 4..7, ...
        rows, by the lower bound as text.
    """
    array = check_counts(counts, "counts").astype(np.int64)
    filled = array[array > 0]
    octave = np.frexp(filled.astype(np.float64))[1] - 1
    # 2^53 and more rounds; an octave too high is harmless there and impossible below.
    counted = np.bincount(octave) if len(filled) else np.empty(0, np.int64)
    return {
        "rows": int(filled.sum()),
        "clusters": len(filled),
        "effective": effective_number(filled),
        "largest": int(filled.max(initial=0)),
        "sizes": {str(1 << power): int(number) for power, number in enumerate(counted) if number},
    }


def summarise(
    leaf: npt.ArrayLike,
    stratum: npt.ArrayLike,
    before: npt.ArrayLike,
    after: npt.ArrayLike,
    parents: Sequence[npt.ArrayLike],
    names: Sequence[str],
) -> dict[str, Any]:
    """What balancing did, as JSON.

    Args:
        leaf: integers [m]: leaf of each cell; negative: rows without an embedding, counted apart from the clusters.
        stratum: integers [m].
        before: integers [m]: rows of the cell.
        after: integers [m]: rows that stay.
        parents: from the leaves up, as in `curation.balance.budgets`.
        names: of the strata, by code.

    Returns:
        levels: for each level, leaves first, `spread` before and after; strata: `effective` number before and after,
        and for each stratum with rows its name, rows and effective number of leaves before and after; no_embedding:
        rows before and after.

    Raises:
        ValueError: counts that are no counts, or more rows after than before.
    """
    start = check_counts(before, "before").astype(np.int64)
    end = check_counts(after, "after").astype(np.int64)
    leaves, codes = np.asarray(leaf, np.int64), np.asarray(stratum, np.int64)
    if len({len(start), len(end), len(leaves), len(codes)}) != 1:
        raise ValueError("leaf, stratum, before and after must have one length")
    if (end > start).any():
        raise ValueError("a cell has more rows after than before")
    known = leaves >= 0
    levels = []
    node = leaves[known]
    for level in range(len(parents) + 1):
        size = int(node.max(initial=-1)) + 1
        levels.append(
            {"before": spread(_sums(node, start[known], size)), "after": spread(_sums(node, end[known], size))}
        )
        if level < len(parents):
            node = np.asarray(parents[level], np.int64)[node]
    each: list[dict[str, Any]] = []
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(codes) else []:
        if start[rows].any():
            inside = rows[known[rows]]
            each.append(
                {
                    "name": names[int(codes[rows[0]])],
                    "rows": {"before": int(start[rows].sum()), "after": int(end[rows].sum())},
                    "effective": {
                        "before": effective_number(_by_leaf(leaves[inside], start[inside])),
                        "after": effective_number(_by_leaf(leaves[inside], end[inside])),
                    },
                }
            )
    sums = [[stratum_["rows"][when] for stratum_ in each] for when in ("before", "after")]
    return {
        "levels": levels,
        "strata": {
            "effective": {"before": effective_number(sums[0]), "after": effective_number(sums[1])},
            "each": each,
        },
        "no_embedding": {"before": int(start[~known].sum()), "after": int(end[~known].sum())},
    }


def _sums(group: Counts, values: Counts, groups: int) -> Counts:
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, values)
    return sums


def _by_leaf(leaves: Counts, counts: Counts) -> Counts:
    distinct, inverse = np.unique(leaves, return_inverse=True)
    return _sums(inverse, counts, len(distinct))
