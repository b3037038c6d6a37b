"""No command ends without a word: Ctrl-C wherever it comes, twice, or lost; deaths without a word; full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import os, signal, sys, time
from pipeline import last_words
from pipeline.last_words import speaking
signal.signal(signal.SIGINT, signal.default_int_handler)
def ready():
    print("ready", flush=True)
"""
WORDS = "interrupted; the same command continues where it stopped\n"


def start(code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_ctrl_c_that_is_lost_ends_the_command_all_the_same() -> None:
    lost = """
last_words.LEAVE_S = 0.3
with speaking():
    try:
        ready()
        time.sleep(60)
    except KeyboardInterrupt:
        pass
    time.sleep(60)
"""
    process = start(lost)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, WORDS)


def test_a_second_ctrl_c_ends_it_at_once() -> None:
    slow = """
with speaking():
    try:
        ready()
        time.sleep(60)
    finally:
        try:
            print("leaving", flush=True)
            time.sleep(60)
        finally:
            time.sleep(60)
"""
    process = start(slow)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "leaving\n"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, WORDS)


@pytest.mark.parametrize("where", ["guarded", "logged", "main"])
def test_what_an_interrupted_import_raises_is_an_interruption(where: str) -> None:
    code = f"""
from rich.console import Console
from pipeline import cli, commands
def action():
    try:
        ready()
        time.sleep(60)
    except KeyboardInterrupt:
        raise ImportError("cannot load module more than once per process")
def run(arguments):
    if {where!r} == "main":
        return action()
    return commands.{where.replace("main", "guarded")}(Console(stderr=True), action)
cli._run = run
sys.exit(cli.main([]))
"""
    process = start(code)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, WORDS)


def test_it_is_said_on_the_terminal_while_stderr_is_a_log(tmp_path: Path) -> None:
    code = f"""
last_words.LEAVE_S = 0.3
with speaking():
    from pipeline.resources import native_stderr_to
    from pathlib import Path
    with native_stderr_to(Path({str(tmp_path / "log")!r})):
        try:
            sys.stderr.close()
            ready()
            time.sleep(60)
        except KeyboardInterrupt:
            pass
        time.sleep(60)
"""
    process = start(code)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, WORDS)


@pytest.mark.parametrize("native", ["", "E core_worker.cc: raylet is dead, exiting"])
def test_a_death_without_a_word_is_told_with_the_log(tmp_path: Path, native: str) -> None:
    (tmp_path / "ray_native.log").write_text(native)
    code = f"""
with speaking(watched=True):
    last_words.watch_for_silent_death({str(tmp_path)!r})
    ready()
    time.sleep(60)
"""
    process = start(code)
    process.kill()
    code_, err = ended(process)
    assert code_ == -signal.SIGKILL
    why = (
        "Ray's process on this machine (raylet) died: it was killed, or memory ran out"
        if native
        else "it was killed, or the system ran out of memory"
    )
    assert err == (
        f"error: the command ended at once: {why}; the same command continues where it stopped (log: {tmp_path})\n"
    )


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "raise KeyboardInterrupt", "last_words.leave(0, 'bye')"])
def test_an_end_with_a_word_is_no_death(end: str) -> None:
    _, err = ended(start(f"with speaking(watched=True):\n    ready()\n    {end}\n"))
    assert "ended at once" not in err


def test_what_was_in_place_is_in_place_again() -> None:
    from pipeline.last_words import speaking

    before = signal.getsignal(signal.SIGINT), sorted(os.listdir("/proc/self/fd"))
    with speaking(watched=True):
        pass
    assert (signal.getsignal(signal.SIGINT), sorted(os.listdir("/proc/self/fd"))) == before
