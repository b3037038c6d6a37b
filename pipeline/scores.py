"""The score table of one chunk: what has been measured so far, under which models.

A score part is one Parquet file per chunk. Its schema metadata carry the fingerprint of every stage that wrote to
it, so that a changed model invalidates that stage's columns and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.parquet_files import open_parquet
from curation.policy import Policy
from curation.records import LOCATOR_SCHEMA
from curation.sources.base import READ_COLUMNS
from pipeline.stages import StageSet
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

META_KEY = b"populace"

LOCATOR_COLUMNS: dict[str, pa.DataType] = {
    name: LOCATOR_SCHEMA.field(name).type for name in ("id", "uri", "member", "offset", "size", "metadata")
}
PROBLEM_COLUMNS: dict[str, pa.DataType] = {
    "problem": pa.string(),
    "problem_stage": pa.string(),
    "problem_detail": pa.string(),
}
"""Why a row could not be measured: reason code, the stage where it happened, and what exactly was wrong."""


class ScoreTable:
    """Scores of n rows as plain lists, one per column; None marks a value that is missing or not measured.

    Args:
        locators: the rows (`LOCATOR_SCHEMA`).
        stages: stage name -> its columns, in stage order.
    """

    def __init__(self, locators: pa.Table, stages: Mapping[str, Mapping[str, pa.DataType]]) -> None:
        self.rows = len(locators)
        self.stages = {name: dict(columns) for name, columns in stages.items()}
        self.types: dict[str, pa.DataType] = {**LOCATOR_COLUMNS, **READ_COLUMNS}
        for columns in self.stages.values():
            self.types.update(columns)
        self.types.update(PROBLEM_COLUMNS)
        self._floats = {name: dtype for name, type_ in self.types.items() if (dtype := _float_type(type_)) is not None}
        self.columns: dict[str, list[Any]] = {name: [None] * self.rows for name in self.types}
        for name in LOCATOR_COLUMNS:
            self.columns[name] = locators.column(name).to_pylist()
        self.scored: dict[str, list[bool]] = {name: [False] * self.rows for name in self.stages}
        problems = locators.column("problem").to_pylist()
        details = locators.column("problem_detail").to_pylist()
        for row, problem in enumerate(problems):
            if problem is not None:
                self.fail(row, "read", problem, details[row])

    def fail(self, row: int, stage: str, reason: str, detail: str | None) -> None:
        """Record that a row cannot be measured from `stage` on."""
        self.columns["problem"][row] = str(reason)
        self.columns["problem_stage"][row] = stage
        # Half of a surrogate pair, which hostile bytes can smuggle into a message, has no place in Arrow.
        self.columns["problem_detail"][row] = detail[:500].encode("utf-8", "replace").decode() if detail else None

    def set(self, row: int, values: Mapping[str, Any]) -> None:
        """Set columns of one row, at the precision at which they are stored.

        Else a stage that reads an earlier stage's column would see other numbers when that was measured in the same run
        than when it comes from the part of an earlier one.
        """
        for name, value in values.items():
            dtype = self._floats.get(name)
            if dtype is not None and value is not None:
                value = np.asarray(value, dtype)
                value = value if value.ndim else value.item()
            self.columns[name][row] = value

    def arrays(self, names: Iterable[str], rows: Sequence[int] | None = None) -> dict[str, pa.Array]:
        """Arrow arrays of columns, of all rows or of some."""
        picked = {}
        for name in names:
            values = self.columns[name]
            picked[name] = to_arrow(values if rows is None else [values[row] for row in rows], self.types[name])
        return picked

    def to_table(self, meta: Mapping[str, Any]) -> pa.Table:
        """The score part as Arrow."""
        arrays = [to_arrow(values, self.types[name]) for name, values in self.columns.items()]
        names = list(self.columns)
        for stage, scored in self.scored.items():
            names.append(f"scored_{stage}")
            arrays.append(pa.array(scored, pa.bool_()))
        schema = pa.schema(
            [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)],
            metadata={META_KEY: json.dumps(dict(meta), sort_keys=True).encode()},
        )
        return pa.Table.from_arrays(arrays, schema=schema)

    def load(self, part: pa.Table, fingerprints: Mapping[str, str], retry: Collection[str] = ()) -> None:
        """Take over what an earlier part holds and is still valid: stages whose fingerprint is unchanged.

        Args:
            retry: problems with these reason codes are forgotten, so that the row is tried again.
        """
        old = part_meta(part.schema).get("fingerprints", {})
        present = set(part.column_names)
        valid = {
            stage
            for stage, columns in self.stages.items()
            if old.get(stage) == fingerprints[stage] and {*columns, f"scored_{stage}"} <= present
        }
        names = [*READ_COLUMNS, *(name for stage in self.stages if stage in valid for name in self.stages[stage])]
        for name in names:
            if name in present:
                self.columns[name] = part.column(name).to_pylist()
        for stage in valid:
            self.scored[stage] = part.column(f"scored_{stage}").to_pylist()
        for row, (problem, stage, detail) in enumerate(
            zip(*(part.column(name).to_pylist() for name in PROBLEM_COLUMNS), strict=True)
        ):
            if problem is None or stage not in valid:
                continue
            if problem in retry or not self._scored_before(stage, row):
                self.scored[stage][row] = False
            else:
                self.fail(row, stage, problem, detail)

    def _scored_before(self, stage: str, row: int) -> bool:
        """Whether all stages before one have measured a row: else it is measured from there on, problem or not."""
        names = list(self.stages)
        return all(self.scored[name][row] for name in names[: names.index(stage)] if name != "read")


def part_name(chunk: int) -> str:
    """Where the scores of a chunk are."""
    return f"work/scores/part-{chunk:08d}.parquet"


def read_scores(storage: Storage, chunk: int, stages: StageSet, columns: Collection[str] | None = None) -> pa.Table:
    """The scores of a chunk with everything nulled that another model or policy of decoding gave.

    Args:
        columns: the score columns wanted; None for all. Locator, problem and `scored_` columns always come.
    """
    try:
        return _read_scores(storage, chunk, stages, columns)
    except UNREADABLE as error:
        raise DamagedFileError(
            f"{storage.path(part_name(chunk))} is damaged ({error}). Remove it and run again: its rows are "
            "measured again."
        ) from error


def _read_scores(storage: Storage, chunk: int, stages: StageSet, columns: Collection[str] | None) -> pa.Table:
    with storage.open_read(part_name(chunk)) as file:
        parquet = open_parquet(file)
        schema = parquet.schema_arrow
        old = part_meta(schema).get("fingerprints", {})
        valid = {stage.name for stage in stages if old.get(stage.name) == stage.fingerprint}
        wanted: dict[str, tuple[pa.DataType, bool]] = {name: (type_, True) for name, type_ in LOCATOR_COLUMNS.items()}
        wanted |= {name: (type_, True) for name, type_ in READ_COLUMNS.items() if columns is None or name in columns}
        for stage in stages:
            for name, type_ in stage.columns.items():
                if columns is None or name in columns:
                    wanted[name] = (type_, stage.name in valid)
        for name, type_ in PROBLEM_COLUMNS.items():
            wanted[name] = (type_, True)
        for stage in stages:
            wanted[f"scored_{stage.name}"] = (pa.bool_(), stage.name in valid)
        # Pages have checksums, and the footer, which names the columns, has none.
        promised = [*LOCATOR_COLUMNS, *PROBLEM_COLUMNS, *(f"scored_{name}" for name in valid)]
        promised += [name for stage in stages if stage.name in valid for name in stage.columns if name in wanted]
        for name in promised:
            if name not in schema.names or schema.field(name).type != wanted[name][0]:
                raise ValueError(f"the column {name} is missing or has another type")
        present = [name for name, (_, use) in wanted.items() if use and name in schema.names]
        part = parquet.read(columns=present)
    rows = part.num_rows
    arrays = []
    for name, (type_, use) in wanted.items():
        if use and name in part.column_names:
            arrays.append(part.column(name).combine_chunks())
        elif name.startswith("scored_"):
            arrays.append(pa.array(np.zeros(rows, dtype=bool)))
        else:
            arrays.append(pa.nulls(rows, type_))
    table = pa.table(dict(zip(wanted, arrays, strict=True)))
    # A problem of a stage whose model changed is no longer known.
    stage_column = table.column("problem_stage")
    known = pc.is_in(stage_column, pa.array(sorted(valid), pa.string()))
    for name, type_ in PROBLEM_COLUMNS.items():
        position = table.column_names.index(name)
        table = table.set_column(position, name, pc.if_else(known, table.column(name), pa.nulls(rows, type_)))
    return table


def missing_scores(table: pa.Table, policy: Policy) -> bool:
    """True when some row reaches a stage of the policy that has not measured it."""
    alive = np.ones(len(table), dtype=bool)
    problem_stage = table.column("problem_stage").to_numpy(zero_copy_only=False)
    for stage in policy.rules:
        broken = problem_stage == stage
        if stage != "read":
            scored = table.column(f"scored_{stage}").to_numpy(zero_copy_only=False).astype(bool)
            if bool((alive & ~scored & ~broken).any()):
                return True
        columns = {rule.column: table.column(rule.column).combine_chunks() for rule in policy.rules[stage]}
        if columns:
            alive &= ~policy.failed(stage, columns)
        alive &= ~broken
    return False


def part_meta(schema: pa.Schema) -> dict[str, Any]:
    """What `to_table` stored beside the columns."""
    raw = (schema.metadata or {}).get(META_KEY)
    return json.loads(raw) if raw else {}


def to_arrow(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """An Arrow array from Python or numpy values, float16 lists included."""
    if pa.types.is_list(type_) and pa.types.is_floating(type_.value_type):
        dtype = np.dtype(type_.value_type.to_pandas_dtype())
        flat = [np.asarray(value, dtype=dtype).ravel() for value in values if value is not None]
        lengths = np.array([0 if value is None else len(value) for value in values], dtype=np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        data = np.concatenate(flat) if flat else np.empty(0, dtype)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(data, type_.value_type), type=type_, mask=mask
        )
    return pa.array([_plain(value) for value in values], type_)


def _float_type(type_: pa.DataType) -> np.dtype[Any] | None:
    """The numpy type of a column of floats or of lists of floats, None for others."""
    value_type = type_.value_type if pa.types.is_list(type_) else type_
    return np.dtype(value_type.to_pandas_dtype()) if pa.types.is_floating(value_type) else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
