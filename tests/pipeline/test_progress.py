"""Progress: a line now and then in a log, a bar on a terminal, nothing when quiet."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from pipeline import progress as module
from pipeline.progress import RunProgress


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120)


def text(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, which the test moves."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(clock: list[float]) -> None:
    out = console()
    with RunProgress(out).stage("annotate", 1000, "images", done=200) as stage:
        clock[0] += 10
        stage.advance(100, "50.0% pass")
        assert text(out) == ""
        clock[0] += 10
        stage.advance(100, "40.0% pass")
        assert text(out) == "annotate  400/1,000 images 10 images/s, 40.0% pass, 1:00 left\n"
        clock[0] += 5
        stage.advance(600, "45.0% pass")
    lines = text(out).splitlines()
    assert len(lines) == 2
    assert lines[1] == "annotate  1,000/1,000 images in 0:25 (32 images/s, 45.0% pass)"


def test_what_an_earlier_run_did_is_in_no_rate(clock: list[float]) -> None:
    out = console()
    with RunProgress(out).stage("export", 500, "images", done=500):
        clock[0] += 1
    assert text(out) == "export    500/500 images already done\n"


def test_long_times_have_hours_and_slow_rates_a_digit(clock: list[float]) -> None:
    out = console()
    with RunProgress(out).stage("annotate", 100_000, "images") as stage:
        clock[0] += 20
        stage.advance(100)
        assert "5.0 images/s, 5:33:00 left" in text(out)


def test_quiet_says_nothing(clock: list[float]) -> None:
    for terminal in (False, True):
        out = console(terminal)
        progress = RunProgress(out, quiet=True)
        progress.message("hello")
        with progress.stage("select", 10, "rows") as stage:
            clock[0] += 100
            stage.advance(10)
        assert text(out) == ""


def test_a_terminal_gets_a_bar_and_the_line_at_the_end() -> None:
    out = console(terminal=True)
    with RunProgress(out).stage("select", 10, "rows") as stage:
        stage.advance(10, "all")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text(out))
    assert "10/10 rows" in shown
    assert "━" in shown


def test_after_an_error_there_is_no_final_line_and_the_bar_is_gone() -> None:
    out = console()
    progress = RunProgress(out)

    def fail() -> None:
        with progress.stage("select", 10, "rows"):
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert text(out) == ""
    with progress.stage("select", 0, "rows"):
        pass
    assert text(out) == "select    0/0 rows already done\n"


def test_messages_are_no_markup() -> None:
    out = console()
    RunProgress(out).message("pip install populace[production]")
    assert text(out) == "pip install populace[production]\n"
