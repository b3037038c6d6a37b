"""A run describes one fixed listing of its source. What was listed is kept, so that a change can be named.

work/plan/listing.parquet  names and sizes of all files, in the order of the source; row groups of `GROUP` files
work/plan/source.json      how many they are, and the fingerprint of them all; written last
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.sources.base import Source, Unit
from pipeline.plan import load_plan
from pipeline.rundir import RunConflictError
from pipeline.storage import UNREADABLE, Storage

SOURCE_RECORD = "work/plan/source.json"
LISTING = "work/plan/listing.parquet"
GROUP = 1 << 18
_SCHEMA = pa.schema([pa.field("name", pa.string()), pa.field("size", pa.int64())])

Entry = tuple[str, int | None]


def check_source(storage: Storage, source: Source, units: list[Unit]) -> None:
    """Keep the listing of a run, or compare it with the one that is kept.

    Raises:
        RunConflictError: it has changed since the run was begun, and something was made of it. Names a file.
    """
    current = {"fingerprint": source.fingerprint(units), "files": sum(len(unit.entries) for unit in units)}
    before = storage.read_json(SOURCE_RECORD)
    if before is not None:
        if before == current:
            return
        if load_plan(storage) is not None:
            raise RunConflictError(
                f"the source has changed since {storage.root} was begun: {_change(storage, before, current, units)}. "
                "A run is the account of one fixed set of inputs. Use another output, or --new to set the old run "
                "aside."
            )
        storage.remove("work/plan")
    _keep(storage, units)
    storage.write_bytes(SOURCE_RECORD, json.dumps(current, sort_keys=True).encode())


def _entries(units: list[Unit]) -> Iterator[Entry]:
    return chain.from_iterable(unit.entries for unit in units)


def _keep(storage: Storage, units: list[Unit]) -> None:
    entries = _entries(units)
    with (
        storage.open_write(LISTING) as file,
        pq.ParquetWriter(file, _SCHEMA, compression="zstd", use_dictionary=False) as writer,
    ):
        while group := list(islice(entries, GROUP)):
            names, sizes = zip(*group, strict=True)
            writer.write_table(pa.table([pa.array(names, pa.string()), pa.array(sizes, pa.int64())], schema=_SCHEMA))


def _kept(storage: Storage) -> Iterator[Entry]:
    with storage.open_read(LISTING) as file:
        parquet = pq.ParquetFile(file)
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group)
            yield from zip(table.column("name").to_pylist(), table.column("size").to_pylist(), strict=True)


@dataclass
class _Changes:
    """How many files are not as they were, and the first of them, in words."""

    counts: dict[str, int] = field(default_factory=dict)
    first: str = ""

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.first = self.first or text

    def __str__(self) -> str:
        total = sum(self.counts.values())
        if total < 2:
            return self.first
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.counts.items()))
        return f"{self.first}; in all {counts}"


def _change(storage: Storage, before: dict[str, Any], current: dict[str, Any], units: list[Unit]) -> str:
    try:
        changes = _changes(_kept(storage), _entries(units))
    except UNREADABLE:  # a run of an earlier version keeps no listing
        changes = _Changes()
    return str(changes) or (
        f"{before.get('files', 0):,} files then, {current['files']:,} now, or other sizes or another order"
    )


def _changes(kept: Iterator[Entry], now: Iterator[Entry]) -> _Changes:
    """Walks both in step; only files whose place has changed are held."""
    changes = _Changes()
    gone: dict[str, int | None] = {}
    new: dict[str, int | None] = {}

    def compare(name: str, was: int | None, size: int | None) -> None:
        if was != size:
            changes.add("of another size", f"{name} was {_bytes(was)}, is {_bytes(size)} now")

    for old, entry in zip_longest(kept, now):
        if old is not None and entry is not None and old[0] == entry[0]:
            compare(old[0], old[1], entry[1])
            continue
        if old is not None:
            if old[0] in new:
                compare(old[0], old[1], new.pop(old[0]))
            else:
                gone[old[0]] = old[1]
        if entry is not None:
            if entry[0] in gone:
                compare(entry[0], gone.pop(entry[0]), entry[1])
            else:
                new[entry[0]] = entry[1]
    for name in gone:
        changes.add("gone", f"{name} is gone")
    for name in new:
        changes.add("new", f"{name} is new")
    return changes


def _bytes(size: int | None) -> str:
    return "of unknown size" if size is None else f"{size:,} bytes"
