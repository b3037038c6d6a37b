"""Which rows survive, from all links that were found: the rule of `survivors`, without expanding groups to pairs.

Rows are related when they have equal content; when their perceptual hashes are equal or within the radius; when their
embeddings are equal or neighbours. Rows are taken from the best to the worst: a row that is related to no kept row is
kept, any other is dropped and names the best kept row that it is related to. So no two kept rows of the run are
related, and what a row names is always a direct relative, never the end of a chain.

A row belongs to one group of each of the three sorts. A kept row marks its groups, and the groups that are linked to
them; the first mark of a group is from the best kept row that reaches it. A row is dropped when one of its three groups
was marked before its turn. Each link is followed at most once in each direction, so time is near-linear in nodes and
links: on one core about 2 microseconds and 200 bytes for a node with one link, measured at 1 and 3 million of them.

Components of the graph are independent: resolving each alone gives the same as resolving all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from curation.dedup.links import Kind, Links

Indices = npt.NDArray[np.int64]

_CHUNK = 1 << 16
_FEW = 24  # up to this many neighbours a loop is faster than NumPy


@dataclass(frozen=True, slots=True)
class Stars:
    """The dropped rows, ascending; all others are kept.

    Attributes:
        row: int64 [m], dropped rows of this run, never negative.
        keeper: int64 [m], the kept row in whose favour it is dropped: the first, in order, that it is related to.
        kind: int8 [m], how: `Kind.SAME_BYTES`, else `Kind.NEAR_HASH`, else `Kind.NEAR_VECTOR`.
        value: float32 [m]: 0; the Hamming distance in bits, 0 for equal hashes; the cosine, 1 for equal embeddings.
    """

    row: Indices
    keeper: Indices
    kind: npt.NDArray[np.int8]
    value: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.row)


def resolve_links(links: Links, nodes: npt.ArrayLike, rank: npt.ArrayLike) -> Stars:
    """Resolve links to stars.

    Args:
        links: all that relate the nodes, in any order; of a repeated link the smallest distance and the largest cosine
            count. A link between groups may name any of their rows.
        nodes: int64 [k], ascending without repeats: at least every row that occurs in the links. Negative ones are rows
            of an earlier corpus: they come first, in the order -1, -2, ..., and are always kept.
        rank: int64 [k], 0 the best; distinct for nodes >= 0, ignored for the others.

    Returns:
        What is dropped, and for what. The same for any order of the links.

    Raises:
        ValueError: shapes or types do not match, nodes do not ascend, ranks repeat, a link names a row that is not
            among the nodes, or a row is in two groups of one kind.
    """
    rows, order, earlier = _order(nodes, rank)
    k = len(rows)
    position = np.empty(k, dtype=np.int64)
    position[order] = np.arange(k)
    a, b = position[_find(rows, links.a)], position[_find(rows, links.b)]

    content = _groups(k, a, b, links.kind == Kind.SAME_BYTES, Kind.SAME_BYTES, rows[order])
    hashes = _relation(k, a, b, links, Kind.SAME_HASH, Kind.NEAR_HASH, rows[order])
    vectors = _relation(k, a, b, links, Kind.SAME_VECTOR, Kind.NEAR_VECTOR, rows[order])
    content_mark = _sweep(content, hashes, vectors, earlier)

    by_content = content_mark[content]
    by_hash, by_vector = hashes.mark[hashes.group], vectors.mark[vectors.group]
    best = np.minimum(np.minimum(by_content, by_hash), by_vector)
    # A mark by a worse row, or by the row itself, says nothing about a row.
    best[:earlier] = k
    dropped = np.flatnonzero(best < np.arange(k))
    keeper = best[dropped]
    kind = np.full(len(dropped), Kind.NEAR_VECTOR, dtype=np.int8)
    value = np.zeros(len(dropped), dtype=np.float32)
    same = by_content[dropped] == keeper
    near = (by_hash[dropped] == keeper) & ~same
    kind[near], kind[same] = Kind.NEAR_HASH, Kind.SAME_BYTES
    value[near] = hashes.between(dropped[near], keeper[near], 0)
    rest = ~same & ~near
    value[rest] = vectors.between(dropped[rest], keeper[rest], 1)
    names = rows[order]
    ascending = np.argsort(names[dropped])
    return Stars(names[dropped][ascending], names[keeper][ascending], kind[ascending], value[ascending])


def removed_curve(
    links: Links,
    nodes: npt.ArrayLike,
    rank: npt.ArrayLike,
    kind: Literal["hash", "vector"],
    thresholds: Sequence[float] | npt.NDArray[np.float64],
) -> Indices:
    """How many rows each threshold removes: by equal content, and by hash or by embedding alone.

    Args:
        links, nodes, rank: as in `resolve_links`. The links must have been searched at the widest threshold.
        kind: "hash", thresholds are distances in bits and links up to each count; or "vector", thresholds are cosines
            and links from each on count (compared as float32, in which links hold them).
        thresholds: [t], in any order.

    Returns:
        int64 [t], rows removed at each.

    Raises:
        ValueError: another kind, or as `resolve_links`.
    """
    if kind not in ("hash", "vector"):
        raise ValueError(f"kind must be 'hash' or 'vector', got {kind!r}")
    kinds = (Kind.SAME_HASH, Kind.NEAR_HASH) if kind == "hash" else (Kind.SAME_VECTOR, Kind.NEAR_VECTOR)
    content = links.kind == Kind.SAME_BYTES
    ours = np.isin(links.kind, kinds)
    counts = []
    for threshold in thresholds:
        limit = np.float32(threshold)
        near = links.value <= limit if kind == "hash" else links.value >= limit
        counts.append(len(resolve_links(links.take(content | (ours & near)), nodes, rank)))
    return np.array(counts, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Relation:
    """Groups of one sort and the links between them, over positions 0..k-1 in the order in which rows are taken.

    Attributes:
        group: int64 [k], the group of each row, named by one of its rows.
        starts: int64 [k + 1], where the links of a group begin.
        other: int64 [e], the group at the other end; ascending for each group.
        edge: int64 [e], group * k + other, ascending.
        value: float32 [e].
        mark: int64 [k], the first kept row that reaches a group; k for none.
    """

    group: Indices
    starts: Indices
    other: Indices
    edge: Indices
    value: npt.NDArray[np.float32]
    mark: Indices

    def acting(self) -> npt.NDArray[np.bool_]:
        """bool [k]: the rows that are related to another row."""
        several = np.bincount(self.group, minlength=len(self.group)) > 1
        return (several | (np.diff(self.starts) > 0))[self.group]

    def between(self, row: Indices, keeper: Indices, same: float) -> npt.NDArray[np.float32]:
        """The value of each row with its keeper, `same` where they share a group."""
        left, right = self.group[row], self.group[keeper]
        value = np.full(len(row), same, dtype=np.float32)
        apart = np.flatnonzero(left != right)
        at = np.searchsorted(self.edge, left[apart] * len(self.group) + right[apart])
        value[apart] = self.value[at]
        return value

    def marker(self) -> Callable[[int, int], None]:
        """A function (group, row) that marks a kept row's group and what is linked to it."""
        # Single elements of a memoryview are read and written several times faster than those of an array.
        mark, starts, other = self.mark.data, self.starts.data, self.other.data
        marks, others, unmarked = self.mark, self.other, len(self.group)
        followed = bytearray(unmarked)

        def spread(group: int, row: int) -> None:
            if followed[group]:  # by a better row; only rows of an earlier corpus get here
                return
            followed[group] = 1
            if mark[group] == unmarked:
                mark[group] = row
            begin, end = starts[group], starts[group + 1]
            if end - begin <= _FEW:
                for link in range(begin, end):
                    reached = other[link]
                    if mark[reached] == unmarked:
                        mark[reached] = row
            else:
                part = others[begin:end]
                marks[part[marks[part] == unmarked]] = row

        return spread


