"""All pairs of 64-bit hashes within a Hamming radius, exactly, in near-linear time and bounded memory.

Equal hashes are set apart first, because pools are full of them: the search runs on distinct values (`banding`), and
its pairs are then expanded to rows, block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curation.dedup import banding
from curation.dedup.banding import Hashes, Indices, PairBlock, flat_blocks

MAX_RADIUS = 8
"""Largest radius: beyond it keys get so short that banding costs as much as comparing all pairs."""

MAX_PAIRS = 1 << 28
"""What `hamming_pairs` returns at most by default: 4 GiB of pairs."""


def hamming_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Number of differing bits, 0..64, of uint64 arrays that broadcast together."""
    return np.bitwise_count(np.asarray(a, dtype=np.uint64) ^ np.asarray(b, dtype=np.uint64))


def iter_hamming_pairs(hashes: npt.ArrayLike, radius: int, block: int = 1 << 20) -> Iterator[Indices]:
    """All pairs within `radius`, streamed.

    Args:
        hashes: uint64 [n].
        radius: 0..8 bits, inclusive.
        block: largest number of pairs in one array; memory is about 100 bytes a pair beside a few arrays of n.

    Yields:
        int64 [m, 2] row indices, i < j, 1 <= m <= block; each pair exactly once, in an order that is the same for the
        same input but not sorted.

    Raises:
        ValueError: not a one-dimensional uint64 array, or a radius outside 0..8.
    """
    groups = group_equal(check_hashes(hashes))
    check_radius(radius)
    if block < 1:
        raise ValueError(f"block must be at least 1 pair, got {block}")
    return _expand(groups, radius, block)


def _expand(groups: EqualGroups, radius: int, block: int) -> Iterator[Indices]:
    rows = groups.rows
    to_the_end = np.repeat(np.cumsum(groups.counts), groups.counts) - np.arange(len(rows)) - 1
    for owner, local in flat_blocks(to_the_end, block):
        yield np.stack([rows[owner], rows[owner + 1 + local]], axis=1)
    for p, q in gather(banding.join(groups.values, radius), block):
        yield from _products(groups, p, groups, q, block, ordered=True)


def hamming_pairs(hashes: npt.ArrayLike, radius: int, max_pairs: int = MAX_PAIRS) -> Indices:
    """All pairs within `radius`.

    Args:
        hashes: uint64 [n].
        radius: 0..8 bits, inclusive.
        max_pairs: refuse to build a larger result: n equal hashes alone have n (n - 1) / 2 pairs.

    Returns:
        int64 [m, 2] row indices, i < j, sorted by i then j, without repeats.

    Raises:
        ValueError: not a one-dimensional uint64 array, a radius outside 0..8, or more than `max_pairs` pairs.
    """
    parts: list[Indices] = []
    found = 0
    for part in iter_hamming_pairs(hashes, radius):
        found += len(part)
        if found > max_pairs:
            raise ValueError(
                f"more than {max_pairs:,} pairs within radius {radius}: raise max_pairs, stream them with "
                "iter_hamming_pairs, or use near_duplicates, which needs no pairs of equal hashes"
            )
        parts.append(part)
    return _sorted_pairs(parts)


def hamming_pairs_between(a: npt.ArrayLike, b: npt.ArrayLike, radius: int) -> Indices:
    """All pairs of a row of `a` and a row of `b` within `radius`: references, block lists, yesterday's corpus.

    Args:
        a: uint64 [n].
        b: uint64 [k].
        radius: 0..8 bits, inclusive.

    Returns:
        int64 [m, 2]: row of `a`, row of `b`; sorted by both.

    Raises:
        ValueError: not one-dimensional uint64 arrays, or a radius outside 0..8.
    """
    check_radius(radius)
    left, right = group_equal(check_hashes(a)), group_equal(check_hashes(b))
    parts: list[Indices] = []
    for p, q in gather(distinct_between(left.values, right.values, radius), 1 << 20):
        parts.extend(_products(left, p, right, q, 1 << 20, ordered=False))
    return _sorted_pairs(parts)


