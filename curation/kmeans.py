"""Spherical k-means: clusters of directions, the same whatever the order of rows and the number of threads.

A float32 matrix product does the work, and only as a filter: its last bits differ with the number of threads and the
machine, which would send a row to another centroid now and then, and after a few iterations nothing would be the same.
So a row whose best centroids are nearer to each other than the product's error is decided by exact cosines.

Cost: n k d multiply-adds for `nearest`, and per iteration of `spherical_kmeans`. FAISS's k-means on the CPU takes as
many, and 0.7 to 1 times as long (`eval/benchmarks/bench_neighbours.py`; 0.95 with 1,000 clusters of 64 rows). What it
does not take is fewer points than centroids, equal points, and any order of rows for the same result.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from curation.vectors import Indices, RowGroups, Unit, cosines, dot_slack, group_rows, row_blocks, squares

_TILE = 1 << 21  # scores per tile: 8 MB
_GATHER = 1 << 26  # components of distinct rows that are copied side by side: 256 MB
_SUM_ROWS = 1 << 11  # rows per block of sums; part of the result's definition in its last bits
_ARGMAX = 8  # up to so many, one pass per rank is faster than a partition
_UNIT_TOLERANCE = 1e-3
_SPREAD_START = 3e9  # about four seconds of exact cosines


def nearest(vectors: npt.ArrayLike, centroids: npt.ArrayLike, count: int = 1) -> npt.NDArray[np.int32]:
    """The nearest centroids of each row, by exact cosine.

    Args:
        vectors: float32 [n, d], unit rows; a row of zeros is equally near to all.
        centroids: float32 [k, d], unit rows, k at least 1.
        count: how many, at least 1.

    Returns:
        int32 [n, min(count, k)], nearest first, equally near ones by ascending index. The same bytes for any block of
        rows and any number of threads. Memory: tiles of 8 MB beside the result (64 rows from k = 32768 on).

    Raises:
        ValueError: shapes do not match, no centroids, count below 1, or rows that are not of unit length.
    """
    rows, centres = _unit(vectors, "vectors"), _unit(centroids, "centroids")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if not len(centres) or rows.shape[1] != centres.shape[1]:
        raise ValueError(
            f"nearest needs at least one centroid of the vectors' dimensions, got vectors {rows.shape} "
            f"and centroids {centres.shape}"
        )
    return _nearest(rows, None, centres, count)


def spherical_kmeans(
    vectors: npt.ArrayLike,
    clusters: int,
    *,
    seed: int,
    iterations: int,
    weights: npt.ArrayLike | None = None,
    start: Literal["random", "spread"] = "random",
) -> Unit:
    """Cluster unit vectors by cosine: Lloyd's iterations from distinct vectors.

    Equal rows are taken together as one row with the sum of their weights, so a picture that comes a thousand times is
    not drawn as the start of two clusters. A cluster that loses its last row takes the row that is farthest from its
    centroid in the cluster with most distinct rows.

    Args:
        vectors: float32 [n, d], unit rows (`unit_rows`, usable ones).
        clusters: wanted number of clusters, at least 1.
        seed: of the start; 0 or more.
        iterations: at most this many updates of the centroids; fewer when no row changes its cluster. 0: the start.
        weights: float64 [n], above 0; None: 1 each.
        start: "random": vectors drawn with equal chance, so that clusters follow the density. "spread": k-means++
            (Arthur and Vassilvitskii, SODA 2007; distance 1 - cosine), which does not join two of few clusters; where
            that would take more than `_SPREAD_START` multiplications, "random", which many clusters forgive.

    Returns:
        float32 [k, d], unit rows. k = clusters, or the number of distinct vectors where that is smaller (then the
        centroids are these vectors); k = 0 for no rows. The same bytes for any order of rows and any number of threads.

    Raises:
        ValueError: rows not of unit length, or a bad number, shape or weight.
    """
    rows = _unit(vectors, "vectors")
    if clusters < 1 or iterations < 0 or seed < 0:
        raise ValueError(
            f"clusters must be at least 1, iterations and seed at least 0, got {clusters}, {iterations} and {seed}"
        )
    norms = squares(rows)
    if len(rows) and norms.min() < 0.5:
        raise ValueError(
            f"row {int(norms.argmin())} of the vectors is all zero: only usable rows of unit_rows can be clustered"
        )
    groups = group_rows(rows)
    if len(groups.first) <= clusters:
        return rows[groups.first]
    mass = _mass(groups, weights, len(rows))
    points = groups.first
    centres = rows[points[np.sort(_start(rows, points, mass, clusters, seed, start == "spread"))]]
    which: Indices | None = points
    if points.size * rows.shape[1] <= _GATHER:
        rows, points, which = rows[points], np.arange(len(points)), None
    before: Indices | None = None
    for _ in range(iterations):
        assigned = _nearest(rows, which, centres, 1)[:, 0].astype(np.int64)
        _fill_empty(rows, points, assigned, centres)
        if before is not None and np.array_equal(assigned, before):
            break
        centres = _update(rows, points, assigned, mass, centres)
        before = assigned
    return centres


def _start(
    rows: Unit, points: Indices, mass: npt.NDArray[np.float64], clusters: int, seed: int, spread: bool
) -> npt.NDArray[np.int64]:
    """Positions in `points` of the first centroids, distinct."""
    draw = np.random.Generator(np.random.PCG64(seed))
    if not spread or float(len(points)) * clusters * rows.shape[1] > _SPREAD_START:
        return draw.choice(len(points), clusters, replace=False).astype(np.int64)
    candidates = rows[points]
    lengths = squares(candidates)
    distance = np.ones(len(points))
    chosen = np.empty(clusters, dtype=np.int64)
    for step in range(clusters):
        total = np.cumsum(mass * distance)
        # Rows left may all be as near as rounding tells; any that was not chosen will do.
        at = int(np.searchsorted(total, draw.random() * total[-1], side="right")) if total[-1] > 0 else len(points)
        if at >= len(points) or distance[at] <= 0:
            at = int(np.setdiff1d(np.arange(len(points)), chosen[:step])[0])
        chosen[step] = at
        centre = np.broadcast_to(candidates[at], candidates.shape)
        nearer = 1.0 - cosines(candidates, centre, lengths, np.broadcast_to(lengths[at], lengths.shape))
        distance = np.minimum(distance, np.maximum(nearer, 0.0))
        distance[at] = 0.0
    return chosen


def _unit(vectors: npt.ArrayLike, name: str) -> Unit:
    array = np.asarray(vectors)
    if array.dtype != np.float32 or array.ndim != 2:
        raise ValueError(f"{name} must be float32 [rows, dimensions] from unit_rows, got {array.dtype} {array.shape}")
    array = np.ascontiguousarray(array)
    for block in row_blocks(*array.shape):
        length = np.einsum("ij,ij->i", array[block], array[block])
        wrong = ~((np.abs(length - 1) < _UNIT_TOLERANCE) | (length == 0))
        if wrong.any() or (name == "centroids" and (length == 0).any()):
            row = block.start + int(np.argmax(wrong if wrong.any() else length == 0))
            raise ValueError(f"row {row} of the {name} is not of unit length: pass the usable rows of unit_rows")
    return array


def _nearest(rows: Unit, which: Indices | None, centres: Unit, count: int) -> npt.NDArray[np.int32]:
    """`nearest` of rows[which]."""
    n, k = len(rows) if which is None else len(which), len(centres)
    count = min(count, k)
    result = np.empty((n, count), dtype=np.int32)
    step = min(max(_TILE // k, 64), 4096)
    # Buffers are kept: fresh pages for every tile take a tenth of the time.
    buffer = np.empty((min(step, n), k), dtype=np.float32)
    gathered = np.empty((0 if which is None else min(step, n), rows.shape[1]), dtype=np.float32)
    centre_squares = squares(centres)
    columns = np.ascontiguousarray(centres.T)
    # Two products may be off in opposite directions; a centroid that is a little too long shifts its products.
    margin = 2.01 * (dot_slack(rows.shape[1]) + float(np.abs(np.sqrt(centre_squares) - 1).max()))
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        part = rows[block] if which is None else _take(rows, which[block], gathered)
        scores = np.matmul(part, columns, out=buffer[: len(part)])
        # One more than wanted: it tells how far the next one is.
        found, best = _top(scores, min(count + 1, k))
        result[block] = found[:, :count]
        close = np.flatnonzero((best[:, :-1] - best[:, 1:] <= margin).any(axis=1))
        if len(close):
            candidates = scores[close] >= best[close, count - 1, None] - np.float32(margin)
            result[start + close] = _rank_exactly(part[close], candidates, centres, centre_squares, count)
    return result


def _take(rows: Unit, which: Indices, out: Unit) -> Unit:
    """rows[which] in the first rows of `out`."""
    return np.take(rows, which, axis=0, out=out[: len(which)], mode="clip")  # "raise" would copy twice


def _top(scores: npt.NDArray[np.float32], count: int) -> tuple[Indices, npt.NDArray[np.float32]]:
    """Columns and values of the `count` largest scores of each row, largest first; the scores are left as they were."""
    if count > _ARGMAX:
        found = np.argpartition(scores, -count, axis=1)[:, -count:]
        best = np.take_along_axis(scores, found, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1), np.take_along_axis(best, order, axis=1)
    row = np.arange(len(scores))
    found = np.empty((len(scores), count), dtype=np.int64)
    best = np.empty((len(scores), count), dtype=np.float32)
    for rank in range(count):
        found[:, rank] = column = scores.argmax(axis=1)
        best[:, rank] = scores[row, column]
        if rank + 1 < count:
            scores[row, column] = -np.inf
    np.put_along_axis(scores, found, best, axis=1)
    return found, best


def _rank_exactly(
    part: Unit,
    candidates: npt.NDArray[np.bool_],
    centres: Unit,
    centre_squares: npt.NDArray[np.float64],
    count: int,
) -> npt.NDArray[np.int32]:
    """The nearest centroids of rows that float32 cannot decide, among candidates bool [rows, k]."""
    result = np.empty((len(part), count), dtype=np.int32)
    zero = ~part.any(axis=1)
    result[zero] = np.arange(count)
    candidates[zero] = False
    row, column = np.nonzero(candidates)
    score = np.empty(len(row), dtype=np.float64)
    part_squares = squares(part)
    for pairs in row_blocks(len(row), centres.shape[1]):
        i, j = row[pairs], column[pairs]
        score[pairs] = cosines(part[i], centres[j], part_squares[i], centre_squares[j])
    order = np.lexsort([column, -score, row])
    begins = np.searchsorted(row, np.flatnonzero(~zero))
    result[~zero] = column[order][begins[:, None] + np.arange(count)]
    return result


def _mass(groups: RowGroups, weights: npt.ArrayLike | None, n: int) -> npt.NDArray[np.float64]:
    """Weight of each group, float64 [g]."""
    if weights is None:
        return groups.counts.astype(np.float64)
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (n,) or not (np.isfinite(given) & (given > 0)).all():
        raise ValueError(f"weights must be one finite number above 0 per row, got shape {given.shape} for {n} rows")
    ordered = given[groups.rows]
    if len(groups.starts) == n:
        return ordered
    # Sorted inside a group, so that the rounding of the sum does not depend on the order of rows.
    group = np.repeat(np.arange(len(groups.starts)), groups.counts)
    ordered = ordered[np.lexsort([ordered, group])]
    return np.bincount(group, weights=ordered, minlength=len(groups.starts)).astype(np.float64)


def _fill_empty(rows: Unit, points: Indices, assigned: Indices, centres: Unit) -> None:
    """Give each empty cluster a row, in place in `assigned`."""
    sizes = np.bincount(assigned, minlength=len(centres))
    for empty in np.flatnonzero(sizes == 0).tolist():
        donor = int(sizes.argmax())
        members = np.flatnonzero(assigned == donor)
        score = np.empty(len(members), dtype=np.float64)
        for block in row_blocks(len(members), rows.shape[1]):
            part = rows[points[members[block]]]
            score[block] = cosines(part, np.broadcast_to(centres[donor], part.shape))
        assigned[members[score.argmin()]] = empty
        sizes[donor] -= 1
        sizes[empty] = 1


def _update(rows: Unit, points: Indices, assigned: Indices, mass: npt.NDArray[np.float64], centres: Unit) -> Unit:
    """Directions of the clusters' weighted sums. A sum of zero (opposite rows) has none: the centroid stays."""
    from scipy.sparse import csr_matrix

    order = np.argsort(assigned, kind="stable")
    sums = np.zeros(centres.shape, dtype=np.float64)
    gathered = np.empty((min(_SUM_ROWS, len(order)), rows.shape[1]), dtype=np.float32)
    exact = np.empty(gathered.shape, dtype=np.float64)
    for start in range(0, len(order), _SUM_ROWS):
        at = order[start : start + _SUM_ROWS]
        cluster = assigned[at]
        first = int(cluster[0])
        bounds = np.searchsorted(cluster, np.arange(first, int(cluster[-1]) + 2))
        # A product with a sparse matrix adds row after row, on one thread.
        members = csr_matrix((mass[at], np.arange(len(at)), bounds), shape=(len(bounds) - 1, len(at)))
        exact[: len(at)] = _take(rows, points[at], gathered)
        sums[first : first + len(bounds) - 1] += members @ exact[: len(at)]
    lengths = np.sqrt((sums * sums).sum(axis=1))
    flat = lengths <= 1e-12 * np.bincount(assigned, weights=mass, minlength=len(centres))
    lengths[flat] = 1.0
    return np.where(flat[:, None], centres, (sums / lengths[:, None]).astype(np.float32))
