"""Pairs of embeddings with cosine >= t: k-means partitions, several per row, and exact search inside each.

A row lives in its nearest partition, its *home*, and visits its next nearest ones; two rows are compared where one of
them is at home and the other at home or visiting. Pairs that are found are exact: a float32 product only filters, and
every pair that it lets through is decided, and its cosine taken, in float64. Pairs are missed where neither row visits
the other's home; with one partition none are. Recall, measured on clustered rows of 512 dimensions with near copies at
cosines spread evenly up to 0.999 (`eval/benchmarks/bench_neighbours.py`: 100,000 rows, 392 partitions as chosen):

    cosine >=       0.7     0.8     0.9     0.95
    1 assignment    0.928   0.951   0.968   0.977
    2               0.977   0.989   0.996   0.998
    3               0.990   0.996   0.999   0.999
    4               0.995   0.999   1.000   0.999

Equal vectors form a group and are compared once; a million equal pictures cost a million links.

Cost in multiply-adds of d: n k to find the homes, (m - 1/2) n^2 / k times a factor of skew to search, m partitions per
row; k of the order of sqrt(m n) makes both n^1.5. For a million rows of 512 that is about 4e12 in all (a core does some
5e10 a second), and 0.8 GB of memory beside the input's 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pydantic import Field

from curation.config import Config
from curation.dedup.banding import flat_blocks
from curation.dedup.links import Links
from curation.dedup.partitions import check_threshold, partition_links
from curation.kmeans import nearest, spherical_kmeans
from curation.vectors import Indices, RowGroups, Vectors, check_vectors, group_rows, row_blocks, squares, unit_rows

MAX_PAIRS = 1 << 28
"""What `neighbour_pairs` returns at most by default: 4 GiB of pairs."""

EXACT_ROWS = 20_000
"""Up to so many distinct vectors one partition is used, and every pair is found: about a second at 512 dimensions."""

ASSIGNMENTS = 2
TRAIN_ROWS = 1 << 22
ITERATIONS = 8
SEED = 0

_TRAIN_PER_PARTITION = 64
_MIN_TRAIN_PER_PARTITION = 32
_SKEW = 5.0  # comparisons over those with even partitions; 4 to 10 on clustered data with hubs (bench_neighbours)
_PAIRS = 1 << 20


class NeighbourConfig(Config):
    """How near-equal embeddings are found."""

    threshold: float = Field(
        default=0.95,
        ge=-1,
        le=1,
        description="Cosine from which two embeddings are neighbours. The lower it is, the more pairs lie across "
        "partitions and are missed: raise assignments with it, or set partitions to 1 for all pairs.",
    )
    partitions: int | None = Field(
        default=None, ge=1, description="k-means partitions; null: chosen from the number of rows. 1 finds every pair."
    )
    assignments: int = Field(
        default=ASSIGNMENTS, ge=1, le=64, description="Nearest partitions in which each row is searched."
    )
    train_rows: int = Field(
        default=TRAIN_ROWS,
        ge=1,
        description="Most rows that train the partitions: 64 per partition are used, and there are at most as many "
        "partitions as leave 32 for each.",
    )
    iterations: int = Field(default=ITERATIONS, ge=0, description="k-means iterations.")
    seed: int = Field(default=SEED, ge=0, description="Seed of the training sample and of the start of k-means.")


def partition_count(n: int, assignments: int = ASSIGNMENTS, train_rows: int = TRAIN_ROWS) -> int:
    """The number of partitions that costs least for n rows; 1 up to `EXACT_ROWS`.

    Cost: training (64 k rows, k centroids, about 8 iterations), n k for the homes, and the search.
    """
    if n <= EXACT_ROWS:
        return 1
    k = np.unique(np.geomspace(1, min(n, max(1, train_rows // _MIN_TRAIN_PER_PARTITION)), 400).astype(np.int64))
    training = ITERATIONS * np.minimum(_TRAIN_PER_PARTITION * k, train_rows) * k.astype(np.float64)
    search = _SKEW * (assignments - 0.5) * float(n) ** 2 / k
    return int(k[np.argmin(training + float(n) * k + search)])


def partitions_for(n: int, config: NeighbourConfig) -> int:
    """The number of partitions for n rows: as configured, or `partition_count`."""
    if config.partitions is not None:
        return config.partitions
    return partition_count(n, config.assignments, config.train_rows)


def training_rows(partitions: int, train_rows: int = TRAIN_ROWS) -> int:
    """How many rows train so many partitions."""
    return max(partitions, min(train_rows, _TRAIN_PER_PARTITION * partitions))


def neighbour_pairs(
    embeddings: npt.ArrayLike,
    threshold: float,
    *,
    partitions: int | None = None,
    assignments: int = ASSIGNMENTS,
    train_rows: int = TRAIN_ROWS,
    iterations: int = ITERATIONS,
    seed: int = SEED,
    max_pairs: int = MAX_PAIRS,
) -> Indices:
    """Pairs of rows with cosine >= `threshold`.

    Every pair returned is one, by float64 cosine. All are found with one partition, which is what is used up to
    `EXACT_ROWS` distinct vectors; else see the module for the recall, and mind that it falls with the threshold.

    Args:
        embeddings: float16 or float32 [n, d], of any length; rows all zero or not finite have no neighbours.
        threshold: -1..1, inclusive.
        partitions: see `NeighbourConfig`; also the other parameters.
        max_pairs: refuse to build a larger result: n equal rows alone have n (n - 1) / 2 pairs.

    Returns:
        int64 [m, 2] row indices, i < j, sorted by i then j, without repeats; the same pairs for any order of rows and
        number of threads.

    Raises:
        TypeError, ValueError: wrong type or shape, a parameter out of range, or more than `max_pairs` pairs.
    """
    vectors = check_vectors(embeddings)
    check_threshold(threshold)
    if assignments < 1 or train_rows < 1 or (partitions is not None and partitions < 1):
        raise ValueError(
            f"partitions, assignments and train_rows must be at least 1, got {partitions}, {assignments}, {train_rows}"
        )
    square = squares(vectors)
    usable = np.flatnonzero(np.isfinite(square) & (square > 0))
    groups = group_rows(vectors if len(usable) == len(vectors) else vectors[usable], seed)
    if len(usable) < len(vectors):
        groups = RowGroups(usable[groups.rows], groups.starts, groups.counts)
    names = groups.first
    if partitions is None:
        partitions = partition_count(len(names), assignments, train_rows)

    parts: list[Indices] = []
    found = 0

    def hold(total: int, blocks: Iterator[Indices]) -> None:
        nonlocal found
        found += total
        if found > max_pairs:
            raise ValueError(
                f"more than {max_pairs:,} pairs with cosine >= {threshold:g}: raise max_pairs or the threshold, or use "
                "partition_links, whose groups of equal vectors need no pairs"
            )
        parts.extend(blocks)

    # 1 is the cosine of equal rows, and no threshold is above it.
    hold(int((groups.counts * (groups.counts - 1) // 2).sum()), _inside(groups))
    group_of = np.full(len(vectors), -1, dtype=np.int64)
    group_of[names] = np.arange(len(names))
    for links in _search(vectors, names, threshold, partitions, assignments, train_rows, iterations, seed):
        p, q = group_of[links.a], group_of[links.b]
        hold(int((groups.counts[p] * groups.counts[q]).sum()), _between(groups, p, q))
    pairs = np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _search(
    vectors: Vectors,
    names: Indices,
    threshold: float,
    partitions: int,
    assignments: int,
    train_rows: int,
    iterations: int,
    seed: int,
) -> Iterator[Links]:
    """NEAR_VECTOR links between distinct rows `names`, which stand in the order of their seeded keys."""
    if partitions == 1 or len(names) < 2:
        home = np.zeros((len(names), 1), dtype=np.int32)
        yield from partition_links(vectors[names], names, home, 0, threshold)
        return
    sample = vectors[names[: training_rows(partitions, train_rows)]]
    centroids = spherical_kmeans(unit_rows(sample)[0], partitions, seed=seed, iterations=iterations)
    assigned = np.empty((len(names), min(assignments, len(centroids))), dtype=np.int32)
    for block in row_blocks(len(names), vectors.shape[1], 1 << 24):
        assigned[block] = nearest(unit_rows(vectors[names[block]])[0], centroids, assignments)
    flat = assigned.ravel()
    by_partition = np.argsort(flat, kind="stable")
    bounds = np.searchsorted(flat, np.arange(len(centroids) + 1), sorter=by_partition)
    for partition in range(len(centroids)):
        members = by_partition[bounds[partition] : bounds[partition + 1]] // assigned.shape[1]
        rows = names[members]
        yield from partition_links(vectors[rows], rows, assigned[members], partition, threshold)


def _inside(groups: RowGroups) -> Iterator[Indices]:
    """All pairs of rows of one group."""
    to_the_end = np.repeat(np.cumsum(groups.counts), groups.counts) - np.arange(len(groups.rows)) - 1
    for owner, local in flat_blocks(to_the_end, _PAIRS):
        yield np.stack([groups.rows[owner], groups.rows[owner + 1 + local]], axis=1)


def _between(groups: RowGroups, p: Indices, q: Indices) -> Iterator[Indices]:
    """All pairs of a row of group p and a row of group q."""
    width = groups.counts[q]
    for owner, local in flat_blocks(groups.counts[p] * width, _PAIRS):
        row, column = np.divmod(local, width[owner])
        ends = groups.rows[groups.starts[p[owner]] + row], groups.rows[groups.starts[q[owner]] + column]
        yield np.sort(np.stack(ends, axis=1), axis=1)
