"""Metrics of a run as JSON lines: one object per logged step, one sequence whatever was killed on the way.

A line is `{"step": 1200, "images": ..., "tokens": ..., "time": ..., "loss/total": ..., ...}`: counts since the start of
the run, seconds since 1970, then what the step measured (see `names`). Non-finite numbers are the strings "nan", "inf"
and "-inf" (see `json_values`), so that every line is valid JSON.

A run that resumes at step s logs s and everything after it again, so lines of step s and later are cut when the log is
opened. Together with `sync` before a checkpoint is published, the log then has every step once.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pipeline.storage import Storage
from training.watch.json_values import dump, restored

METRICS_FILE = "metrics.jsonl"

logger = logging.getLogger(__name__)


class MetricsLog:
    """Appends steps to the metrics file of a run. Open it on one rank only, with a `with` block or `close`.

    Opening always publishes a new file, so that a process of an earlier attempt that is still alive writes to the old
    one, which nobody reads. A line that a kill left half-written is dropped: its step was not in any checkpoint yet, or
    is logged again.

    On local disks each line is in the file when `write` returns. On an object store lines gather in a temporary file
    here, and `sync` uploads the whole of it: about 0.5 kB a logged step.

    Args:
        storage: the run's folder.
        resume_step: the first step that this process will run, 0 for a new run: lines of this step and later are cut.
        name: of the file.
    """

    def __init__(self, storage: Storage, resume_step: int = 0, name: str = METRICS_FILE) -> None:
        if resume_step < 0:
            raise ValueError(f"resume_step is {resume_step}; give the first step that will run, 0 or more")
        self._storage = storage
        self._name = name
        self._spool: tempfile.TemporaryDirectory[str] | None = None
        with storage.open_write(name) as target:
            self._last, dropped = _copy_before(storage, name, resume_step, target)
            if not storage.local:
                self._spool = tempfile.TemporaryDirectory(prefix="populace-metrics-")
                target.seek(0)
                with open(self._path, "wb") as spool:
                    shutil.copyfileobj(target, spool)
        if dropped:
            logger.warning("%s: %d damaged lines were dropped", storage.path(name), dropped)
        self._file: IO[bytes] | None = open(self._path, "ab")  # noqa: SIM115 - closed by close()
        self._changed = False

    @property
    def _path(self) -> Path:
        """The file that lines are appended to."""
        return Path(self._storage.path(self._name)) if self._spool is None else Path(self._spool.name) / METRICS_FILE

    def write(
        self, step: int, values: Mapping[str, Any], *, images: int | None = None, tokens: int | None = None
    ) -> None:
        """Append one line and flush it.

        Args:
            step: 0-based; above that of the last line.
            values: name -> number (Python's, NumPy's, or a 0-d tensor), text, or None.
            images: training images seen since the start of the run, this step included.
            tokens: likewise image tokens encoded, see `StepCost.tokens`.

        Raises:
            ValueError: the step was logged before, a name is taken, or the log is closed.
        """
        if self._file is None:
            raise ValueError(f"{self._storage.path(self._name)} is closed: open a new MetricsLog to write step {step}")
        if step <= self._last:
            raise ValueError(
                f"step {step} comes after step {self._last} in {self._storage.path(self._name)}: steps must ascend. "
                f"To run steps again, open the log with resume_step={step}"
            )
        head = {"step": step, "images": images, "tokens": tokens, "time": round(time.time(), 3)}
        taken = head.keys() & values.keys()
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))} cannot be a metric's name: every line has one already")
        head = {key: value for key, value in head.items() if value is not None}
        self._file.write(dump(head | dict(values)) + b"\n")
        self._file.flush()
        self._last = step
        self._changed = True

    def sync(self) -> None:
        """Make every line so far survive the loss of this machine. Call before a checkpoint is published."""
        if self._file is None or not self._changed:
            return
        os.fsync(self._file.fileno())
        if self._spool is not None:
            with open(self._path, "rb") as spool, self._storage.open_write(self._name) as target:
                shutil.copyfileobj(spool, target)
        self._changed = False

    def close(self) -> None:
        """Sync and close; again is harmless."""
        if self._file is None:
            return
        try:
            self.sync()
        finally:
            self._file.close()
            self._file = None
            if self._spool is not None:
                self._spool.cleanup()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_metrics(storage: Storage, name: str = METRICS_FILE) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file in order, "nan", "inf" and "-inf" as numbers; nothing when there is no file.

    A last line that is still being written is left out.
    """
    if not storage.exists(name):
        return
    with storage.open_read(name) as file:
        for line in _lines(file):
            record = _record(line)
            if record is not None:
                yield restored(record)


def _copy_before(storage: Storage, name: str, step: int, target: IO[bytes]) -> tuple[int, int]:
    """Copy the lines of steps before `step`. Returns the last step that was copied (-1: none), and how many lines
    among them were damaged and left out; a half-written last one is no damage."""
    last, damaged = -1, 0
    if step == 0 or not storage.exists(name):
        return last, damaged
    with storage.open_read(name) as file:
        for line in _lines(file):
            record = _record(line)
            if record is None:
                damaged += line.endswith(b"\n")
            elif last < record["step"] < step:
                # A kill may have left out no more than the end of the line.
                target.write(line.removesuffix(b"\n") + b"\n")
                last = record["step"]
    return last, damaged


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines with their ends; files of Arrow and of fsspec differ in how they give them."""
    rest = b""
    while block := file.read(1 << 20):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def _record(line: bytes) -> dict[str, Any] | None:
    """The object of a whole line, None for anything else (of half a line too: its closing brace is missing)."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return record if isinstance(step, int) and not isinstance(step, bool) else None
