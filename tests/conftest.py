"""What all tests share: one Ray cluster and one S3 server for the session, and a quiet, offline environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


S3_PORT = free_port()
# Set before the cluster starts, so that its workers reach the same server; never the account of whoever runs the tests.
os.environ.update(
    AWS_ENDPOINT_URL=f"http://127.0.0.1:{S3_PORT}",
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="secret-of-the-test",
    AWS_DEFAULT_REGION="us-east-1",
)
# Workers import test scorers by name.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


@lru_cache
def needs_cluster(file: str) -> bool:
    """Whether a test file, by its path below the root, has tests that need the session's cluster."""
    return "ray_cluster" in (ROOT / file).read_text(encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The cluster's tests come first: in two processes they are the longest part, and cannot be divided."""
    items.sort(key=lambda item: not needs_cluster(item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Two processes (`make test`): one has the tests that need the cluster, the other the rest, a file at a time.

    So there is one cluster, and what the tests of a file share is made once.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneCluster(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "cluster" if needs_cluster(file) else file

    return OneCluster(config, log)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For models in the test's own process, which are too small to gain from more threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """One cluster of two cores for the whole session; gives its address, so that child processes can join it."""
    import ray

    context = ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=512 * 2**20, logging_level="ERROR"
    )
    yield str(context.address_info["gcs_address"])
    ray.shutdown()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A dataset that failed keeps its actors, and their cores, while its error is in a cycle of garbage: a later test
    that asks for both cores would wait without end."""
    if "ray_cluster" not in getattr(item, "fixturenames", ()):
        return
    import gc

    import ray

    if ray.is_initialized() and ray.available_resources().get("CPU", 0) < ray.cluster_resources().get("CPU", 0):
        gc.collect()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """An S3 server of this machine, found by the environment variables of AWS; gives its URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=S3_PORT)
    server.start()
    yield os.environ["AWS_ENDPOINT_URL"]
    server.stop()
