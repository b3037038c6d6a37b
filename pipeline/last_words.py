"""No command ends without a word, whatever ends it.

- Ctrl-C: KeyboardInterrupt, as always in Python. It can be lost (in a callback, in a destructor), and an orderly way
  out can take long; so a thread that hears of the signal from the system ends the process after `LEAVE_S`, or at the
  second Ctrl-C. A run is made to be killed at any moment.
- A death without a word (kill -9, memory that ran out, Ray's core, which ends the process when its raylet died): a
  shell beside the process waits for its last word, and says what is known when none comes.

Imports nothing but what Python has loaded anyway: until this module is there, Ctrl-C prints a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, NoReturn

CONTINUES = "the same command continues where it stopped"
INTERRUPTED, TERMINATED = 130, 143
LEAVE_S = 10.0
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
_WATCHER = r"""
trap '' INT TERM HUP
while IFS= read -r line; do
  case $line in
    bye) exit 0 ;;
    log\ *) log=${line#log } ;;
  esac
done
why='it was killed, or the system ran out of memory'
dead='raylet.*(dead|died|unhealthy)|Failed to push error to driver'
if [ -n "$log" ] && tail -n 50 "$log/ray_native.log" 2>/dev/null | grep -Eqi "$dead"; then
  why="Ray's process on this machine (raylet) died: it was killed, or memory ran out"
fi
printf 'error: the command ended at once: %s; @@%s\n' "$why" "${log:+ (log: $log)}" >&2
"""

_terminal: int | None = None
_watcher: IO[bytes] | None = None
_heard = 0
_said = False


def say(text: str) -> None:
    """A line on the terminal, also where `sys.stderr` is just being exchanged or closed."""
    global _said
    _said = True
    if _terminal is None:
        with suppress(OSError, ValueError, RuntimeError):  # RuntimeError: a signal came in the middle of a write
            print(text, file=sys.stderr, flush=True)
        return
    with suppress(OSError):
        os.write(_terminal, (_SHOW_CURSOR if os.isatty(_terminal) else b"") + text.encode("utf-8", "replace") + b"\n")


def leave(code: int, text: str) -> NoReturn:
    """Say it, and end the process now."""
    say(text)
    _tell_watcher("bye")
    os._exit(code)


def was_interrupted() -> bool:
    """Whether Ctrl-C came: an error after it is its consequence. An interrupted import, above all, fails as one that
    finds half of a module."""
    return _heard > 0


def watch_for_silent_death(log_folder: str | None = None) -> None:
    """Have something said if this process, begun by `speaking(watched=True)`, ends without a word.

    Args:
        log_folder: named then.
    """
    if log_folder is not None:
        _tell_watcher(f"log {log_folder}")


@contextmanager
def speaking(watched: bool = False) -> Iterator[None]:
    """Around a command of this process.

    Args:
        watched: something is said if the process ends inside of the block without a word.
    """
    global _terminal, _heard, _said
    main = threading.current_thread() is threading.main_thread()
    if not main or _terminal is not None:
        yield
        return
    _heard, _said = 0, False
    _terminal = os.dup(2) if _is_descriptor_2() else None
    if watched:
        _start_watcher()
    # A shell that starts something in the background makes it ignore Ctrl-C: so it stays.
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    read, write = os.pipe()
    os.set_blocking(write, False)
    hearing = threading.Thread(target=_hear, args=(read,), name="populace-interrupts", daemon=True)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False) if hears else -1
    if hears:
        signal.signal(signal.SIGINT, _interrupt)
        hearing.start()
    try:
        yield
    finally:
        # After a Ctrl-C the thread stays: what Python does at its end can take long as well.
        if not _heard:
            if hears:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                signal.set_wakeup_fd(before)
            os.close(write)
            if hears:
                hearing.join(1)
            else:
                os.close(read)
            if _terminal is not None:
                os.close(_terminal)
                _terminal = None
        _stop_watcher()


def _interrupt(*_: object) -> None:
    global _heard
    _heard += 1
    raise KeyboardInterrupt


def _hear(read: int) -> None:
    """Of each signal of this process, as a byte, also while Python itself cannot handle it."""
    count = 0
    while data := os.read(read, 64):
        count += data.count(signal.SIGINT)
        if count > 1:
            leave(INTERRUPTED, f"interrupted; {CONTINUES}")
        elif count and signal.SIGINT in data:
            threading.Thread(target=_leave_late, name="populace-leaves", daemon=True).start()
    os.close(read)


def _leave_late() -> None:
    time.sleep(LEAVE_S)
    if not _said:
        say(f"interrupted; {CONTINUES}")
    _tell_watcher("bye")
    os._exit(INTERRUPTED)


def _is_descriptor_2() -> bool:
    try:
        return sys.stderr.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False


def _start_watcher() -> None:
    global _watcher
    import subprocess

    # In a session of its own, Ctrl-C on the terminal does not reach it.
    with suppress(OSError):
        started = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _WATCHER.replace("@@", CONTINUES)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        _watcher = started.stdin


def _tell_watcher(line: str) -> None:
    if _watcher is not None:
        with suppress(OSError, ValueError):
            _watcher.write(line.encode("utf-8", "surrogateescape").replace(b"\n", b" ") + b"\n")
            _watcher.flush()


def _stop_watcher() -> None:
    global _watcher
    _tell_watcher("bye")
    if _watcher is not None:
        with suppress(OSError):
            _watcher.close()
        _watcher = None
