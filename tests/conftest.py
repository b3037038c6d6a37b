"""What all tests share: one Ray cluster for the session, and a quiet, offline environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Workers import test scorers by name.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """One cluster of two cores for the whole session; gives its address, so that child processes can join it."""
    import ray

    context = ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=512 * 2**20, logging_level="ERROR"
    )
    yield str(context.address_info["gcs_address"])
    ray.shutdown()
