"""Memory and time of a whole `curate` from 1,000 to 100,000 small pictures, and whether Ray spills to disk.

Every picture is read, screened and hashed; exact and perceptual duplicates are searched; what is kept is exported.
Wanted: memory that does not grow with the pool; the same time for each further row; nothing spilled.
"""

from __future__ import annotations

from pathlib import Path

from eval.benchmarks.annotating import NO_POLICY, screen_config
from eval.benchmarks.common import Figure, Report, note, parser, scratch
from eval.benchmarks.curate_once import Measured, curate_apart
from eval.benchmarks.pools import tiny_tars

FLAT = 1.3
"""Memory counts as flat when the largest pool takes at most this many times the memory of the smallest."""
LINEAR = 1.3
"""Time counts as linear when a further row of the largest pool costs at most this many times one of the smaller."""


def measure(pool: Path, data: Path, workers: int, chunk_rows: int) -> Measured:
    """Curate one pool, everything kept but duplicates."""
    with scratch(data) as folder:
        config = screen_config(
            pool,
            folder / "run",
            source={"kind": "webdataset", "path": str(pool)},
            chunk_rows=chunk_rows,
            policy=dict(NO_POLICY),
            ray={"num_cpus": workers},
        )
        return curate_apart(config, folder)


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 50_000, 100_000])
    arguments.add_argument("--side", type=int, default=64, help="pixels")
    arguments.add_argument("--chunk-rows", type=int, default=256)
    options = arguments.parse_args()
    report = Report(options.json)
    runs: list[Measured] = []
    for size in options.sizes:
        pool = tiny_tars(options.data / f"tars-{size}-{options.side}", size, options.side)
        run = measure(pool, options.data, options.workers, options.chunk_rows)
        assert run.inputs == size
        runs.append(run)
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in run.seconds.items())
        note(f"{size:,} inputs, {run.kept:,} kept: {stages} s")
        detail = {
            "driver MiB": run.driver_mib,
            "largest worker MiB": run.worker_mib,
            "all processes MiB": run.total_mib,
        }
        report(
            Figure(f"curate {size:,}", run.total_seconds, "s", detail={**detail, "rows/s": size / run.total_seconds})
        )
        report(
            Figure(
                f"spilled at {size:,}", float(run.spilled_bytes), "bytes", goal="nothing", met=run.spilled_bytes == 0
            )
        )
    first, last = runs[0], runs[-1]
    for name, field in (("driver", "driver_mib"), ("largest worker", "worker_mib"), ("all processes", "total_mib")):
        small, large = getattr(first, field), getattr(last, field)
        report(
            Figure(
                f"memory of {name} at {last.inputs:,} against {first.inputs:,}",
                large,
                "MiB",
                small,
                large / small,
                f"at most {FLAT}",
                large / small <= FLAT,
            )
        )
    if len(runs) >= 3:
        middle = runs[1]
        before = (middle.total_seconds - first.total_seconds) / (middle.inputs - first.inputs)
        after = (last.total_seconds - middle.total_seconds) / (last.inputs - middle.inputs)
        report(
            Figure(
                f"a further row, {middle.inputs:,}..{last.inputs:,} against {first.inputs:,}..{middle.inputs:,}",
                1e6 * after,
                "us",
                1e6 * before,
                after / before,
                f"at most {LINEAR}",
                after / before <= LINEAR,
            )
        )


if __name__ == "__main__":
    main()