def _sweep(content: Indices, hashes: _Relation, vectors: _Relation, earlier: int) -> Indices:
    """Go through the rows in order and mark groups; returns the marks of the content groups."""
    k = len(content)
    content_mark = np.full(k, k, dtype=np.int64)
    acting = (np.bincount(content, minlength=k) > 1)[content] | hashes.acting() | vectors.acting()
    rows = np.flatnonzero(acting)
    by_content, by_hash, by_vector = content_mark.data, hashes.mark.data, vectors.mark.data
    spread_hash, spread_vector = hashes.marker(), vectors.marker()
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        turns = (part.tolist(), content[part].tolist(), hashes.group[part].tolist(), vectors.group[part].tolist())
        for row, c, h, v in zip(*turns, strict=True):
            if row >= earlier and (by_content[c] < k or by_hash[h] < k or by_vector[v] < k):
                continue
            if by_content[c] == k:
                by_content[c] = row
            spread_hash(h, row)
            spread_vector(v, row)
    return content_mark


def _relation(k: int, a: Indices, b: Indices, links: Links, same: Kind, near: Kind, names: Indices) -> _Relation:
    group = _groups(k, a, b, links.kind == same, same, names)
    chosen = links.kind == near
    left, right, value = group[a[chosen]], group[b[chosen]], links.value[chosen]
    apart = left != right
    left, right, value = left[apart], right[apart], value[apart]
    edge = np.concatenate([left * k + right, right * k + left])
    value = np.concatenate([value, value])
    by_edge = np.argsort(edge)
    edge, value = edge[by_edge], value[by_edge]
    first = np.flatnonzero(np.diff(edge, prepend=-1))
    closest = np.minimum if near == Kind.NEAR_HASH else np.maximum
    if len(first):
        edge, value = edge[first], closest.reduceat(value, first)
    source, other = np.divmod(edge, max(k, 1))
    starts = np.zeros(k + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=k), out=starts[1:])
    return _Relation(group, starts, other, edge, value, np.full(k, k, dtype=np.int64))


