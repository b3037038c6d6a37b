"""The plan: which inputs there are, in which order, in which chunks. Made once per run, then fixed.

Layout, in the run directory:

    work/plan/units/unit-00000000.parquet   locators of one source unit; one row group per chunk
    work/plan/chunks.parquet                the chunks of all units, in order; written last: it marks the plan as made

A chunk never spans units, so its rows are neighbours in one container, and does not depend on the cluster's size.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curation.parquet_files import open_parquet, parquet_writer
from curation.records import LOCATOR_SCHEMA, Locator
from curation.sources.arrow_values import PROBLEM
from curation.sources.base import Source, Unit
from curation.sources.unused import MAX_EXAMPLES, Unused
from pipeline.scores import META_KEY
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

CHUNKS = "work/plan/chunks.parquet"
UNUSED_KEY = "populace.unused"
GROUP_ROWS = 32_768
"""Largest number of rows in one part of the final ledger."""


@dataclass(frozen=True)
class Plan:
    """The chunks of a run.

    Attributes:
        unit: int64 [chunks], ordinal of the unit file that holds the chunk.
        row_group: int64 [chunks], row group in that file.
        rows: int64 [chunks].
        source_fingerprint: identity of the listing.
    """

    storage: Storage
    unit: npt.NDArray[np.int64]
    row_group: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    source_fingerprint: str
    ignored: dict[str, int]
    ignored_examples: tuple[str, ...] = ()
    metadata_problems: int = 0
    """Rows whose metadata could not be read whole."""
    problem_examples: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return int(self.rows.sum())

    @cached_property
    def first_row(self) -> npt.NDArray[np.int64]:
        """Global row number of each chunk's first row. int64 [chunks]."""
        return np.concatenate([[0], np.cumsum(self.rows)[:-1]]).astype(np.int64) if len(self) else self.rows

    @cached_property
    def groups(self) -> list[tuple[int, int]]:
        """Runs of chunks [start, stop) that become one part of the ledger: at most `GROUP_ROWS` rows, or one chunk."""
        groups: list[tuple[int, int]] = []
        start, rows = 0, 0
        for chunk, count in enumerate(self.rows.tolist()):
            if chunk > start and rows + count > GROUP_ROWS:
                groups.append((start, chunk))
                start, rows = chunk, 0
            rows += count
        if len(self) > start:
            groups.append((start, len(self)))
        return groups

    def locators(self, chunk: int) -> pa.Table:
        """The rows of a chunk (`LOCATOR_SCHEMA`)."""
        name = unit_name(int(self.unit[chunk]))
        try:
            with self.storage.open_read(name) as file:
                return open_parquet(file).read_row_group(int(self.row_group[chunk]))
        except UNREADABLE as error:
            raise DamagedFileError(
                f"{self.storage.path(name)} is damaged ({error}). Remove {self.storage.path('work/plan')} and run "
                "again: the source is listed again, and no score is lost."
            ) from error


def unit_name(unit: int) -> str:
    """Name of a unit's locator file."""
    return f"work/plan/units/unit-{unit:08d}.parquet"


def to_locators(table: pa.Table) -> list[Locator]:
    """Rows of a locator table as objects. Problems are not carried: such rows are never read."""
    return [
        Locator(row["id"], row["uri"], row["member"], row["offset"], row["size"], row["metadata"])
        for row in table.select(["id", "uri", "member", "offset", "size", "metadata"]).to_pylist()
    ]


@dataclass(frozen=True)
class UnitListing:
    """What listing one unit gave.

    Attributes:
        rows: of each chunk.
        unused: files and members that were passed over.
        problems: rows whose metadata could not be read whole (`metadata_problem` in them), with the first ones.
    """

    rows: list[int]
    unused: Unused
    problems: Unused = field(default_factory=Unused)


def list_unit(storage: Storage, source: Source, ordinal: int, unit: Unit, chunk_rows: int) -> UnitListing:
    """List one unit into its locator file, if that is not there yet."""
    name = unit_name(ordinal)
    if not _is_readable(storage, name, UNUSED_KEY):
        with storage.open_write(name) as file, parquet_writer(file, LOCATOR_SCHEMA) as writer:
            problems = Unused()
            for table in _chunks(source.list_unit(unit), chunk_rows):
                writer.write_table(table, row_group_size=len(table))
                _count_problems(table, problems)
            unused = source.ignored_in_unit()
            record = {name: [item.counts, item.examples] for name, item in (("unused", unused), ("problems", problems))}
            writer.add_key_value_metadata({UNUSED_KEY: json.dumps(record, sort_keys=True)})
    with storage.open_read(name) as file:
        metadata = open_parquet(file).metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        record = json.loads((metadata.metadata or {})[UNUSED_KEY.encode()])
    found = {name: Unused(Counter(counts), examples) for name, (counts, examples) in record.items()}
    return UnitListing(rows, found["unused"], found["problems"])


