"""What a person sees of a training run: a bar on a terminal, one line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from training.watch import names


class TrainingConsole:
    """Progress over the steps of a run.

        with TrainingConsole(Console(stderr=True), "pretrain", total=500_000, done=1_000) as console:
            console.advance(step)            # every step: moves the bar
            console.report(step, values)     # every logged step: new numbers; in a log, a line

    Args:
        console: where it is shown; stderr, so that stdout stays for results.
        name: of the stage.
        total: steps of the run.
        done: of them, finished by an earlier process.
        quiet: show nothing.
    """

    def __init__(self, console: Console, name: str, total: int, done: int = 0, quiet: bool = False) -> None:
        self.console = console
        self._name = name
        self._total = total
        self._first = done
        self._done = done
        self._quiet = quiet
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._values: dict[str, Any] = {}
        self._started = 0.0

    def __enter__(self) -> TrainingConsole:
        self._started = time.monotonic()
        if self.console.is_terminal and not self._quiet:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
                # Wraps: a narrow terminal shows two lines instead of half of one.
                TextColumn("{task.fields[numbers]}", markup=False, table_column=Column(ratio=1)),
                console=self.console, transient=True, expand=True,
            )  # fmt: skip
            self._task = self._bar.add_task(self._name, total=self._total, completed=self._done, numbers="")
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
        done = self._done - self._first
        if kind is not None:
            end = f"ended by {kind.__name__}"
        elif done:
            end = "done" if self._done >= self._total else "stopped"
        else:
            end = "already done" if self._done >= self._total else "no step was run"
        tail = ""
        if done and self._values:
            numbers = summary({name: value for name, value in self._values.items() if name != names.SECONDS_LEFT})
            tail = f" in {clock(time.monotonic() - self._started)}, {numbers}"
        self.message(f"{self._name} {self._done:,}/{self._total:,} steps {end}{tail}")

    def advance(self, step: int) -> None:
        """Step `step` (0-based) is done."""
        self._done = step + 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)

    def report(self, step: int, values: Mapping[str, Any]) -> None:
        """New numbers, by name (see `names`); what is missing is left out."""
        self.advance(step)
        self._values = dict(values)
        numbers = summary(values)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, numbers=numbers)
        else:
            self.message(f"{self._name} {self._done:,}/{self._total:,} {numbers}")

    def message(self, text: str) -> None:
        """A line of its own, above the bar."""
        if not self._quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def summary(values: Mapping[str, Any]) -> str:
    """One line: loss and its terms, learning rate, gradient norm, rates, utilisation, memory, time left."""
    parts = []
    terms = [
        f"{name.removeprefix('loss/')} {float(value):.4g}"
        for name, value in values.items()
        if name.startswith("loss/") and name != names.LOSS and value is not None
    ]
    if names.LOSS in values:
        parts.append(f"loss {float(values[names.LOSS]):.4f}" + (f" ({', '.join(terms)})" if terms else ""))
    elif terms:
        parts.append(", ".join(terms))
    for name, text in (
        (names.LEARNING_RATE, lambda value: f"lr {value:.2e}"),
        (names.GRAD_NORM, lambda value: f"grad {value:.3g}"),
        (names.IMAGES_PER_S, lambda value: f"{scaled(value)} images/s"),
        (names.TOKENS_PER_S, lambda value: f"{scaled(value)} tokens/s"),
        (names.MFU, lambda value: f"MFU {100 * value:.1f}%"),
        (names.PEAK_BYTES, lambda value: f"{scaled(value)}B"),
        (names.SECONDS_LEFT, lambda value: f"{clock(value)} left"),
    ):
        if values.get(name) is not None:
            parts.append(text(float(values[name])))
    return ", ".join(parts)


def scaled(value: float) -> str:
    """Three digits and a decimal prefix: "812", "1.24 k", "61.3 G"."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            break
        value /= 1000
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {prefix}".strip() if not prefix else f"{value:.{digits}f} {prefix}"


def clock(seconds: float) -> str:
    """ "1:02", "3:04:05", or from two days on "12 d 3 h"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
