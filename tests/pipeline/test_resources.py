"""Native threads stay inside a worker's share; the run's cluster is quiet and stops only what it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.resources import RayConfig, native_stderr_to, quiet_ray_data, ray_cluster

LIMITS = """
import json, os, sys
import cv2, torch, numpy, pyarrow
from threadpoolctl import threadpool_info
from pipeline.resources import limit_native_threads, THREAD_VARIABLES
for threads in json.loads(sys.argv[1]):
    limit_native_threads(threads)
    print(json.dumps({
        "environment": [os.environ[name] for name in THREAD_VARIABLES],
        "opencv": cv2.getNumThreads(), "torch": torch.get_num_threads(), "arrow": pyarrow.cpu_count(),
        "arrow_io": pyarrow.io_thread_count(), "pools": [pool["num_threads"] for pool in threadpool_info()],
    }))
"""


def test_every_native_pool_is_held_to_the_share() -> None:
    shares = [2, 1, 2]
    done = subprocess.run(
        [sys.executable, "-c", LIMITS, json.dumps(shares)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(shares)
    for threads, line in zip(shares, lines, strict=True):
        found: dict[str, Any] = json.loads(line)
        assert found["environment"] == [str(threads)] * 4
        assert [found[name] for name in ("opencv", "torch", "arrow", "arrow_io")] == [threads] * 4
        assert found["pools"]
        assert max(found["pools"]) <= threads


def test_a_bad_setting_is_refused() -> None:
    for values in ({"num_cpus": 0}, {"object_store_gb": 0}, {"max_workers": 0}, {"stall_timeout_s": 0}):
        with pytest.raises(ValidationError):
            RayConfig(**values)


NATIVE = """
import os, sys
from pathlib import Path
from pipeline.resources import native_stderr_to
print("before", file=sys.stderr)
with native_stderr_to(Path(sys.argv[1])):
    print("python inside", file=sys.stderr)
    os.write(2, b"native inside\\n")
os.write(2, b"native after\\n")
print("python after", file=sys.stderr)
"""


def test_what_native_code_says_goes_to_the_log_and_python_to_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "native.log"
    done = subprocess.run([sys.executable, "-c", NATIVE, str(log)], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["before", "python inside", "native after", "python after"]
    assert log.read_text() == "native inside\n"


def test_descriptors_are_put_back_after_an_error(tmp_path: Path) -> None:
    before, python = os.fstat(2), sys.stderr

    def fail() -> None:
        with native_stderr_to(tmp_path / "log"):
            raise RuntimeError("boom")

    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError, match="boom"):
        fail()
    after = os.fstat(2)
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
    assert sys.stderr is python
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with native_stderr_to(None):
        pass


@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_that_is_there_is_used_and_left_running(tmp_path: Path) -> None:
    import ray

    with ray_cluster(RayConfig(stall_timeout_s=77), tmp_path):
        assert ray.is_initialized()
        assert ray.data.DataContext.get_current().enable_progress_bars is False
        assert ray.data.DataContext.get_current().execution_no_progress_timeout_s == 77
    assert ray.is_initialized()


@pytest.mark.usefixtures("ray_cluster")
def test_ray_data_writes_into_the_log_of_the_run_at_hand(tmp_path: Path) -> None:
    import logging

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        quiet_ray_data(RayConfig(), tmp_path / name)
        logging.getLogger("ray.data").warning("in %s", name)
    assert [(tmp_path / name / "ray_data.log").read_text().strip()[-6:] for name in ("one", "two")] == [
        "in one",
        "in two",
    ]
    quiet_ray_data(RayConfig(), None)


def test_an_address_where_nothing_listens_is_an_error_at_once() -> None:
    import socket

    from pipeline.resources import RayAddressError, _check_address

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RayAddressError, match="Give auto, host:port"):
        _check_address(f"127.0.0.1:{port}")
