"""Asking a run to save and end: the first reason stays, watchers are asked, and SIGTERM reaches the loop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from training.engine.stop import StopSignal, save_on_sigterm


def test_the_first_reason_stays_and_clear_forgets_it() -> None:
    stop = StopSignal()
    assert stop.reason is None
    stop.request("first")
    stop.request("second")
    stop.watch(lambda: "third")
    assert stop.reason == "first"
    stop.clear()
    assert stop.reason is None


def test_watchers_are_asked_until_one_has_a_reason() -> None:
    stop, answers, asked = StopSignal(), [None, "node is taken back", "later"], []
    stop.watch(lambda: None)
    stop.watch(lambda: asked.append(1) or answers[len(asked) - 1])
    assert [stop.reason for _ in range(4)] == [None] + ["node is taken back"] * 3
    assert len(asked) == 2  # not again once there is a reason


def test_sigterm_asks_and_the_handler_before_is_put_back() -> None:
    before, told = signal.getsignal(signal.SIGTERM), []
    with save_on_sigterm(told.append) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 5
        while stop.reason is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert stop.reason == "SIGTERM"
        assert len(told) == 1
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_line_that_cannot_be_told_does_not_lose_the_request() -> None:
    def told(line: str) -> None:
        raise RuntimeError("reentrant call")

    with save_on_sigterm(told) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "SIGTERM"


def test_other_threads_get_a_signal_object_and_no_handler() -> None:
    before, found = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with save_on_sigterm(print) as stop:
            found.append((stop.reason, signal.getsignal(signal.SIGTERM) == before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(None, True)]


@pytest.mark.parametrize(
    "start",
    [
        "from training.engine.stop import PROCESS as stop, install; install()",
        "from training.engine.stop import save_on_sigterm; block = save_on_sigterm(lambda line: None); "
        "stop = block.__enter__()",
    ],
)
def test_a_second_sigterm_ends_the_process_at_once(start: str) -> None:
    code = f"{start}\nimport time\nprint('ready', flush=True)\nwhile stop.reason is None: time.sleep(0.01)\n"
    code += "print(stop.reason, flush=True)\ntime.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "SIGTERM\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
