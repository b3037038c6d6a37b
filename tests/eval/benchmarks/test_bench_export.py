"""Only the export is measured, and it writes the same shards each time."""

from __future__ import annotations

import hashlib

from eval.benchmarks.bench_export import export_again, export_config, in_megabytes
from eval.benchmarks.common import Rate
from eval.benchmarks.curate_once import TimedProgress
from eval.benchmarks.pools import tiny_folder
from pipeline.curate import curate


def test_export_again_writes_every_image_into_the_same_shards(tmp_path, ray_cluster) -> None:
    pool = tiny_folder(tmp_path / "pool", 30)
    config = export_config(pool, tmp_path / "run", 40_000, workers=2)
    progress = TimedProgress()
    assert curate(config, progress).kept == 30
    assert {"list", "annotate", "select", "ledger", "export"} <= set(progress.seconds)
    shards = tmp_path / "run" / "shards"
    before = {file.name: hashlib.sha256(file.read_bytes()).digest() for file in shards.glob("*.tar")}
    rate = export_again(config)
    assert rate.rows == 30
    assert len(before) > 1
    assert {file.name: hashlib.sha256(file.read_bytes()).digest() for file in shards.glob("*.tar")} == before


def test_rates_in_megabytes() -> None:
    assert in_megabytes(Rate(10, 2.0, 1.0), 50_000_000).per_second == 25.0
