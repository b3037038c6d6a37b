"""Perceptual duplicates as the pool grows: pairs and survivors of hashes, against other libraries and brute force.

Uniform hashes with planted near copies are the easy case, and what the goals are about: `--sizes 100000 1000000
10000000` measures them (a minute and a half on two cores). The other pools are like real ones, and worse
(`hash_pools`). Every measurement is a process of its own on `--cores` cores, so that peak memory is that of this work
with its input. All searches must find the same pairs.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.dedup import near_duplicates
from curation.dedup.survivors import quality_order
from eval.benchmarks.apart import GIB, Measured, measure_apart
from eval.benchmarks.common import Figure, Report, note, parser
from eval.benchmarks.hamming_searches import PEERS, Found, inputs, our_pairs, our_survivors
from eval.benchmarks.hash_pools import KINDS, Hashes

LINEAR = 20.0
"""Ten times the rows may take at most this many times as long: near-linear. Hamming pairs miss it from one to ten
million (measured: 22), where the arrays leave the processor's caches."""

NASTY = ("one_bucket", "low_entropy", "all_equal")
GOAL_ROWS, GOAL_S, GOAL_GIB = 10_000_000, 90.0, 4.0


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


def against_brute_force(report: Report, options: argparse.Namespace) -> None:
    """Survivors of every kind of pool equal those of brute force."""
    count = options.brute_force
    for kind, make in KINDS.items():
        hashes, quality, ids = inputs(make(count))
        started = time.perf_counter()
        expected = brute_force(hashes, quality, ids, options.radius)
        brute = time.perf_counter() - started
        started = time.perf_counter()
        found = near_duplicates(hashes, quality, ids, options.radius)
        ours = time.perf_counter() - started
        if not np.array_equal(found.keeper, expected):
            raise SystemExit(f"{kind}: banding and brute force do not agree")
        name = f"near duplicates, {kind}, {count:,} rows against brute force"
        # Brute force compares with kept rows only: where few are kept, it is near-linear itself at this size.
        goal = kind in ("planted", "skewed")
        report(
            Figure(
                name,
                count / ours,
                "rows/s",
                count / brute,
                brute / ours,
                "at least 1.0" if goal else "",
                brute >= ours if goal else None,
            )
        )


def growth(report: Report, options: argparse.Namespace) -> None:
    """Pairs of planted copies, and survivors, for each size."""
    for name, job, kinds in (
        ("Hamming pairs", our_pairs, ("planted",)),
        ("near duplicates", our_survivors, ("planted", "skewed")),
    ):
        for kind in (kind for kind in kinds if kind in KINDS):
            before: tuple[int, float] | None = None
            for size in options.sizes:
                measured = _ours(job, kind, size, options)
                _grown(report, f"{name}, {kind}, {size:,} rows", size, measured, before)
                before = size, measured.seconds
    for kind in NASTY:
        measured = _ours(our_survivors, kind, options.skewed, options)
        name = f"near duplicates, {kind}, {options.skewed:,} rows"
        report(Figure(name, measured.seconds, "s", detail=_detail(options.skewed, measured)))


def _ours(job: Any, kind: str, size: int, options: argparse.Namespace) -> Measured:
    measured = measure_apart(job, kind, size, options.radius, cores=options.cores)
    assert measured is not None  # no limit was given
    if isinstance(measured.value, Found) and measured.value.missed:
        raise SystemExit(f"{kind}, {size:,} rows: {measured.value.missed:,} planted pairs were not found")
    return measured


def _detail(size: int, measured: Measured) -> dict[str, float]:
    value = measured.value
    found = {"pairs": value.count} if isinstance(value, Found) else {"kept share": value}
    return {
        **found,
        "us a row": 1e6 * measured.seconds / size,
        "CPU s": measured.cpu_seconds,
        "peak GiB": measured.peak / GIB,
    }


def _grown(report: Report, name: str, size: int, measured: Measured, before: tuple[int, float] | None) -> None:
    detail = _detail(size, measured)
    if before is None or size != 10 * before[0]:
        report(Figure(name, measured.seconds, "s", detail=detail))
    else:
        ratio = measured.seconds / before[1]
        goal, met = f"at most {LINEAR:.0f}", ratio <= LINEAR
        report(
            Figure(f"{name} against {before[0]:,}", measured.seconds, "s", before[1], ratio, goal, met, detail=detail)
        )
    if size == GOAL_ROWS:
        for what, ours, unit, limit in (
            ("time", measured.seconds, "s", GOAL_S),
            ("peak memory", measured.peak / GIB, "GiB", GOAL_GIB),
        ):
            share = ours / limit
            report(Figure(f"{name}, {what}", ours, unit, limit, share, "below 1", share < 1))


def against_peers(report: Report, options: argparse.Namespace) -> None:
    """Pairs of planted copies by other libraries, at the sizes that they can do."""
    for peer in PEERS:
        missing = peer.missing()
        if missing is not None:
            note(missing)
            continue
        for size in (size for size in peer.sizes if size <= options.peer_rows):
            ours = _ours(our_pairs, "planted", size, options)
            theirs = measure_apart(
                peer.job, "planted", size, options.radius, limit_s=options.peer_limit, cores=options.cores
            )
            name = f"Hamming pairs, planted, {size:,} rows against {peer.name}"
            if theirs is None:
                note(f"{name}: it did not finish in {options.peer_limit:g} s; ours took {ours.seconds:.3f} s")
                continue
            if theirs.value != ours.value:
                raise SystemExit(f"{name}: not the same pairs ({theirs.value.count:,}, ours {ours.value.count:,})")
            ratio = theirs.seconds / ours.seconds
            detail = {
                "pairs": ours.value.count,
                "CPU s": ours.cpu_seconds,
                "its CPU s": theirs.cpu_seconds,
                "peak GiB": ours.peak / GIB,
                "its peak GiB": theirs.peak / GIB,
            }
            figure = Figure(name, ours.seconds, "s", theirs.seconds, ratio, "at least 1.0", ratio >= 1, detail=detail)
            report(figure)


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    arguments.add_argument("--skewed", type=int, default=100_000, help="rows of the nasty pools")
    arguments.add_argument("--brute-force", type=int, default=20_000, help="rows for brute force; it is quadratic")
    arguments.add_argument("--peer-rows", type=int, default=100_000, help="largest size for other libraries; 0: none")
    arguments.add_argument("--peer-limit", type=float, default=120.0, help="seconds for one of their searches")
    arguments.add_argument("--cores", type=int, default=2, help="cores that a measurement may use")
    arguments.add_argument("--radius", type=int, default=4)
    options = arguments.parse_args()
    report = Report(options.json)
    against_brute_force(report, options)
    growth(report, options)
    against_peers(report, options)


if __name__ == "__main__":
    main()