def distinct_between(left: Hashes, right: Hashes, radius: int) -> Iterator[PairBlock]:
    """Pairs (i in left, j in right) within `radius`, once each; each side sorted and without repeats."""
    union = np.union1d(left, right)
    if len(left) * len(right) * banding._NS_TILE <= banding.plan(union, radius).cost:
        yield from banding.cross(left, right, radius)
        return
    where_left, where_right = _positions(union, left), _positions(union, right)
    both = np.flatnonzero((where_left >= 0) & (where_right >= 0))
    yield where_left[both], where_right[both]
    for p, q in banding.join(union, radius):
        for i, j in ((where_left[p], where_right[q]), (where_left[q], where_right[p])):
            pair = (i >= 0) & (j >= 0)
            if pair.any():
                yield i[pair], j[pair]


def _positions(union: Hashes, part: Hashes) -> Indices:
    positions = np.full(len(union), -1, dtype=np.int64)
    positions[np.searchsorted(union, part)] = np.arange(len(part))
    return positions


@dataclass(frozen=True, slots=True)
class EqualGroups:
    """Rows grouped by equal hash.

    Attributes:
        values: uint64 [g], distinct, ascending.
        rows: int64 [n], row indices, group after group, ascending inside a group.
        starts: int64 [g], where each group begins in `rows`.
        counts: int64 [g], rows per group.
    """

    values: Hashes
    rows: Indices
    starts: Indices
    counts: Indices


def group_equal(hashes: Hashes) -> EqualGroups:
    """Group the rows of uint64 [n] by value."""
    rows = np.argsort(hashes, kind="stable").astype(np.int64)
    ordered = hashes[rows]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]).astype(np.int64)
    return EqualGroups(ordered[starts], rows, starts, np.diff(starts, append=len(rows)).astype(np.int64))


def check_hashes(hashes: npt.ArrayLike) -> Hashes:
    """The array itself, if it is uint64 [n]."""
    array = np.asarray(hashes)
    if array.size == 0 and array.ndim == 1:
        return array.astype(np.uint64)
    if array.dtype != np.uint64 or array.ndim != 1:
        raise ValueError(
            f"hashes must be a one-dimensional uint64 array, got {array.dtype} with shape {array.shape}; "
            "hashes stored as int64 convert with .view(numpy.uint64)"
        )
    return array


def check_radius(radius: int) -> None:
    """Raise unless 0 <= radius <= 8."""
    if not 0 <= radius <= MAX_RADIUS:
        raise ValueError(f"radius must be 0..{MAX_RADIUS} bits, got {radius}")


def gather(blocks: Iterable[PairBlock], size: int) -> Iterator[PairBlock]:
    """Join small blocks, so that what follows runs on long arrays."""
    held: list[PairBlock] = []
    count = 0
    for pair_block in blocks:
        held.append(pair_block)
        count += len(pair_block[0])
        if count >= size:
            yield np.concatenate([i for i, _ in held]), np.concatenate([j for _, j in held])
            held, count = [], 0
    if count:
        yield np.concatenate([i for i, _ in held]), np.concatenate([j for _, j in held])


def _products(
    left: EqualGroups, p: Indices, right: EqualGroups, q: Indices, block: int, ordered: bool
) -> Iterator[Indices]:
    """Pairs of groups to pairs of rows."""
    width = right.counts[q]
    for owner, local in flat_blocks(left.counts[p] * width, block):
        row, column = np.divmod(local, width[owner])
        pairs = np.stack([left.rows[left.starts[p[owner]] + row], right.rows[right.starts[q[owner]] + column]], axis=1)
        yield np.sort(pairs, axis=1) if ordered else pairs


def _sorted_pairs(parts: list[Indices]) -> Indices:
    if not parts:
        return np.empty((0, 2), dtype=np.int64)
    pairs = np.concatenate(parts)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
