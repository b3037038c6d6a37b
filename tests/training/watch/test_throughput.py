"""Rates against the clock, memory against what the process holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from training.watch import names
from training.watch.throughput import Rates


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def rates(clock: Clock, peak: float | None = 1e12, window: int = 4) -> Rates:
    return Rates(flops_per_image=5e9, tokens_per_image=100, peak_flops=peak, total_steps=20, window=window, clock=clock)


def test_a_steady_run() -> None:
    clock = Clock()
    measured = rates(clock)
    clock.now += 60  # compilation
    measured.step(10, 16)
    assert measured.values() == {}
    for step in (11, 12):
        clock.now += 0.5
        measured.step(step, 16)
    values = measured.values()
    assert values == pytest.approx(
        {
            names.IMAGES_PER_S: 32, names.TOKENS_PER_S: 3200, names.STEP_S: 0.5,
            names.SECONDS_LEFT: 7 * 0.5, names.MFU: 32 * 5e9 / 1e12,
        }
    )  # fmt: skip


def test_the_window_forgets() -> None:
    clock = Clock()
    measured = rates(clock)
    for step, seconds in enumerate([9, 9, 9, 1, 1, 1, 1]):
        clock.now += seconds
        measured.step(step, 8)
    assert measured.values()[names.IMAGES_PER_S] == pytest.approx(8)
    clock.now += 5
    measured.step(7, 8)
    assert measured.values()[names.STEP_S] == pytest.approx(2)


def test_no_utilisation_without_a_peak_and_no_time_left_at_the_end() -> None:
    clock = Clock()
    measured = rates(clock, peak=None)
    for step in (18, 19):
        clock.now += 1
        measured.step(step, 8)
    assert names.MFU not in measured.values()
    assert measured.values()[names.SECONDS_LEFT] == 0


def test_ranges() -> None:
    with pytest.raises(ValueError, match="window is 0"):
        rates(Clock(), window=0)
    with pytest.raises(ValueError, match="peak_flops is 0"):
        rates(Clock(), peak=0)


MEMORY = """
import numpy, torch
from training.watch.throughput import peak_memory_bytes
before = peak_memory_bytes(torch.device("cpu"))
held = numpy.ones(300_000_000, numpy.uint8)
del held
print(before, peak_memory_bytes(torch.device("cpu")))
"""


def test_peak_memory_is_that_of_this_process() -> None:
    # In one of its own: this one may have had more than it takes now.
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", MEMORY], cwd=root, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 50e6 < before < 2e9
    assert after - before == pytest.approx(300e6, rel=0.2)
