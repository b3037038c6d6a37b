"""Exact and perceptual duplicates of a whole run, from hashes to the kept row that each dropped row names.

Equal hashes never become pairs. Rows of equal hash have the same neighbours, so going through rows in order of quality
a group's best row comes first: if it is kept it drops the rest of its group, and if it was dropped, whatever dropped it
is near the whole group and dropped that too. It is therefore enough to resolve the groups' best rows, and a million
equal pictures cost one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.dedup import banding
from curation.dedup.banding import Hashes, Indices
from curation.dedup.hamming import check_hashes, check_radius, distinct_between, group_equal, hamming_distance
from curation.dedup.survivors import quality_order, resolve_ranks

MAX_HELD_PAIRS = 1 << 24
"""Pairs of distinct hashes that are resolved in one go (0.8 GB of working memory); more are resolved in halves."""


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """What perceptual deduplication decided.

    Attributes:
        keeper: int64 [n]; -1 for a row that is kept or was excluded, else the kept row that it duplicates.
        distance: int16 [n]; bits between a dropped row and its keeper, -1 where there is no keeper.
    """

    keeper: npt.NDArray[np.int64]
    distance: npt.NDArray[np.int16]


def near_duplicates(
    hashes: npt.ArrayLike,
    quality: npt.ArrayLike,
    ids: Sequence[Any] | npt.NDArray[Any],
    radius: int,
    exclude: npt.ArrayLike | None = None,
    max_held_pairs: int = MAX_HELD_PAIRS,
) -> NearDuplicates:
    """Stars of perceptual duplicates: equal to `survivors(hamming_pairs(hashes, radius), quality, ids)`.

    Args:
        hashes: uint64 [n] perceptual hashes.
        quality: float64 [n] or [n, k], higher is better (`quality_order`).
        ids: [n] unique ids.
        radius: 0..8 bits, inclusive.
        exclude: bool [n]; True rows take no part (no hash, a degenerate hash, dropped earlier).
        max_held_pairs: bound on the pairs in memory.

    Returns:
        Keeper and distance of every row. No two kept rows that take part are within `radius`; every dropped row is
        within `radius` of its keeper, the best such kept row.

    Raises:
        ValueError: bad shapes or types, a radius outside 0..8, or ids that are not unique.
    """
    check_radius(radius)
    array = check_hashes(hashes)
    n = len(array)
    keeper = np.full(n, -1, dtype=np.int64)
    distance = np.full(n, -1, dtype=np.int16)
    order = quality_order(quality, ids)
    if len(order) != n:
        raise ValueError(f"hashes, quality and ids must have one entry per row, got {n} hashes and {len(order)} ids")
    if exclude is not None:
        order = order[~_mask(exclude, n)[order]]

    # Groups of equal hash over rows in rank order: the first row of a group is its best.
    groups = group_equal(array[order])
    best = groups.rows[groups.starts]
    by_rank = np.argsort(best)
    group_keeper = _resolve(groups.values[by_rank], radius, max_held_pairs)
    best = best[by_rank]
    target = best.copy()
    dropped = group_keeper >= 0
    target[dropped] = best[group_keeper[dropped]]

    rank_of_group = np.empty(len(best), dtype=np.int64)
    rank_of_group[by_rank] = np.arange(len(best))
    row_target = np.empty(len(order), dtype=np.int64)
    row_target[groups.rows] = np.repeat(target[rank_of_group], groups.counts)
    moved = np.flatnonzero(row_target != np.arange(len(order)))
    keeper[order[moved]] = order[row_target[moved]]
    distance[order[moved]] = hamming_distance(array[order[moved]], array[order[row_target[moved]]])
    return NearDuplicates(keeper, distance)


def _resolve(values: Hashes, radius: int, max_held_pairs: int) -> Indices:
    """Stars among distinct values in rank order: int64 [n], -1 or the rank of the keeper.

    When the pairs are too many to hold, the better half is resolved first, its kept values drop what they can of the
    worse half, and what is left of that is resolved alone. That is the same greedy order, and in a dense cloud of
    values, where pairs abound, few values are kept, so the pairs between them and the rest are few.
    """
    n = len(values)
    held: list[tuple[Indices, Indices]] = []
    count = 0
    for i, j in banding.join(values, radius):
        held.append((np.minimum(i, j), np.maximum(i, j)))
        count += len(i)
        if count > max_held_pairs and n > 2:
            break
    else:
        if not held:
            return np.full(n, -1, dtype=np.int64)
        return resolve_ranks(np.concatenate([i for i, _ in held]), np.concatenate([j for _, j in held]), n)
    del held
    half = n // 2
    keeper = np.full(n, -1, dtype=np.int64)
    keeper[:half] = _resolve(values[:half], radius, max_held_pairs)
    kept = np.flatnonzero(keeper[:half] < 0)
    best = np.full(n - half, n, dtype=np.int64)
    left, right = np.argsort(values[kept]), np.argsort(values[half:])
    for i, j in distinct_between(values[kept][left], values[half:][right], radius):
        np.minimum.at(best, right[j], kept[left[i]])
    keeper[half:] = np.where(best < n, best, -1)
    rest = half + np.flatnonzero(best == n)
    inside = _resolve(values[rest], radius, max_held_pairs)
    again = inside >= 0
    keeper[rest[again]] = rest[inside[again]]
    return keeper


def exact_duplicates(
    content_hashes: Sequence[Any] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray,
    quality: npt.ArrayLike,
    ids: Sequence[Any] | npt.NDArray[Any],
    exclude: npt.ArrayLike | None = None,
) -> Indices:
    """Rows of equal content: the best of each group is kept.

    Args:
        content_hashes: [n] strings, bytes or integers (Arrow, NumPy or a list); None takes no part.
        quality: float64 [n] or [n, k], higher is better (`quality_order`).
        ids: [n] unique ids.
        exclude: bool [n]; True rows take no part.

    Returns:
        keeper: int64 [n]; -1 for a row that is kept or took no part, else the kept row with the same content.

    Raises:
        ValueError: lengths differ, or ids are not unique.
    """
    column = content_hashes if isinstance(content_hashes, pa.Array | pa.ChunkedArray) else pa.array(content_hashes)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    n = len(column)
    order = quality_order(quality, ids)
    if len(order) != n:
        raise ValueError(f"hashes, quality and ids must have one entry per row, got {n} hashes and {len(order)} ids")
    codes = column.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if exclude is not None:
        codes = np.where(_mask(exclude, n), -1, codes)
    order = order[codes[order] >= 0]
    _, first, group = np.unique(codes[order], return_index=True, return_inverse=True)
    keeper = np.full(n, -1, dtype=np.int64)
    best = order[first[group]]
    duplicate = best != order
    keeper[order[duplicate]] = best[duplicate]
    return keeper


def _mask(exclude: npt.ArrayLike, n: int) -> npt.NDArray[np.bool_]:
    mask = np.asarray(exclude)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise ValueError(f"exclude must be a bool array of shape ({n},), got {mask.dtype} {mask.shape}")
    return mask
