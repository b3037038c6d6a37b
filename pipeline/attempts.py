"""Finding the row that kills its worker.

A native library can crash its process on hostile bytes, or memory can run out in a way that no exception reports.
Ray then runs the chunk again, for ever. So each chunk counts its attempts; from the third on it is handled row by
row, with the current row on record, and a row during which the process died twice gets the reason `worker_crashed`
and is passed over. Twice, because a preempted node looks the same, once. A death that took the whole run with it is
no strike: somebody stopped the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.storage import Storage

CAREFUL_FROM = 3
STRIKES = 2


class Attempt:
    """One attempt of one operator at a chunk: opened before its first row, closed when it is done with the chunk."""

    def __init__(self, storage: Storage, chunk: int, operator: int, session: str = "") -> None:
        """Args:
        session: identifies the run of the driver; only deaths within one session are strikes.
        """
        self._storage = storage
        self._name = f"work/attempts/chunk-{chunk:08d}-{operator}.json"
        self._session = session
        self._count = 1
        self._strikes: dict[int, int] = {}
        if storage.exists(self._name):
            record = json.loads(storage.read_bytes(self._name))
            self._count = record["count"] + 1
            self._strikes = {int(row): strikes for row, strikes in record["strikes"].items()}
            if record["current"] is not None and record["session"] == session:
                self._strikes[record["current"]] = self._strikes.get(record["current"], 0) + 1
        self._write(None)

    @property
    def careful(self) -> bool:
        """True when rows must be handled one by one."""
        return self._count >= CAREFUL_FROM

    @property
    def crashed(self) -> list[int]:
        """Rows that killed their worker too often."""
        return sorted(row for row, strikes in self._strikes.items() if strikes >= STRIKES)

    @contextmanager
    def row(self, row: int) -> Iterator[None]:
        """Entered while a row is handled in careful mode."""
        self._write(row)
        yield
        # Not in a finally: only a row that came through is off the record.
        self._write(None)

    def close(self) -> None:
        """Done with the chunk."""
        self._storage.remove(self._name)

    def _write(self, current: int | None) -> None:
        record = {"count": self._count, "current": current, "strikes": self._strikes, "session": self._session}
        self._storage.write_bytes(self._name, json.dumps(record).encode())
