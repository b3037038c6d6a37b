"""One progress line for a whole run: rate, kept share, time left. A bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from curation.sources.redact import redact_text

LINE_EVERY_S = 15.0
MINOR_S = 15.0


class RunProgress:
    """Progress over stages, each counted in its own unit.

    Args:
        console: where it is shown; stderr, so that stdout stays for results.
        quiet: show nothing.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._unit = ""
        self._total = 0
        self._done = 0
        self._before = 0
        self._note = ""
        self._started = 0.0
        self._printed = 0.0

    @contextmanager
    def stage(self, name: str, total: int, unit: str, done: int = 0, minor: bool = False) -> Iterator[RunProgress]:
        """One stage of `total` units, of which `done` were finished by an earlier run.

        Args:
            minor: leave no line behind when it took less than `MINOR_S`.
        """
        self._stage, self._total, self._unit, self._done, self._before = name, total, unit, done, done
        self._note = ""
        self._started = self._printed = time.monotonic()
        if self.console.is_terminal and not self.quiet:
            self._bar = Progress(
                TextColumn("[bold]{task.description:<9}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), console=self.console, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(name, total=total, completed=done, rate="")
            self._bar.start()
        try:
            yield self
        finally:
            if self._bar is not None:
                self._bar.stop()
                self._bar = self._task = None
        if not minor or time.monotonic() - self._started > MINOR_S:
            self._print(final=True)

    def advance(self, count: int, note: str = "") -> None:
        """`count` more units are done."""
        self._done += count
        self._note = note
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, rate=self._rate())
        elif time.monotonic() - self._printed > LINE_EVERY_S:
            self._print(final=False)

    def message(self, text: str) -> None:
        """A line of its own."""
        if not self.quiet:
            self.console.print(redact_text(text), markup=False, highlight=False)

    def _rate(self) -> str:
        elapsed = max(time.monotonic() - self._started, 1e-6)
        rate = (self._done - self._before) / elapsed
        text = f"{rate:,.0f} {self._unit}/s" if rate >= 10 else f"{rate:,.1f} {self._unit}/s"
        if self._note:
            text += f", {self._note}"
        if rate > 0 and self._done < self._total:
            text += f", {_clock((self._total - self._done) / rate)} left"
        return text

    def _print(self, final: bool) -> None:
        self._printed = time.monotonic()
        if self.quiet:
            return
        elapsed = time.monotonic() - self._started
        tail = f"in {_clock(elapsed)} ({self._rate()})" if final and self._done > self._before else self._rate()
        if final and self._done == self._before:
            tail = "already done"
        self.message(f"{self._stage:<9} {self._done:,}/{self._total:,} {self._unit} {tail}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
