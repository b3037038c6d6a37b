"""What the benchmarks share: figures, rounds that alternate, and bare loops on the pipeline's number of processes.

Machines are noisy, so a figure of ours means something only beside the limit measured in the same run. The two sides
take turns (A B A B), each round gives one ratio, and the median ratio counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from pipeline.resources import limit_native_threads


@dataclass(frozen=True)
class Figure:
    """One line of a benchmark.

    Attributes:
        ours: what Populace reaches.
        limit: what the bare loop, the plain copy or the peer reaches in the same run; None when there is none.
        ratio: the figure of merit, 1 = the limit; for times and memory it says how many times the limit is taken.
        goal: the ratio wanted, as text ("at least 0.85").
        met: whether the goal is reached; None without a goal.
        spread: smallest and largest ratio over the rounds.
        detail: further numbers of the same run.
    """

    name: str
    ours: float
    unit: str
    limit: float | None = None
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None
    spread: tuple[float, float] | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.name}: ours {_number(self.ours)} {self.unit}"
        if self.limit is not None:
            text += f", limit {_number(self.limit)} {self.unit}"
        if self.ratio is not None:
            text += f", ratio {self.ratio:.2f}"
        if self.spread is not None:
            text += f" ({self.spread[0]:.2f}..{self.spread[1]:.2f})"
        if self.goal:
            text += f"; goal {self.goal}: {'met' if self.met else 'MISSED'}"
        if self.detail:
            text += "; " + ", ".join(f"{name} {_number(value)}" for name, value in self.detail.items())
        return text


class Report:
    """Prints figures as they come: text, or JSON lines."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.figures: list[Figure] = []

    def __call__(self, figure: Figure) -> Figure:
        """Print one figure."""
        self.figures.append(figure)
        print(json.dumps(asdict(figure)) if self.as_json else figure, flush=True)
        return figure


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with what every benchmark takes."""
    arguments = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    arguments.add_argument("--json", action="store_true", help="print JSON lines")
    arguments.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()) / "populace-bench", help="where pools are kept"
    )
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes on either side")
    return arguments


@contextmanager
def scratch(data: Path) -> Iterator[Path]:
    """A folder for one run's outputs, removed at the end."""
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=data) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Rate:
    """A measured rate.

    Attributes:
        rows: handled in the window.
        seconds: length of the window.
        cpu_seconds: CPU time that all processes took in the window; steadier than `seconds` on a machine that others
            use as well.
        counts: what the loop counted, to check that both sides did the same work.
    """

    rows: int
    seconds: float
    cpu_seconds: float
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds a row."""
        return 1000 * self.cpu_seconds / self.rows


def alternate(rounds: int, *sides: Callable[[], Rate]) -> list[list[Rate]]:
    """Run the sides in turn, the first of a round changing each time. Returns the rates of each side, by round."""
    results: list[list[Rate]] = [[] for _ in sides]
    for turn in range(rounds):
        order = list(range(len(sides)))
        for side in order if turn % 2 == 0 else order[::-1]:
            rate = sides[side]()
            results[side].append(rate)
            note(
                f"round {turn + 1}/{rounds}, side {side + 1}: {rate.per_second:,.1f}/s, {rate.cpu_ms:.2f} CPU ms a row"
            )
    return results


def compare(name: str, unit: str, ours: Sequence[Rate], limit: Sequence[Rate], goal: float | None = None) -> Figure:
    """Two interleaved series of rates as a figure: medians, and the median of the ratios of the rounds."""
    ratios = [a.per_second / b.per_second for a, b in zip(ours, limit, strict=True)]
    ratio = statistics.median(ratios)
    return Figure(
        name,
        statistics.median(rate.per_second for rate in ours),
        unit,
        statistics.median(rate.per_second for rate in limit),
        ratio,
        f"at least {goal}" if goal is not None else "",
        ratio >= goal if goal is not None else None,
        (min(ratios), max(ratios)),
        {
            "cpu ms a row": statistics.median(rate.cpu_ms for rate in ours),
            "limit's cpu ms a row": statistics.median(rate.cpu_ms for rate in limit),
            "cpu ratio": statistics.median(b.cpu_ms / a.cpu_ms for a, b in zip(ours, limit, strict=True)),
        },
    )


def note(text: str) -> None:
    """Progress, on stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


class Loop(Protocol):
    """Work of one process of a bare loop. Picklable; `setup` runs in the process, before the clock starts."""

    def setup(self) -> None:
        """Import, load models, handle a first item."""

    def __call__(self, items: Sequence[Any]) -> dict[str, int]:
        """Handle some items; returns counts."""


def run_loop(loop: Loop, items: Sequence[Any], workers: int, grab: int = 8) -> Rate:
    """A loop over items in bare processes that help themselves to `grab` items at a time; start-up does not count."""
    context = mp.get_context("spawn")
    barrier, counter, results = context.Barrier(workers), context.Value("l", 0), context.SimpleQueue()
    processes = [
        context.Process(target=_loop_worker, args=(loop, list(items), grab, barrier, counter, results))
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    answers: list[tuple[float, float, float, dict[str, int]]] = []
    while len(answers) < workers:
        if results.empty():
            if any(process.exitcode not in (None, 0) for process in processes):
                raise RuntimeError("a process of the bare loop died; its error is above")
            time.sleep(0.02)
            continue
        answers.append(results.get())
    for process in processes:
        process.join()
    counts: dict[str, int] = {}
    for _, _, _, part in answers:
        for name, value in part.items():
            counts[name] = counts.get(name, 0) + value
    seconds = max(answer[1] for answer in answers) - min(answer[0] for answer in answers)
    return Rate(len(items), seconds, sum(answer[2] for answer in answers), counts)


def _loop_worker(loop: Loop, items: list[Any], grab: int, barrier: Any, counter: Any, results: Any) -> None:
    limit_native_threads(1)
    loop.setup()
    barrier.wait()
    started, cpu = time.time(), time.process_time()
    counts: dict[str, int] = {}
    while True:
        with counter.get_lock():
            start = counter.value
            counter.value = start + grab
        if start >= len(items):
            break
        for name, value in loop(items[start : start + grab]).items():
            counts[name] = counts.get(name, 0) + value
    results.put((started, time.time(), time.process_time() - cpu, counts))


class CpuMeter:
    """CPU time of this process and all its descendants, sampled in the background."""

    def __init__(self, every: float = 1.0) -> None:
        self._every = every
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CpuMeter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, start: float, stop: float) -> float:
        """CPU seconds between two `time.time()` instants, interpolated. Processes must live through the window."""
        import numpy as np

        times, used = np.array(self._samples).T
        low, high = np.interp([start, stop], times, used)
        return float(high - low)

    def sample(self) -> None:
        """Take a sample now, beside those of the background."""
        self._samples.append((time.time(), _tree_cpu()))

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self.sample()


def _tree_cpu() -> float:
    total = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
