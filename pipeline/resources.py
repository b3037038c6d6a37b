"""The cluster that a run uses, and the threads that native libraries may start in its workers."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from pydantic import Field

from curation.config import Config
from pipeline.logs import LogFile
from pipeline.ray_folders import home_problem, temporary_problem

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class RayConfig(Config):
    """Where the run's work happens. Nothing here changes a result."""

    address: str | None = Field(
        None, description="an existing cluster ('auto' or ray://...); null: RAY_ADDRESS, else one started here"
    )
    num_cpus: int | None = Field(None, ge=1, description="cores of a cluster started here; null: all of this machine")
    object_store_gb: float = Field(1.0, gt=0, description="object store of a cluster started here")
    max_workers: int | None = Field(
        None, ge=1, description="most workers of an operator; null: what the cluster has at the start"
    )
    download_workers: int = Field(4, ge=1, description="workers that download, for source.kind urls")
    shuffle_partitions: int | None = Field(
        None, ge=1, le=4096, description="partitions of each shuffle of selection; null: by the number of rows"
    )
    stall_timeout_s: float = Field(1800, gt=0, description="fail when no operator makes progress for this long")


def limit_native_threads(threads: int) -> None:
    """Hold the native pools of this process to its CPU share, or workers fight each other to a fifth of the speed.

    Libraries that are not loaded yet read the environment variables; loaded ones are told.
    """
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    import cv2

    cv2.setNumThreads(threads if threads > 1 else 0)
    from PIL import AvifImagePlugin
    from threadpoolctl import threadpool_limits

    AvifImagePlugin.DEFAULT_MAX_THREADS = threads

    threadpool_limits(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    import pyarrow as pa

    pa.set_cpu_count(threads)
    pa.set_io_thread_count(max(threads, 1))


@contextmanager
def ray_cluster(config: RayConfig, log_folder: Path | None) -> Iterator[None]:
    """Connect to Ray, or start it; quiet, with its messages in the run's log folder. Stops only what it started."""
    if ray.is_initialized():
        quiet_ray_data(config, log_folder)
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = config.address or os.environ.get("RAY_ADDRESS")
    if address:
        options["address"] = address
    else:
        options["num_cpus"] = config.num_cpus or os.cpu_count()
        options["object_store_memory"] = int(config.object_store_gb * 2**30)
        options["include_dashboard"] = False
        problems = [problem for problem in (home_problem(), temporary_problem()) if problem is not None]
        if problems:
            raise RayFolderError(f"Ray cannot start here. {'. '.join(map(str, problems))}.")
    with native_stderr_to(log_folder / "ray_native.log" if log_folder is not None else None):
        if address:
            _check_address(address)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            if not address:
                raise
            raise RayAddressError(_no_cluster(address, error)) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray put its own in its place, which ends without a word
        quiet_ray_data(config, log_folder)
        try:
            yield
        finally:
            ray.shutdown()


class RayAddressError(RuntimeError):
    """There is no cluster at the address. The message says what was given and how to fix it."""


class RayFolderError(RayAddressError):
    """Ray cannot start on this machine, because of a folder. The message says what to set."""


def _no_cluster(address: str, error: object) -> str:
    return (
        f"no Ray cluster answers at ray.address {address!r} ({error}). Give auto, host:port of the head node, or "
        "ray://host:port; without an address a cluster is started on this machine."
    )


def _check_address(address: str) -> None:
    """Ray tries for minutes to reach an address at which nothing listens; a connection tells at once."""
    host, sign, port = address.rpartition(":")
    if sign and port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise RayAddressError(_no_cluster(address, error)) from error


@contextmanager
def native_stderr_to(path: Path | None) -> Iterator[None]:
    """Send what native code writes to file descriptor 2 to a file, while `sys.stderr` goes on to the terminal.

    Ray's core prints warnings there which no Python setting reaches.
    """
    if path is None:
        yield
        return
    sys.stderr.flush()
    python_stderr = sys.stderr
    terminal = os.dup(2)
    try:
        with open(path, "ab") as log:
            os.dup2(log.fileno(), 2)
        # In a test or a notebook sys.stderr is not descriptor 2 and needs no replacing.
        if _is_descriptor_2(python_stderr):
            sys.stderr = os.fdopen(os.dup(terminal), "w", encoding=python_stderr.encoding, buffering=1)
        yield
    finally:
        if sys.stderr is not python_stderr:
            sys.stderr.close()
            sys.stderr = python_stderr
        os.dup2(terminal, 2)
        os.close(terminal)


def _is_descriptor_2(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 2)
    except (AttributeError, OSError, ValueError):
        return False


def quiet_ray_data(config: RayConfig, log_folder: Path | None) -> None:
    """Send Ray Data's messages to a file and switch its progress bars off: a run has one bar of its own."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    # A thread that reads /proc/self/smaps every second costs workers some percent, and tells a run nothing.
    context.memory_usage_poll_interval_s = None
    if hasattr(context, "execution_no_progress_timeout_s"):
        context.execution_no_progress_timeout_s = config.stall_timeout_s
    logger = logging.getLogger("ray.data")
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    if log_folder is not None:
        handler = LogFile(log_folder / "ray_data.log")
        logger.addHandler(handler)
    else:
        logger.addHandler(logging.NullHandler())
