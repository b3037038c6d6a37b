"""A measurement apart: its own memory, its own time, and an end when it takes too long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from eval.benchmarks.apart import Watch, measure_apart, peak_memory

MIB = 2**20


def fill(watch: Watch, mib: int) -> list[int]:
    """Holds memory for a moment."""
    with watch():
        held = np.ones(mib * MIB, np.uint8)
        total = int(held[:: 2**20].sum())
    return [total, watch.before, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1]


def hang(_: Watch, folder: str) -> None:
    """Starts a child and waits for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(folder, "child").write_text(str(child.pid))
    time.sleep(600)


def fail(_: Watch) -> None:
    """Fails."""
    raise ValueError("no")


def test_memory_and_time_are_of_this_work_alone() -> None:
    ours = np.ones(500 * MIB, np.uint8)
    assert peak_memory() > ours.nbytes
    measured = measure_apart(fill, 200, cores=1)
    assert measured is not None
    total, before, cores = measured.value
    assert (total, cores) == (200, 1)
    # The kernel counts in batches of pages.
    assert 195 * MIB < measured.peak - before < 230 * MIB
    assert measured.peak < 400 * MIB
    assert measured.seconds > 0
    assert measured.cpu_seconds > 0


def test_what_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    assert measure_apart(hang, str(tmp_path), limit_s=3) is None
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="fail failed with exit code 1"):
        measure_apart(fail)
    assert "ValueError: no" in capfd.readouterr().err
