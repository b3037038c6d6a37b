"""Hierarchical k-means: clusters of embeddings, clusters of their centroids, and so on.

The first level is as dense as the pool is: a popular pose gets many clusters. A level above clusters *centroids*, each
counted once, so it covers the space of pictures more evenly; with resampling (Vo et al. 2024, arXiv:2405.15613) its
centroids are fitted again on the few members nearest to each of them, which takes away what is left of the pull of
dense regions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from curation.balance.config import check_levels
from curation.balance.tree import Hierarchy
from curation.balance.water import check_whole
from curation.kmeans import nearest, spherical_kmeans
from curation.vectors import Indices, Unit, Vectors, check_vectors, cosines, group_rows, row_blocks, squares, unit_rows

ROWS_PER_CLUSTER = 256
"""Training rows per cluster of the first level where none are given; FAISS's own limit of what helps."""


def hierarchical_kmeans(
    vectors: npt.ArrayLike,
    levels: Sequence[int],
    *,
    seed: int = 0,
    iterations: int = 20,
    train_rows: int | None = None,
    resample: int = 10,
    resample_members: int | None = None,
) -> Hierarchy:
    """Fit a hierarchy of clusters.

    Args:
        vectors: float16 or float32 [n, d], of any length. Rows that are all zero or not finite are left out.
        levels: clusters of each level from the leaves up, strictly decreasing, e.g. (4096, 256, 16).
        seed: of the sample and of each fit; 0 or more.
        iterations: k-means iterations of each fit, at least 1.
        train_rows: rows that the first level is fitted on (see `training_rows`); None: 256 per cluster.
        resample: from the second level up, how often its centroids are fitted again on the members of the level below
            that are nearest to each of them; 0: never.
        resample_members: how many members of each; None: half of the mean number, at least 1.

    Returns:
        The hierarchy. A level has fewer clusters than asked for where there are fewer distinct vectors, down to 0. The
        same bytes for any order of rows and any number of threads.

    Raises:
        TypeError: vectors of another type.
        ValueError: levels that do not decrease, numbers out of range, or vectors that are not two-dimensional.
    """
    rows = check_vectors(vectors)
    check_levels(tuple(levels))
    seed, steps = check_whole(seed, "seed"), check_whole(resample, "resample")
    for name, value in (("iterations", iterations), ("train_rows", train_rows), ("resample_members", resample_members)):
        if value is not None and check_whole(value, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    wanted = ROWS_PER_CLUSTER * levels[0] if train_rows is None else train_rows
    sample, _ = unit_rows(rows[training_rows(rows, wanted, seed)])
    centroids = [spherical_kmeans(sample, levels[0], seed=_seed(seed, 0, 0), iterations=iterations, start="spread")]
    parents: list[npt.NDArray[np.int32]] = []
    for level, clusters in enumerate(levels[1:], start=1):
        below = centroids[-1]
        centres = spherical_kmeans(below, clusters, seed=_seed(seed, level, 0), iterations=iterations, start="spread")
        # With a centroid per point there is no region left that could be denser than another.
        for step in range(1, steps + 1) if 0 < len(centres) < len(below) else ():
            members = resample_members or max(1, len(below) // len(centres) // 2)
            chosen = _nearest_members(below, centres, members)
            centres = spherical_kmeans(
                below[chosen], clusters, seed=_seed(seed, level, step), iterations=iterations, start="spread"
            )
        centroids.append(centres)
        parents.append(nearest(below, centres)[:, 0] if len(centres) else np.empty(0, np.int32))
    return Hierarchy(tuple(centroids), tuple(parents))


def training_rows(vectors: Vectors, rows: int, seed: int = 0) -> Indices:
    """The rows that the first level is fitted on: those with the smallest `curation.vectors.row_keys`.

    Equal rows are one: a picture that is everywhere should not get clusters of its own. The sample of a union of parts
    is the sample of the union of their samples, so parts can be sampled where they are.

    Args:
        vectors: float16 or float32 [n, d].
        rows: how many at most.
        seed: of the keys.

    Returns:
        int64 [<= rows] indices of distinct usable rows, in an order that depends on their values and the seed only.
    """
    first = group_rows(vectors, seed).first
    chosen: list[Indices] = []
    left = rows
    for block in row_blocks(len(first), vectors.shape[1]):
        if left <= 0:
            break
        square = squares(vectors[first[block]])
        usable = first[block][np.isfinite(square) & (square > 0)][:left]
        chosen.append(usable)
        left -= len(usable)
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def _nearest_members(points: Unit, centres: Unit, members: int) -> Indices:
    """Of each cluster the `members` points nearest to its centroid; ties to the lower index. int64, ascending."""
    home = nearest(points, centres)[:, 0]
    cosine = cosines(points, centres[home])
    order = np.lexsort((-cosine, home))
    first = np.flatnonzero(np.diff(home[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    # A centroid can be nearest to no point; there must be as many members as centroids to make as many again.
    while int((rank < members).sum()) < len(centres):
        members += 1
    return np.sort(order[rank < members])


def _seed(seed: int, level: int, step: int) -> int:
    """A seed of its own for each fit."""
    return int(np.random.SeedSequence([seed, level, step]).generate_state(1, np.uint64)[0] >> np.uint64(1))
