"""A run in its own process reports its stages, its memory and what was spilled."""

from __future__ import annotations

import subprocess
import sys

from eval.benchmarks.bench_scale import measure
from eval.benchmarks.curate_once import ProcessWatch
from eval.benchmarks.pools import tiny_tars

FILLS_THE_STORE = """
import os
os.environ.pop("RAY_ADDRESS", None)
import numpy, ray
ray.init(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
held = [ray.put(numpy.zeros(16 * 2**20, numpy.uint8)) for _ in range(8)]
import time; time.sleep(1)
"""


def test_a_whole_run_is_measured(tmp_path) -> None:
    pool = tiny_tars(tmp_path / "pool", 40, per_tar=20)
    run = measure(pool, tmp_path / "data", workers=1, chunk_rows=16)
    assert run.inputs == 40
    assert 0 < run.kept <= 40
    assert {"list", "annotate", "select", "ledger", "export"} <= set(run.seconds)
    assert run.spilled_bytes == 0
    assert 20 < run.driver_mib < run.total_mib
    assert 20 < run.worker_mib < run.total_mib


def test_spilling_is_seen() -> None:
    child = subprocess.Popen([sys.executable, "-c", FILLS_THE_STORE], stderr=subprocess.DEVNULL)
    with ProcessWatch(child.pid) as watch:
        assert child.wait() == 0
    # 128 MiB were put into a store of 80 MiB.
    assert watch.spilled_bytes >= 48 * 2**20