def _count_problems(table: pa.Table, problems: Unused) -> None:
    """Add the rows of a chunk whose metadata say that they could not be read whole."""
    hit = pc.match_substring(table.column("metadata"), f'"{PROBLEM}":')
    rows = table.filter(pc.fill_null(hit, False)).select(["uri", "member", "metadata"])
    examples = []
    for row in rows.slice(0, MAX_EXAMPLES).to_pylist():
        text = str(json.loads(row["metadata"]).get(PROBLEM))
        examples.append(f"{row['uri']} {row['member']}".strip() + f": {text[:120]}")
    problems.merge({PROBLEM: len(rows)} if len(rows) else {}, examples)


@dataclass(frozen=True)
class ListUnit:
    """`list_unit` for workers: takes (ordinal, unit)."""

    storage: Storage
    source: Source
    chunk_rows: int

    def __call__(self, item: tuple[int, Unit]) -> UnitListing:
        """What listing the unit gave."""
        ordinal, unit = item
        return list_unit(self.storage, self.source, ordinal, unit, self.chunk_rows)


def _is_readable(storage: Storage, name: str, key: str | None = None) -> bool:
    """Whether a Parquet file is whole at its end, and says `key` of itself."""
    try:
        with storage.open_read(name) as file:
            metadata = open_parquet(file).metadata.metadata or {}
    except UNREADABLE:
        return False
    return key is None or key.encode() in metadata


def _chunks(locators: Iterable[Locator], chunk_rows: int) -> Iterator[pa.Table]:
    iterator = iter(locators)
    while rows := list(islice(iterator, chunk_rows)):
        yield pa.table(
            {field.name: pa.array([_value(row, field.name) for row in rows], field.type) for field in LOCATOR_SCHEMA},
            schema=LOCATOR_SCHEMA,
        )


def _value(locator: Locator, name: str) -> object:
    value = getattr(locator, name)
    return str(value) if name == "problem" and value is not None else value


def load_plan(storage: Storage) -> Plan | None:
    """The plan of a run, or None when it was not finished."""
    if not _is_readable(storage, CHUNKS):
        return None
    table = storage.read_table(CHUNKS)
    meta = json.loads(table.schema.metadata[META_KEY])
    unit, row_group, rows = (table.column(name).to_numpy() for name in ("unit", "row_group", "rows"))
    return Plan(
        storage,
        unit,
        row_group,
        rows,
        meta["source_fingerprint"],
        meta["ignored"],
        tuple(meta.get("examples", ())),
        meta.get("metadata_problems", 0),
        tuple(meta.get("problem_examples", ())),
    )


def make_plan(
    storage: Storage,
    source: Source,
    units: list[Unit],
    chunk_rows: int,
    run_units: Callable[[list[tuple[int, Unit]]], Iterator[tuple[int, UnitListing]]],
) -> Plan:
    """List all units and publish the plan.

    Args:
        run_units: lists units, in any order and in parallel; yields (ordinal, its listing).
    """
    listings: dict[int, UnitListing] = dict(run_units(list(enumerate(units))))
    unit: list[int] = []
    group: list[int] = []
    rows: list[int] = []
    for ordinal in range(len(units)):
        for index, count in enumerate(listings[ordinal].rows):
            unit.append(ordinal)
            group.append(index)
            rows.append(count)
    unused, problems = Unused(Counter(source.ignored()), source.ignored_examples()), Unused()
    for ordinal in range(len(units)):
        unused.merge(listings[ordinal].unused.counts, listings[ordinal].unused.examples)
        problems.merge(listings[ordinal].problems.counts, listings[ordinal].problems.examples)
    meta = {
        "source_fingerprint": source.fingerprint(units),
        "ignored": unused.counts,
        "examples": unused.examples,
        "metadata_problems": problems.counts.total(),
        "problem_examples": problems.examples,
        "chunk_rows": chunk_rows,
    }
    table = pa.table(
        {
            "unit": pa.array(unit, pa.int64()),
            "row_group": pa.array(group, pa.int64()),
            "rows": pa.array(rows, pa.int64()),
        }
    ).replace_schema_metadata({META_KEY: json.dumps(meta, sort_keys=True).encode()})
    storage.write_table(CHUNKS, table)
    plan = load_plan(storage)
    assert plan is not None
    return plan
