"""Where a run's messages go: a file of the run, so that the terminal stays for its progress."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from curation.sources.redact import redact_text
from pipeline import last_words
from pipeline.causes import write_traceback

LOG_FILE = "populace.log"
RAY_FILE = "ray_messages.log"
_NOTE = "log: "


@contextmanager
def run_log(folder: Path | None) -> Iterator[None]:
    """Send messages of this process, the traceback of a failure, and what is printed to stdout, to the run's log.

    Ray prints every retry and every dead worker to stdout, whatever its settings say; scripts expect a result there.
    A failure gets a note of where its traceback is (`log_of`): where the run's log cannot be written, because the disk
    is full or the run is on an object store, that is a file of its own in the folder for temporary files.

    Args:
        folder: the run's log folder; None (a run on an object store) leaves logging as it is and drops stdout.
    """
    logger = logging.getLogger("pipeline")
    loggers = [logger, logging.getLogger("curation"), logging.getLogger("training")]
    handler = LogFile(folder / LOG_FILE) if folder is not None else None
    if handler is not None:
        for item in loggers:
            item.addHandler(handler)
    last_words.watch_for_silent_death(None if folder is None else str(folder))
    try:
        with _Printed(folder / RAY_FILE if folder is not None else os.devnull) as printed, redirect_stdout(printed):
            yield
    except Exception as error:
        place: str | None = None
        if handler is not None:
            logger.exception("the run failed")
            if not handler.failed and os.path.exists(handler.baseFilename):
                place = handler.baseFilename
        place = place or write_traceback(error)
        if place is not None:
            error.add_note(f"{_NOTE}{place}")
        raise
    finally:
        if handler is not None:
            for item in loggers:
                item.removeHandler(handler)
            handler.close()


def log_of(error: BaseException) -> str | None:
    """Where the traceback of a failure is, if it went through `run_log`."""
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(_NOTE)]
    return notes[0].removeprefix(_NOTE) if notes else None


class LogFile(logging.FileHandler):
    """A log without credentials. Says nothing on the terminal where it cannot write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self.setFormatter(_Redacting("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self.failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name that logging calls
        self.failed = True

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record))


class _Printed(io.TextIOWrapper):
    """What others print; a full disk must not make their printing fail."""

    def __init__(self, path: str | Path) -> None:
        # Without a buffer there is nothing left to write when it is closed.
        file: Any = io.FileIO(path, "ab")
        super().__init__(file, encoding="utf-8", errors="replace", line_buffering=True)

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()
