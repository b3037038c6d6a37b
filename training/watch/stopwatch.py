"""Where the time of a step goes, by part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Adds up the time of named parts between two `lap`s.

        with watch.part("teacher"):
            ...

    A part inside another counts for itself only, so the shares never add up to more than 1. What no part covers is
    "other".

    A GPU works behind the program. Without `synchronise` a part on it shows the time to launch its work, and the wait
    shows up wherever the program next needs a result: right for a CPU and free of cost, but no split of a GPU's time.
    With it the device is waited for at both ends of every part, which keeps the GPU from running ahead and slows a run
    down by some per cent.

    Args:
        device: that computes; needed to synchronise.
        synchronise: wait for the device at both ends of a part. Of no effect on a CPU.
        clock: seconds, ascending.
    """

    def __init__(
        self,
        device: torch.device | None = None,
        synchronise: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if synchronise and device is None:
            raise ValueError("synchronise is True without a device: give the device that computes")
        self._device = device
        self._synchronise = synchronise and device is not None and device.type != "cpu"
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._inner: list[float] = []  # time of parts inside of each open part
        self._started = clock()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time of the block is added to `name`, also when it ends with an error."""
        self._wait()
        self._inner.append(0.0)
        started = self._clock()
        try:
            yield
        finally:
            self._wait()
            seconds = self._clock() - started
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds - self._inner.pop()
            if self._inner:
                self._inner[-1] += seconds

    def lap(self) -> dict[str, float]:
        """Shares of the time since the last lap, "time/<part>" each, "time/other" last; then all is at zero again.

        Raises:
            RuntimeError: called inside a part.
        """
        if self._inner:
            raise RuntimeError("a lap ends while a part is still open: call lap() between parts")
        now = self._clock()
        total = max(now - self._started, 1e-9)
        shares = {f"time/{name}": seconds / total for name, seconds in self._seconds.items()}
        shares["time/other"] = max(0.0, 1.0 - sum(shares.values()))
        self._seconds = {}
        self._started = now
        return shares

    def _wait(self) -> None:
        if self._synchronise:
            torch.accelerator.synchronize(self._device)
