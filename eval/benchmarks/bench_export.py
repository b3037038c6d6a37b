"""Export against a plain copy with a SHA-256 of the same bytes, by the same number of processes, both synced to disk.

Export reads each image from the source, checks it against the ledger's SHA-256, writes tar and sidecar, takes the
SHA-256 of the tar, and writes index, manifest and card. Its workers are warm; planning and the card are in its time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.benchmarks.annotating import screen_config
from eval.benchmarks.common import CpuMeter, Rate, Report, alternate, compare, parser, run_loop, scratch
from eval.benchmarks.curate_once import TimedProgress
from eval.benchmarks.pools import photographs, repeated
from pipeline.config import PopulaceConfig
from pipeline.curate import curate
from pipeline.resources import ray_cluster

MB = 1_000_000


class PlainCopy:
    """Copies runs of files into one file each, with a SHA-256 of its bytes."""

    def setup(self) -> None:
        """Nothing."""

    def __call__(self, items: Sequence[tuple[Sequence[str], str]]) -> dict[str, int]:
        """Copy."""
        copied = 0
        for sources, target in items:
            digest = hashlib.sha256()
            with open(target, "wb") as file:
                for source in sources:
                    data = Path(source).read_bytes()
                    digest.update(data)
                    file.write(data)
                    copied += len(data)
                file.flush()
                os.fsync(file.fileno())
            digest.hexdigest()
        return {"bytes": copied}


def in_megabytes(rate: Rate, count: int) -> Rate:
    """A rate in megabytes instead of rows."""
    return Rate(max(1, round(count / MB)), rate.seconds, rate.cpu_seconds, rate.counts)


def export_config(pool: Path, output: Path, shard_bytes: int, workers: int) -> PopulaceConfig:
    """Everything kept, duplicates included."""
    return screen_config(
        pool,
        output,
        select={"exact_duplicates": False, "near_duplicates": None},
        export={"shard_bytes": shard_bytes},
        ray={"num_cpus": workers},
    )


def export_again(config: PopulaceConfig) -> Rate:
    """Write the shards of a finished run once more, in the cluster that is up; the rate is in images."""
    shutil.rmtree(Path(config.output) / "shards", ignore_errors=True)
    progress = TimedProgress()
    with CpuMeter(every=0.25) as meter:
        meter.sample()
        started = time.time()
        result = curate(config, progress)
        stopped = time.time()
        meter.sample()
    assert result.annotated == 0, "only the export may be measured"
    return Rate(result.kept, progress.seconds["export"], meter.between(started, stopped))


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--pictures", type=int, default=400, help="different photographs")
    arguments.add_argument("--repeat", type=int, default=4, help="times that each is taken")
    arguments.add_argument("--shards", type=int, default=16)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    report = Report(options.json)
    pool = photographs(options.data / f"photographs-{options.pictures}", options.pictures, options.workers)
    pool = repeated(options.data / f"photographs-{options.pictures}x{options.repeat}", pool, options.repeat)
    files = sorted(str(path) for path in pool.glob("*.jpg"))
    total = sum(os.path.getsize(file) for file in files)
    with scratch(options.data) as folder:
        config = export_config(pool, folder / "run", -(-total // options.shards), options.workers)
        pieces: list[Any] = [
            (files[number :: options.shards], str(folder / f"copy-{number}")) for number in range(options.shards)
        ]
        with ray_cluster(config.ray, None):
            first = curate(config, TimedProgress())
            assert first.kept == len(files)

            def ours() -> Rate:
                return in_megabytes(export_again(config), total)

            def copy() -> Rate:
                rate = run_loop(PlainCopy(), pieces, options.workers, grab=1)
                for _, target in pieces:
                    os.remove(target)
                assert rate.counts["bytes"] == total
                return in_megabytes(rate, total)

            sides = alternate(options.rounds, ours, copy)
    report(compare("export", "MB/s", sides[0], sides[1]))


if __name__ == "__main__":
    main()
