"""Perceptual duplicates, from hashes to survivors, as the pool grows; and against brute force while that is feasible.

Uniform hashes are the easy case. The skewed pool is like a real one: copies that hash equal, near copies, and a cloud
of hashes around a few templates (screenshots, logos, plain products) with most bits nearly constant.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.dedup import near_duplicates
from curation.dedup.survivors import quality_order
from eval.benchmarks.common import Figure, Report, parser

Hashes = npt.NDArray[np.uint64]
LINEAR = 20.0
"""Ten times the rows may take at most this many times as long: near-linear."""


def uniform(n: int, seed: int = 0) -> Hashes:
    """Random hashes, one in ten a near copy of another. uint64 [n]."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**64, n, dtype=np.uint64)
    copies = rng.choice(n, n // 10, replace=False)
    values[copies] = _flip(rng, values[rng.integers(0, n, len(copies))], 4)
    return values


def skewed(n: int, seed: int = 0) -> Hashes:
    """30 % equal copies of popular hashes, 10 % near copies, 10 % around 16 templates, the rest random. uint64 [n]."""
    rng = np.random.default_rng((seed, 1))
    values = rng.integers(0, 2**64, n, dtype=np.uint64)
    order = rng.permutation(n)
    equal, near, cloud = np.split(order[: n // 2], [n * 3 // 10, n * 4 // 10])
    rest = order[n // 2 :]
    # Zipf: a few pictures are everywhere.
    values[equal] = values[rest[(rng.zipf(1.3, len(equal)) - 1) % len(rest)]]
    values[near] = _flip(rng, values[rng.choice(rest, len(near))], 4)
    values[cloud] = _flip(rng, rng.integers(0, 2**64, 16, dtype=np.uint64)[rng.integers(0, 16, len(cloud))], 12)
    return values


def _flip(rng: np.random.Generator, values: Hashes, bits: int) -> Hashes:
    """Up to `bits` random bits flipped in each value."""
    for _ in range(bits):
        flip = np.uint64(1) << rng.integers(0, 64, len(values), dtype=np.uint64)
        values = np.where(rng.random(len(values)) < 0.7, values ^ flip, values)
    return values


def brute_force(hashes: Hashes, quality: npt.NDArray[np.float64], ids: npt.NDArray[Any], radius: int) -> Any:
    """The same stars by comparing every row with every kept row before it: keeper, int64 [n], -1 for kept rows."""
    keeper = np.full(len(hashes), -1, dtype=np.int64)
    kept_hashes = np.empty_like(hashes)
    kept_rows = np.empty(len(hashes), dtype=np.int64)
    kept = 0
    for row in quality_order(quality, ids).tolist():
        near = np.flatnonzero(np.bitwise_count(kept_hashes[:kept] ^ hashes[row]) <= radius)
        if len(near):
            keeper[row] = kept_rows[near[0]]
        else:
            kept_hashes[kept], kept_rows[kept] = hashes[row], row
            kept += 1
    return keeper


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    arguments.add_argument("--brute-force", type=int, default=20_000, help="rows for brute force; it is quadratic")
    arguments.add_argument("--radius", type=int, default=4)
    options = arguments.parse_args()
    report = Report(options.json)
    for kind in (uniform, skewed):
        count = options.brute_force
        hashes, quality, ids = _inputs(kind(count))
        started = time.perf_counter()
        expected = brute_force(hashes, quality, ids, options.radius)
        brute = time.perf_counter() - started
        started = time.perf_counter()
        found = near_duplicates(hashes, quality, ids, options.radius)
        ours = time.perf_counter() - started
        if not np.array_equal(found.keeper, expected):
            raise SystemExit(f"{kind.__name__}: banding and brute force do not agree")
        name = f"near duplicates, {kind.__name__}, {count:,} rows against brute force"
        report(Figure(name, count / ours, "rows/s", count / brute, brute / ours, "at least 1.0", brute >= ours))
        before = None
        for size in options.sizes:
            hashes, quality, ids = _inputs(kind(size))
            started = time.perf_counter()
            found = near_duplicates(hashes, quality, ids, options.radius)
            seconds = time.perf_counter() - started
            detail = {"kept share": float((found.keeper < 0).mean()), "us a row": 1e6 * seconds / size}
            name = f"near duplicates, {kind.__name__}, {size:,} rows"
            if before is None or size != 10 * before[0]:
                report(Figure(name, seconds, "s", detail=detail))
            else:
                growth = seconds / before[1]
                report(
                    Figure(
                        f"{name} against {before[0]:,}",
                        seconds,
                        "s",
                        before[1],
                        growth,
                        f"at most {LINEAR:.0f}",
                        growth <= LINEAR,
                        detail=detail,
                    )
                )
            before = size, seconds


def _inputs(hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Hashes with a quality of few distinct values, as sizes in pixels are, and ids."""
    rng = np.random.default_rng(2)
    return hashes, rng.integers(0, 1000, len(hashes)).astype(np.float64), rng.permutation(len(hashes))


if __name__ == "__main__":
    main()
