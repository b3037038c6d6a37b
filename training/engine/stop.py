"""Why a run should save and end before its last step: SIGTERM, a node that is taken back, the driver's wish.

Anything may set the process's `StopSignal`, from any thread; the loop asks it once per step, and all ranks agree on the
answer of any of them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class StopSignal:
    """A reason to stop, once there is one. The first stays."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._watchers: list[Callable[[], str | None]] = []

    def request(self, reason: str) -> None:
        """Ask the loop to save and end after its present step."""
        if self._reason is None:
            self._reason = reason

    def watch(self, ask: Callable[[], str | None]) -> None:
        """Have `reason` ask this too; it must be quick."""
        self._watchers.append(ask)

    @property
    def reason(self) -> str | None:
        """Why, or None to go on."""
        for ask in self._watchers:
            if self._reason is None and (reason := ask()) is not None:
                self.request(reason)
        return self._reason

    def clear(self) -> None:
        """Forget everything; for a process that trains a second time."""
        self._reason, self._watchers = None, []


PROCESS = StopSignal()
"""That of this process: signal handlers set it."""


def install() -> None:
    """Let SIGTERM ask for a checkpoint. Only the main thread may call this.

    A second SIGTERM ends the process at once.
    """
    signal.signal(signal.SIGTERM, _asked)


def _asked(*_: object) -> None:
    if PROCESS._reason is not None:
        os._exit(128 + signal.SIGTERM)
    PROCESS.request("SIGTERM")


@contextmanager
def save_on_sigterm(told: Callable[[str], None]) -> Iterator[StopSignal]:
    """While the block runs, SIGTERM asks for a checkpoint; a second one ends the process, as it would have before.

    Args:
        told: is called with a line for the user, from the handler.
    """
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGTERM)

    def handler(number: int, frame: FrameType | None) -> None:
        if stop._reason is not None:
            if callable(before):
                before(number, frame)
            os._exit(128 + number)
        stop.request("SIGTERM")
        with suppress(RuntimeError):  # the signal came in the middle of a write
            told("SIGTERM: saving after this step; a second one ends at once")

    signal.signal(signal.SIGTERM, handler)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
