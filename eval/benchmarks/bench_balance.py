"""Balancing as the pool grows: water-filling against sorting, hierarchical k-means against FAISS's flat k-means.

The pool for clustering is skewed as a web pool is: directions whose popularity falls off as a power law. What
balancing buys is the effective number of clusters (exp of the entropy of their shares) before and after.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import numpy.typing as npt

from curation.balance import Hierarchy, cell_quotas, effective_number, hierarchical_kmeans, training_rows, water_fill
from curation.vectors import unit_rows
from eval.benchmarks.common import Figure, Report, note, parser

LINEAR = 20.0
"""Ten times the rows may take at most this many times as long: near-linear."""

SHARE = 0.2
"""Of the rows are kept."""


def skewed_sizes(n: int, seed: int = 0) -> npt.NDArray[np.int32]:
    """Cluster sizes with a heavy tail: 1 / uniform, so that P(size >= s) = 1 / s, up to a million. int32 [n]."""
    rng = np.random.default_rng(seed)
    sizes = np.empty(n, np.int32)
    for start in range(0, n, 1 << 22):
        part = sizes[start : start + (1 << 22)]
        part[:] = np.minimum(1 / (1 - rng.random(len(part))), 1e6)
    return sizes


def fill_by_sorting(sizes: npt.NDArray[np.int32], budget: int) -> npt.NDArray[np.int64]:
    """Water-filling by a full sort; the remainder goes by index. int64 [n]."""
    ascending = np.sort(sizes).astype(np.int64)
    filled = np.cumsum(ascending)
    taken = filled + ascending * np.arange(len(sizes) - 1, -1, -1)
    full = int(np.searchsorted(taken, budget, side="right"))
    if full == len(sizes):
        return sizes.astype(np.int64)
    left = budget - (int(filled[full - 1]) if full else 0)
    cap, rest = divmod(left, len(sizes) - full)
    given = np.minimum(sizes, cap).astype(np.int64)
    given[np.flatnonzero(sizes > cap)[:rest]] += 1
    return given


def skewed_vectors(n: int, dimensions: int, directions: int = 2000, seed: int = 0) -> npt.NDArray[np.float16]:
    """Rows around random directions, the k-th of which is drawn with weight 1 / k. float16 [n, dimensions]."""
    rng = np.random.default_rng((seed, n))
    centres = rng.standard_normal((directions, dimensions)).astype(np.float32)
    weights = 1 / np.arange(1, directions + 1)
    which = rng.choice(directions, n, p=weights / weights.sum())
    rows = np.empty((n, dimensions), np.float16)
    for start in range(0, n, 1 << 16):
        part = slice(start, start + (1 << 16))
        rows[part] = centres[which[part]] + rng.standard_normal((len(which[part]), dimensions), np.float32)
    return rows


def faiss_leaves(
    rows: npt.NDArray[np.float16], clusters: int, iterations: int, train_rows: int, seed: int
) -> npt.NDArray[np.int64]:
    """The first level alone, as FAISS does it with the same training rows and iterations. int64 [n]."""
    import faiss

    sample, _ = unit_rows(rows[training_rows(rows, train_rows, seed)])
    kmeans = faiss.Kmeans(
        rows.shape[1], clusters, niter=iterations, spherical=True, seed=seed, max_points_per_centroid=len(sample)
    )
    kmeans.train(sample)
    leaves = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), 1 << 15):
        unit, _ = unit_rows(rows[start : start + (1 << 15)])
        leaves[start : start + (1 << 15)] = kmeans.index.search(unit, 1)[1][:, 0]
    return leaves


def leaf_counts(tree: Hierarchy, leaf: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Rows of each leaf. int64 [leaves]."""
    return np.bincount(leaf[leaf >= 0], minlength=tree.leaves)


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--sizes", type=int, nargs="*", default=[10**6, 10**7, 10**8], help="for water-filling")
    arguments.add_argument("--sort-up-to", type=int, default=10**7, help="sizes up to which sorting is measured too")
    arguments.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="for clustering")
    arguments.add_argument("--dimensions", type=int, default=512)
    arguments.add_argument("--levels", type=int, nargs="+", default=[2048, 128, 8])
    arguments.add_argument("--iterations", type=int, default=10)
    arguments.add_argument("--train-rows", type=int, default=65_536)
    arguments.add_argument("--faiss-up-to", type=int, default=10**6, help="rows up to which FAISS is measured too")
    options = arguments.parse_args()
    report = Report(options.json)
    _water(report, options.sizes, options.sort_up_to)
    _clusters(report, options)


