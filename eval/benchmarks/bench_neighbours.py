"""Near embeddings: growth and recall, against FAISS brute force; and k-means against FAISS's.

The pool is clustered, as embeddings of pictures are: many unevenly sized clusters, themselves in families, and one row
in ten a near copy of another at a cosine between the threshold and 0.999. Recall is of the pairs that brute force finds
for some of the copies, the hard case: two rows of a cluster that are not copies are far below the threshold.
"""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.dedup import neighbour_pairs
from curation.dedup.neighbours import ASSIGNMENTS, ITERATIONS, SEED, TRAIN_ROWS, partition_count
from curation.kmeans import nearest, spherical_kmeans
from curation.vectors import Unit, row_blocks, unit_rows
from eval.benchmarks.common import Figure, Report, note, parser

Half = npt.NDArray[np.float16]
Indices = npt.NDArray[np.int64]
LINEAR = 40.0
"""Ten times the rows may take at most this many times as long: n^1.5 is 32."""

RECALL = 0.99
COPIES = 0.1


def clustered(
    n: int, dimensions: int = 512, threshold: float = 0.95, centres: int = 20_000, seed: int = 0
) -> tuple[Half, Indices]:
    """A pool of embeddings with near copies.

    Returns:
        rows: float16 [n, dimensions], of length 1 to float16.
        copies: int64 [m, 2]: a row and the row that it is a copy of, at a cosine of threshold..0.999 before rounding.
    """
    rng = np.random.default_rng(seed)
    families = rng.standard_normal((max(1, centres // 40), dimensions), dtype=np.float32)
    of_family = families[rng.integers(0, len(families), centres)]
    middles = of_family + rng.standard_normal((centres, dimensions), dtype=np.float32)
    middles += rng.standard_normal(dimensions, dtype=np.float32)
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    share = (np.arange(centres) + 20.0) ** -0.7
    which = rng.choice(centres, n, p=share / share.sum())
    rows = np.empty((n, dimensions), np.float16)
    for block in row_blocks(n, dimensions, 1 << 24):
        # Cosines of 0.4 to 0.8 inside a cluster.
        spread = rng.uniform(0.5, 1.2, (block.stop - block.start, 1)).astype(np.float32) / dimensions**0.5
        part = middles[which[block]] + spread * rng.standard_normal((len(spread), dimensions), dtype=np.float32)
        rows[block] = part / np.linalg.norm(part, axis=1, keepdims=True)
    order = rng.permutation(n)
    copies, sources = order[: int(n * COPIES)], order[int(n * COPIES) :]
    pairs = np.stack([copies, rng.choice(sources, len(copies))], axis=1)
    cosine = rng.uniform(threshold, 0.999, (len(pairs), 1)).astype(np.float32)
    for block in row_blocks(len(pairs), dimensions, 1 << 24):
        source = rows[pairs[block, 1]].astype(np.float32)
        source /= np.linalg.norm(source, axis=1, keepdims=True)
        aside = rng.standard_normal(source.shape, dtype=np.float32)
        aside -= (aside * source).sum(axis=1, keepdims=True) * source
        aside /= np.linalg.norm(aside, axis=1, keepdims=True)
        rows[pairs[block, 0]] = cosine[block] * source + np.sqrt(1 - cosine[block] ** 2) * aside
    return rows, pairs


def brute_force(rows: Half, queries: Indices, threshold: float) -> Indices:
    """Pairs of a query and any other row with cosine >= threshold, by comparing all: int64 [m, 2], i < j, sorted."""
    exact = rows[queries].astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    coarse = exact.astype(np.float32)
    parts = [np.empty((0, 2), np.int64)]
    for block in row_blocks(len(rows), max(len(queries), rows.shape[1]), 1 << 24):
        part = rows[block].astype(np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
        i, j = np.nonzero(coarse @ part.T >= threshold - 1e-4)
        other = rows[block.start + j].astype(np.float64)
        cosine = np.einsum("ij,ij->i", exact[i], other) / np.linalg.norm(other, axis=1)
        near = (cosine >= threshold) & (queries[i] != block.start + j)
        parts.append(np.stack([queries[i[near]], block.start + j[near]], axis=1))
    return np.unique(np.sort(np.concatenate(parts), axis=1), axis=0)


def recall(found: Indices, expected: Indices, n: int) -> float:
    """Share of the expected pairs that were found; pairs int64 [m, 2] of rows below n."""
    return float(np.isin(expected[:, 0] * n + expected[:, 1], found[:, 0] * n + found[:, 1]).mean())


def faiss_pairs(unit: Unit, queries: int, threshold: float) -> int:
    """FAISS compares the first `queries` rows with all; the number of results."""
    import faiss

    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    limits, _, _ = index.range_search(unit[:queries], float(threshold))
    return int(limits[-1])


def faiss_kmeans(unit: Unit, clusters: int, iterations: int) -> Unit:
    """Centroids by FAISS."""
    import faiss

    kmeans = faiss.Kmeans(
        unit.shape[1], clusters, niter=iterations, spherical=True, seed=1, max_points_per_centroid=len(unit)
    )
    kmeans.train(unit)
    return np.asarray(kmeans.centroids, dtype=np.float32)


def growth(report: Report, options: Any) -> None:
    """Time, recall and memory for each size."""
    before: tuple[int, float] | None = None
    for size in options.sizes:
        rows, copies = clustered(size, options.dimensions, options.threshold, options.centres)
        note(f"{size:,} rows made")
        started = time.perf_counter()
        found = neighbour_pairs(
            rows,
            options.threshold,
            partitions=options.partitions,
            assignments=options.assignments,
            train_rows=TRAIN_ROWS,
            iterations=options.iterations,
            seed=SEED,
        )
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        expected = brute_force(rows, copies[: options.queries, 0], options.threshold)
        share = recall(found, expected, size)
        name = f"neighbours, {size:,} x {options.dimensions} at {options.threshold:g}"
        detail = {
            "us a row": 1e6 * seconds / size,
            "pairs": len(found),
            "partitions": options.partitions or partition_count(size, options.assignments),
            "peak GB": peak,
            "input GB": rows.nbytes / 2**30,
        }
        report(
            Figure(
                f"{name}, recall",
                share,
                "",
                1.0,
                share,
                f"at least {RECALL}",
                share >= RECALL,
                None,
                {"of": len(expected)},
            )
        )
        if before is None or size != 10 * before[0]:
            report(Figure(name, seconds, "s", detail=detail))
        else:
            ratio = seconds / before[1]
            goal = f"at most {LINEAR:.0f}"
            report(
                Figure(
                    f"{name} against {before[0]:,}", seconds, "s", before[1], ratio, goal, ratio <= LINEAR, None, detail
                )
            )
        before = size, seconds


def against_brute_force(report: Report, options: Any) -> None:
    """The whole search against FAISS's, which is timed on some of the queries."""
    size, queries = options.brute_force, max(1, options.brute_force // options.brute_share)
    rows, _ = clustered(size, options.dimensions, options.threshold, options.centres)
    unit, _ = unit_rows(rows)
    ratios, ours, theirs = [], [], []
    for _ in range(options.rounds):
        started = time.perf_counter()
        neighbour_pairs(rows, options.threshold, partitions=options.partitions, assignments=options.assignments)
        ours.append(time.perf_counter() - started)
        started = time.perf_counter()
        faiss_pairs(unit, queries, options.threshold)
        theirs.append((time.perf_counter() - started) * size / queries)
        ratios.append(theirs[-1] / ours[-1])
    report(
        Figure(
            f"neighbours, {size:,} rows against FAISS brute force (1 of {options.brute_share} queries timed)",
            statistics.median(ours),
            "s",
            statistics.median(theirs),
            statistics.median(ratios),
            "at least 1.0",
            statistics.median(ratios) >= 1,
            (min(ratios), max(ratios)),
        )
    )


def against_kmeans(report: Report, options: Any) -> None:
    """k-means against FAISS's: time, and the mean cosine of a row with its centroid."""
    rows, _ = clustered(options.kmeans_rows, options.dimensions, options.threshold, options.centres)
    unit, _ = unit_rows(rows)
    clusters = max(1, options.kmeans_rows // 64)
    ratios, ours, theirs = [], [], []
    for _ in range(options.rounds):
        started = time.perf_counter()
        own = spherical_kmeans(unit, clusters, seed=1, iterations=options.iterations)
        ours.append(time.perf_counter() - started)
        started = time.perf_counter()
        peer = faiss_kmeans(unit, clusters, options.iterations)
        theirs.append(time.perf_counter() - started)
        ratios.append(ours[-1] / theirs[-1])
    name = f"k-means, {options.kmeans_rows:,} x {options.dimensions}, k = {clusters:,}, {options.iterations} iterations"
    median = statistics.median(ratios)
    report(
        Figure(
            name,
            statistics.median(ours),
            "s",
            statistics.median(theirs),
            median,
            "at most 1.2",
            median <= 1.2,
            (min(ratios), max(ratios)),
        )
    )
    mine, other = objective(unit, own), objective(unit, peer)
    report(Figure(f"{name}, mean cosine", mine, "", other, mine / other, "at least 0.99", mine / other >= 0.99))


def objective(unit: Unit, centroids: Unit) -> float:
    """Mean cosine of a row with its nearest centroid."""
    length = np.linalg.norm(centroids, axis=1, keepdims=True)
    centroids = (centroids / np.where(length > 0, length, 1)).astype(np.float32)
    assigned = nearest(unit, centroids)[:, 0]
    return float(np.mean([(unit[at] * centroids[assigned[at]]).sum(axis=1).mean() for at in row_blocks(*unit.shape)]))


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    arguments.add_argument("--dimensions", type=int, default=512)
    arguments.add_argument("--threshold", type=float, default=0.95)
    arguments.add_argument("--centres", type=int, default=20_000, help="hidden clusters of the pool")
    arguments.add_argument("--partitions", type=int, help="default: chosen from the number of rows")
    arguments.add_argument("--assignments", type=int, default=ASSIGNMENTS)
    arguments.add_argument("--iterations", type=int, default=ITERATIONS)
    arguments.add_argument("--queries", type=int, default=1000, help="copies whose pairs brute force finds")
    arguments.add_argument("--brute-force", type=int, default=100_000, help="rows for FAISS brute force; 0: none")
    arguments.add_argument("--brute-share", type=int, default=10, help="one of so many queries is timed")
    arguments.add_argument("--kmeans-rows", type=int, default=64_000, help="rows for k-means; 0: none")
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    report = Report(options.json)
    growth(report, options)
    if options.brute_force:
        against_brute_force(report, options)
    if options.kmeans_rows:
        against_kmeans(report, options)


if __name__ == "__main__":
    main()
