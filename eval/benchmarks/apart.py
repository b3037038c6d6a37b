"""One measurement in a process of its own: seconds and peak memory of this work alone, and a limit on its time."""

from __future__ import annotations

import multiprocessing as mp
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

GIB = 2**30


class Watch:
    """Given to a job, which opens it around what is to be timed; making the inputs is left out.

    Attributes:
        seconds, cpu_seconds: inside the block; CPU seconds are of all threads, and of child processes that ended in it.
        before: peak memory before the block, bytes.
    """

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self.before = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The block."""
        self.before = peak_memory()
        started, cpu = time.perf_counter(), _cpu_seconds()
        yield
        self.seconds, self.cpu_seconds = time.perf_counter() - started, _cpu_seconds() - cpu


@dataclass(frozen=True)
class Measured:
    """What a job took.

    Attributes:
        value: what it returned.
        peak: largest resident memory of its process from its start to its end, with inputs and imports; bytes.
    """

    value: Any
    seconds: float
    cpu_seconds: float
    peak: int


def measure_apart(
    job: Callable[..., Any], *arguments: Any, limit_s: float | None = None, cores: int | None = None
) -> Measured | None:
    """Call `job(watch, *arguments)` in a new process.

    Args:
        job: a function of a module; its result and `arguments` must be picklable.
        limit_s: the process and its children are killed after so many seconds, inputs and imports included.
        cores: how many cores the process may use; None for all.

    Returns:
        None when the limit was reached.

    Raises:
        RuntimeError: the job failed; it printed its traceback.
    """
    context = mp.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(there, job, arguments, cores, mp.get_start_method()))
    process.start()
    there.close()
    try:
        if not here.poll(limit_s):
            return None
        measured: Measured = here.recv()
        process.join()
        return measured
    except EOFError:
        process.join()
        raise RuntimeError(f"{job.__name__} failed with exit code {process.exitcode}") from None
    finally:
        if process.is_alive():
            assert process.pid is not None
            _kill_session(process.pid)
            process.join()
        here.close()


def peak_memory() -> int:
    """Largest resident memory of this process so far, bytes."""
    if sys.platform == "linux":
        # What getrusage tells starts from the peak of the process that this one was forked from.
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def _work(
    answer: Connection, job: Callable[..., Any], arguments: tuple[Any, ...], cores: int | None, start_method: str
) -> None:
    os.setsid()
    # A job that starts processes does so as it would outside of this one, which was spawned.
    mp.set_start_method(start_method, force=True)
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    watch = Watch()
    value = job(watch, *arguments)
    answer.send(Measured(value, watch.seconds, watch.cpu_seconds, peak_memory()))


def _cpu_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _kill_session(pid: int) -> None:
    """Kill a process and what it started."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:  # it did not get so far as to open a session
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
