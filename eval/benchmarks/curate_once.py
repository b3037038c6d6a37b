"""One whole `curate` in a process of its own, with seconds per stage, peak memory of every process and spilled bytes.

Run as `python -m eval.benchmarks.curate_once CONFIG OUT`; used through `curate_apart`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console

from pipeline.config import PopulaceConfig, parse_config
from pipeline.curate import curate
from pipeline.progress import RunProgress
from pipeline.resources import ray_cluster

MIB = 2**20


@dataclass(frozen=True)
class Measured:
    """What one run took.

    Attributes:
        seconds: stage name -> seconds; start-up of Ray is not in it, that of the actors is in `annotate`.
        spilled_bytes: written to disk by Ray's object store because it was full.
        driver_mib, worker_mib: largest memory of the driver, and of any one Ray worker, shared pages left out.
        total_mib: largest sum over all processes at one instant, shared pages left out.
    """

    inputs: int
    kept: int
    seconds: dict[str, float]
    spilled_bytes: int
    driver_mib: float
    worker_mib: float
    total_mib: float

    @property
    def total_seconds(self) -> float:
        """All stages."""
        return sum(self.seconds.values())


class TimedProgress(RunProgress):
    """Shows nothing and notes how long each stage took."""

    def __init__(self) -> None:
        super().__init__(Console(stderr=True), quiet=True)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, total: int, unit: str, done: int = 0, minor: bool = False) -> Iterator[RunProgress]:
        """Time one stage."""
        started = time.perf_counter()
        with super().stage(name, total, unit, done, minor) as progress:
            yield progress
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def curate_apart(config: PopulaceConfig, folder: Path) -> Measured:
    """Curate in a child process and watch its memory.

    Args:
        folder: for the configuration, the answer and the log.

    Raises:
        RuntimeError: the run failed; the message ends with what it printed.
    """
    given, answer, log = folder / "config.json", folder / "answer.json", folder / "log.txt"
    given.write_text(config.model_dump_json())
    with open(log, "wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "eval.benchmarks.curate_once", str(given), str(answer)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        with ProcessWatch(child.pid) as watch:
            code = child.wait()
    if code:
        raise RuntimeError(f"curate failed:\n{log.read_text()[-3000:]}")
    return Measured(
        **json.loads(answer.read_text()),
        spilled_bytes=watch.spilled_bytes,
        driver_mib=watch.driver,
        worker_mib=watch.worker,
        total_mib=watch.total,
    )


class ProcessWatch:
    """Samples a driver and all its descendants while open.

    Attributes:
        driver, worker, total: largest memory of the driver, of any one Ray worker, and of all processes together at one
            instant; MiB, shared pages left out.
        spilled_bytes: written by the workers that Ray starts when its object store is full and spills to disk; there
            are none before that.
    """

    def __init__(self, pid: int, every: float = 0.25) -> None:
        self.driver = self.worker = self.total = 0.0
        self._spilled: dict[int, int] = {}
        self._root = psutil.Process(pid)
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def spilled_bytes(self) -> int:
        """Bytes spilled so far."""
        return sum(self._spilled.values())

    def _run(self) -> None:
        while True:
            self._sample()
            if self._stop.wait(self._every):
                return

    def _sample(self) -> None:
        total = 0.0
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                memory = process.memory_info()
                name = "".join(process.cmdline()[:1])
                if "_SpillWorker" in name:
                    self._spilled[process.pid] = process.io_counters().write_chars
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
            own = max(memory.rss - memory.shared, 0) / MIB
            total += own
            if process.pid == self._root.pid:
                self.driver = max(self.driver, own)
            elif name.startswith("ray::"):
                self.worker = max(self.worker, own)
        self.total = max(self.total, total)


def main(given: str, answer: str) -> None:
    """The child process."""
    config = parse_config(json.loads(Path(given).read_text()))
    progress = TimedProgress()
    with ray_cluster(config.ray, None):
        result = curate(config, progress)
    record = {"inputs": result.inputs, "kept": result.kept, "seconds": progress.seconds}
    Path(answer).write_text(json.dumps(record))


if __name__ == "__main__":
    main(*sys.argv[1:])
