"""Shares of a step add up, nested or not, whatever goes wrong inside."""

from __future__ import annotations

import contextlib
import time

import pytest
import torch

from training.watch.stopwatch import Stopwatch


@pytest.fixture
def clock() -> list[float]:
    """The time, in seconds, which the test moves."""
    return [7.0]


@pytest.fixture
def watch(clock: list[float]) -> Stopwatch:
    return Stopwatch(clock=lambda: clock[0])


def test_shares_of_a_step(watch: Stopwatch, clock: list[float]) -> None:
    for seconds in (1, 2):
        with watch.part("data"):
            clock[0] += seconds
    with watch.part("student"):
        clock[0] += 2
        with watch.part("communication"):
            clock[0] += 3
        clock[0] += 1
    clock[0] += 1
    assert watch.lap() == pytest.approx(
        {"time/data": 0.3, "time/student": 0.3, "time/communication": 0.3, "time/other": 0.1}
    )
    with watch.part("data"):
        clock[0] += 1
    assert watch.lap() == pytest.approx({"time/data": 1, "time/other": 0})


def test_a_part_that_fails_is_counted_and_closed(watch: Stopwatch, clock: list[float]) -> None:
    with contextlib.suppress(KeyError), watch.part("data"):
        clock[0] += 2
        raise KeyError
    assert watch.lap() == pytest.approx({"time/data": 1, "time/other": 0})


def test_a_lap_inside_a_part_is_refused(watch: Stopwatch) -> None:
    with watch.part("data"), pytest.raises(RuntimeError, match="a part is still open"):
        watch.lap()


def test_the_real_clock_and_a_cpu_to_synchronise() -> None:
    watch = Stopwatch(torch.device("cpu"), synchronise=True)
    with watch.part("sleep"):
        time.sleep(0.05)
    assert watch.lap()["time/sleep"] > 0.5


def test_synchronising_needs_a_device() -> None:
    with pytest.raises(ValueError, match="without a device"):
        Stopwatch(synchronise=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_waited_for_when_asked() -> None:
    device = torch.device("cuda")
    matrix = torch.ones(8192, 8192, device=device)
    (matrix @ matrix).sum().item()
    seconds = {}
    for synchronise in (False, True):
        watch = Stopwatch(device, synchronise=synchronise)
        with watch.part("product"):
            for _ in range(10):
                out = matrix @ matrix
        with watch.part("wait"):
            out.sum().item()
        seconds[synchronise] = watch.lap()["time/product"]
    assert seconds[False] < 0.5 < seconds[True]