def _groups(k: int, a: Indices, b: Indices, chosen: npt.NDArray[np.bool_], kind: Kind, names: Indices) -> Indices:
    """int64 [k]: the group of each row, by its name; a row of no group is its own."""
    group = np.arange(k)
    name, member = a[chosen], b[chosen]
    group[member] = name
    wrong = np.flatnonzero((group[member] != name) | (group[name] != name))
    if len(wrong):
        row, other = names[name[wrong[0]]], names[member[wrong[0]]]
        raise ValueError(
            f"{kind.name} links put row {other} into the group {row}, and one of the two into another group as well: "
            "name each group by one row and link its other rows to that"
        )
    return group


def _order(nodes: npt.ArrayLike, rank: npt.ArrayLike) -> tuple[Indices, Indices, int]:
    """The nodes, their indices in the order in which they are taken, and how many are of an earlier corpus."""
    rows, ranks = np.asarray(nodes), np.asarray(rank)
    if rows.ndim != 1 or rows.shape != ranks.shape:
        raise ValueError(f"nodes and rank must be of one length, got shapes {rows.shape} and {ranks.shape}")
    for name, array in (("nodes", rows), ("rank", ranks)):
        if array.size and array.dtype != np.int64:
            raise ValueError(f"{name} must be int64, got {array.dtype}")
    rows, ranks = rows.astype(np.int64, copy=False), ranks.astype(np.int64, copy=False)
    if (rows[1:] <= rows[:-1]).any():
        raise ValueError("nodes must ascend without repeats: use numpy.unique")
    earlier = int(np.searchsorted(rows, 0))
    mine = np.argsort(ranks[earlier:], kind="stable")
    ordered = ranks[earlier:][mine]
    if (ordered[1:] == ordered[:-1]).any():
        twice = ordered[int(np.argmax(ordered[1:] == ordered[:-1]))]
        raise ValueError(f"two nodes have rank {twice}: ranks must be distinct")
    return rows, np.concatenate([np.arange(earlier)[::-1], earlier + mine]).astype(np.int64), earlier


def _find(nodes: Indices, rows: Indices) -> Indices:
    """Where each row is among the nodes."""
    at = np.searchsorted(nodes, rows)
    missing = np.flatnonzero(nodes[np.minimum(at, len(nodes) - 1)] != rows) if len(nodes) else np.arange(len(rows))
    if len(missing):
        raise ValueError(f"a link names row {rows[missing[0]]}, which is not among the {len(nodes)} nodes")
    return at.astype(np.int64)
