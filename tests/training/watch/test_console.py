"""The console: a line for every report in a log, one bar on a terminal, nothing when quiet."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from training.watch import console as module
from training.watch.console import TrainingConsole, clock, scaled, summary

VALUES = {
    "loss/total": 5.27,
    "loss/reconstruction": 0.91234,
    "loss/distillation": 10.9,
    "collapse/teacher_entropy": 10.2,
    "optimiser/lr": 1e-4,
    "optimiser/grad_norm": 0.934,
    "speed/images_per_s": 812.4,
    "speed/tokens_per_s": 8_149_000.0,
    "speed/mfu": 0.4123,
    "speed/seconds_left": 3700.0,
    "memory/peak_bytes": 61_340_000_000,
}
LINE = (
    "loss 5.2700 (reconstruction 0.9123, distillation 10.9), lr 1.00e-04, grad 0.934, 812 images/s, 8.15 M tokens/s, "
    "MFU 41.2%, 61.3 GB, 1:01:40 left"
)


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100)


def text(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, which the test moves."""
    moment = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: moment[0])
    return moment


def test_a_line_for_every_report_and_one_at_the_end(now: list[float]) -> None:
    out = console()
    with TrainingConsole(out, "pretrain", total=500_000, done=1000) as shown:
        shown.advance(1000)
        assert text(out) == ""
        shown.report(1199, VALUES)
        shown.advance(1200)
        now[0] += 65
    first, last = text(out).splitlines()
    assert first == f"pretrain 1,200/500,000 {LINE}"
    assert last == f"pretrain 1,201/500,000 steps stopped in 1:05, {LINE.removesuffix(', 1:01:40 left')}"


def test_a_bar_on_a_terminal_has_the_numbers() -> None:
    out = console(terminal=True)
    with TrainingConsole(out, "pretrain", total=100) as shown:
        shown.report(49, VALUES)
        shown.message("a checkpoint [1] was saved")
    output = text(out)
    for part in ("50/100", "loss 5.2700", "MFU 41.2%", "left", "a checkpoint [1] was saved"):
        assert part in output, part


def test_nothing_when_quiet() -> None:
    for terminal in (False, True):
        out = console(terminal)
        with TrainingConsole(out, "pretrain", total=10, quiet=True) as shown:
            shown.report(1, VALUES)
            shown.message("hello")
        assert text(out) == ""


def test_how_it_ended() -> None:
    out = console()
    with TrainingConsole(out, "a", total=2) as shown:
        shown.advance(1)
    with TrainingConsole(out, "b", total=2, done=2):
        pass
    shown = TrainingConsole(out, "c", total=2)
    with pytest.raises(KeyError), shown:
        raise KeyError
    ends = [line.partition(" steps ")[2] for line in text(out).splitlines()]
    assert ends == ["done", "already done", "ended by KeyError"]


def test_what_is_missing_is_left_out_and_nan_is_shown() -> None:
    assert summary({"loss/total": math.nan, "speed/mfu": None}) == "loss nan"
    assert summary({"loss/koleo": 0.5}) == "koleo 0.5"
    assert summary({}) == ""


def test_numbers_in_words() -> None:
    assert [scaled(value) for value in (0.5, 9.994, 9.996, 99.96, 999.4, 999.6, 12_345, 3e12, 5e16)] == [
        "0.50", "9.99", "10.0", "100", "999", "1.00 k", "12.3 k", "3.00 T", "50000 T",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0.4, 62, 3_661, 47 * 3600, 12.2 * 86_400)] == [
        "0:00", "1:02", "1:01:01", "47:00:00", "12 d 4 h",
    ]  # fmt: skip