def _water(report: Report, counts: list[int], sort_up_to: int) -> None:
    before: tuple[int, float] | None = None
    for count in counts:
        sizes = skewed_sizes(count)
        budget = int(SHARE * int(sizes.sum(dtype=np.int64)))
        started = time.perf_counter()
        given = water_fill(sizes, budget)
        seconds = time.perf_counter() - started
        if int(given.sum()) != budget:
            raise SystemExit(f"water-filling gave {int(given.sum()):,} of a budget of {budget:,}")
        detail: dict[str, object] = {"cap": int(given.max()), "peak memory GB": _peak()}
        report(_growth(f"water-filling, {count:,} sizes", count, seconds, before, detail))
        before = count, seconds
        if count <= sort_up_to:
            started = time.perf_counter()
            expected = fill_by_sorting(sizes, budget)
            sorting = time.perf_counter() - started
            if not np.array_equal(np.sort(expected), np.sort(given)):
                raise SystemExit("water-filling by selection and by sorting do not agree")
            name = f"water-filling, {count:,} sizes against a full sort"
            report(Figure(name, seconds, "s", sorting, seconds / sorting, "at most 1", seconds <= sorting))
        del sizes, given


def _clusters(report: Report, options: argparse.Namespace) -> None:
    levels, iterations, train = tuple(options.levels), options.iterations, options.train_rows
    before: tuple[int, float] | None = None
    for count in options.rows:
        rows = skewed_vectors(count, options.dimensions)
        note(f"{count:,} rows made")
        started = time.perf_counter()
        tree = hierarchical_kmeans(rows, levels, iterations=iterations, train_rows=train)
        fitted = time.perf_counter() - started
        leaf = tree.assign(rows)
        seconds = time.perf_counter() - started
        counts = leaf_counts(tree, leaf)
        quotas = cell_quotas(
            np.arange(tree.leaves), np.zeros(tree.leaves, int), counts, tree.parents, int(SHARE * count)
        )
        detail: dict[str, object] = {"fit s": fitted, "assign s": seconds - fitted, "peak memory GB": _peak()}
        shape = " / ".join(str(len(centres)) for centres in tree.centroids)
        name = f"hierarchical k-means, {count:,} x {rows.shape[1]} to {shape}"
        report(_growth(name, count, seconds, before, detail))
        before = count, seconds
        for level, (was, is_) in enumerate(zip(tree.sizes(counts), tree.sizes(quotas), strict=True)):
            start, end = effective_number(was), effective_number(is_)
            name = f"effective clusters, {count:,} rows, level {level}, {SHARE:.0%} kept, limit: before"
            # The top is filled first; below, a node's budget is even among its children only.
            top = level == len(tree.parents)
            goal = ("at least 1", end >= start) if top else ("", None)
            report(Figure(name, end, "clusters", start, end / start, *goal))
        if count <= options.faiss_up_to:
            started = time.perf_counter()
            flat = faiss_leaves(rows, levels[0], iterations, train, 0)
            limit = time.perf_counter() - started
            detail = {"FAISS's effective clusters": effective_number(np.bincount(flat))}
            name = f"hierarchical k-means, {count:,} rows, against FAISS's first level alone"
            report(
                Figure(name, seconds, "s", limit, seconds / limit, "at most 1.5", seconds <= 1.5 * limit, detail=detail)
            )
        del rows


def _growth(
    name: str, count: int, seconds: float, before: tuple[int, float] | None, detail: dict[str, object]
) -> Figure:
    if before is None or count != 10 * before[0]:
        return Figure(name, seconds, "s", detail=detail)
    growth = seconds / before[1]
    name = f"{name}, against {before[0]:,}"
    return Figure(name, seconds, "s", before[1], growth, f"at most {LINEAR:.0f}", growth <= LINEAR, detail=detail)


def _peak() -> float:
    """Peak resident memory of this process so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
