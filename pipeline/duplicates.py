"""`populace duplicates`: a row's group of duplicates, read from the finished ledger.

A group is a star: the row that stayed, and every row that was dropped in its favour. The ledger is read part by part:
once the ids, to find the row; once `duplicate_of`, to find its group; other columns only of parts that hold some of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from curation.parquet_files import open_parquet
from curation.reasons import DESCRIPTIONS, Reason
from pipeline.ledger import ledger_parts, ledger_record
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

MIN_PREFIX = 6
"""Shortest prefix of an id that may stand for it."""

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "uri": pa.string(),
    "member": pa.string(),
    "verdict": pa.string(),
    "reason": pa.string(),
    "distance": pa.int16(),
    "similarity": pa.float32(),
    "width": pa.int32(),
    "height": pa.int32(),
    "duplicate_of": pa.string(),
    "reference": pa.string(),
    "column": pa.string(),
    "score": pa.float64(),
    "threshold": pa.float64(),
    "detail": pa.string(),
}
"""What is read of the ledger. One that an older ledger lacks counts as null."""

MEMBER_COLUMNS = ("id", "uri", "member", "verdict", "reason", "distance", "similarity", "width", "height")

_LISTED = 8


class UnknownIdError(LookupError):
    """No row, or more than one, has that id. The message says what was given and what to give."""


@dataclass(frozen=True, slots=True)
class Group:
    """A row and its duplicates.

    Attributes:
        row: the row asked for, `COLUMNS`.
        head: id of the row in whose favour the group was dropped: `row` itself, or what its `duplicate_of` names; None
            when `row` was dropped for another reason and nothing in its favour.
        reference: name of the evaluation set or earlier corpus that the head is in; None for this run.
        found: whether the head is a row of this ledger.
        total: rows of this ledger that belong to the group, the head included.
        members: the first of them, `MEMBER_COLUMNS` and `is_query`: the head, then by reason, distance, falling
            similarity and id. The head and the row asked for are always among them.
    """

    row: Mapping[str, Any]
    head: str | None
    reference: str | None
    found: bool
    total: int
    members: Sequence[Mapping[str, Any]]

    def explanation(self) -> str:
        """What happened to the row, in one sentence; `printable`."""
        name, reason = str(self.row["id"]), self.row["reason"]
        if self.row["verdict"] == "kept":
            state = f"{name} is kept"
        else:
            meaning = f": {DESCRIPTIONS[Reason(reason)]}" if reason in set(Reason) else ""
            state = f"{name} was dropped ({reason}{meaning}{self._numbers()})"
        if self.row["duplicate_of"] is not None or self.reference is not None:
            what = "" if self.head is None else f" in favour of {self.head}"
            if self.reference is not None:
                where = f", which is not of this run but of {self.reference!r}" if what else f" for {self.reference!r}"
            else:
                where = "" if self.found else ", which is not in this ledger"
            return printable(f"{state}{what}{where}.")
        others = self.total - 1 if self.head is not None else 0
        rows = "nothing" if not others else f"{others:,} row{'s' if others > 1 else ''}"
        return printable(f"{state}, and {rows} was dropped in its favour.".replace("rows was", "rows were"))

    def _numbers(self) -> str:
        column, score, threshold = self.row["column"], self.row["score"], self.row["threshold"]
        text = f"; {column}" if column is not None else ""
        if column is not None and score is not None:
            text += f" {score:.6g}"
        if threshold is not None:
            text += f", limit {threshold:.6g}"
        return text + (f"; {self.row['detail']}" if self.row["detail"] else "")

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: `id`, `verdict`, `reason`, `head`, `reference`, `head_in_ledger`, `explanation`, `total`, and the
        `members`. Values that are not finite become null."""
        return {
            "id": self.row["id"],
            "verdict": self.row["verdict"],
            "reason": self.row["reason"],
            "head": self.head,
            "reference": self.reference,
            "head_in_ledger": self.found,
            "explanation": self.explanation(),
            "total": self.total,
            "members": [{name: _finite(value) for name, value in member.items()} for member in self.members],
        }


def find_group(storage: Storage, wanted: str, limit: int = 50) -> Group:
    """The group of a row.

    Args:
        storage: of the run.
        wanted: an id, or the first `MIN_PREFIX` or more characters of exactly one.
        limit: largest number of `members`; 0 for all.

    Raises:
        FileNotFoundError: the run has no finished ledger, or one that lost a part.
        DamagedFileError: a part cannot be read.
        UnknownIdError: no row has that id, or several begin like that.
    """
    if ledger_record(storage) is None:
        raise FileNotFoundError(f"{storage.root}: no finished ledger")
    parts = ledger_parts(storage)
    row = _find_row(storage, parts, wanted)
    reference = row["reference"]
    if row["duplicate_of"] is None and reference is not None:
        return _group(pa.table(_rows([row])), row, None, reference, limit)
    head = row["id"] if row["duplicate_of"] is None else row["duplicate_of"]
    found = [_members(storage, name, head, reference) for name in parts]
    return _group(pa.concat_tables(found), row, head, reference, limit)


def _find_row(storage: Storage, parts: Sequence[str], wanted: str) -> dict[str, Any]:
    """The one row whose id is `wanted` or begins with it, `COLUMNS`."""
    matches: list[tuple[str, int, str]] = []
    count = 0
    for name in parts:
        ids = _read(storage, name, ["id"]).column("id")
        positions = pc.indices_nonzero(pc.starts_with(ids, wanted)).to_pylist()
        for position in positions:
            text = ids[position].as_py()
            if text == wanted:
                return _row(storage, name, position)
            count += 1
            if len(matches) < _LISTED:
                matches.append((name, position, text))
    shown = printable(wanted)
    if not count:
        raise UnknownIdError(f"no row of {storage.root} has the id {shown!r}; ids are in the ledger's column `id`")
    if len(wanted) < MIN_PREFIX:
        raise UnknownIdError(f"{shown!r} is too short: give a whole id or at least its first {MIN_PREFIX} characters")
    if count > 1:
        listed = ", ".join(printable(text) for _, _, text in matches) + (", ..." if count > _LISTED else "")
        raise UnknownIdError(f"{count:,} ids begin with {shown!r}: {listed}. Give more of the one that you mean.")
    return _row(storage, matches[0][0], matches[0][1])


def _row(storage: Storage, name: str, position: int) -> dict[str, Any]:
    row: dict[str, Any] = _read(storage, name, list(COLUMNS)).slice(position, 1).to_pylist()[0]
    return row


def _members(storage: Storage, name: str, head: str, reference: str | None) -> pa.Table:
    """Rows of one part that belong to the group; of a foreign head, those of the same reference."""
    keys = _read(storage, name, ["id", "duplicate_of", "reference"])
    same = pc.equal(keys.column("duplicate_of"), head)
    if reference is None:
        mask = pc.and_kleene(same, pc.is_null(keys.column("reference")))
        mask = pc.or_kleene(mask, pc.equal(keys.column("id"), head))
    else:
        mask = pc.and_kleene(same, pc.equal(keys.column("reference"), reference))
    mask = pc.fill_null(mask, False)
    if not pc.any(mask, min_count=0).as_py():
        return pa.table(_rows([]))
    return _read(storage, name, list(COLUMNS)).filter(mask)


def _group(rows: pa.Table, row: Mapping[str, Any], head: str | None, reference: str | None, limit: int) -> Group:
    is_head = pc.equal(rows.column("id"), head) if head is not None and reference is None else None
    first = pc.cast(pc.invert(is_head), pa.int8()) if is_head is not None else pa.array([1] * len(rows), pa.int8())
    is_query = pc.equal(rows.column("id"), row["id"])
    rows = rows.append_column("first", first).append_column("is_query", is_query)
    keys = [("first", "ascending"), ("reason", "ascending"), ("distance", "ascending"), ("similarity", "descending")]
    rows = rows.take(pc.sort_indices(rows, [*keys, ("id", "ascending")]))
    shown = rows if limit == 0 else rows.slice(0, limit)
    if not pc.any(shown.column("is_query"), min_count=0).as_py():
        # The head comes first; the row asked for takes the last place of the others.
        shown = pa.concat_tables([shown.slice(0, max(limit - 1, 1)), rows.filter(rows.column("is_query"))])
    found = is_head is not None and bool(pc.any(is_head, min_count=0).as_py())
    if row["verdict"] != "kept" and row["duplicate_of"] is None and len(rows) == 1:
        head, found = None, False
    members = shown.select([*MEMBER_COLUMNS, "is_query"]).to_pylist()
    return Group(row, head, reference, found, len(rows), members)


def _rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([row[name] for row in rows], type_) for name, type_ in COLUMNS.items()}


def _read(storage: Storage, name: str, columns: Sequence[str]) -> pa.Table:
    """Columns of a part, in this order and of the types of `COLUMNS`; null where the part does not have one."""
    try:
        with storage.open_read(name) as file:
            parquet = open_parquet(file)
            there = [column for column in columns if column in parquet.schema_arrow.names]
            table = parquet.read(columns=there)
        arrays = {
            column: table.column(column).cast(COLUMNS[column])
            if column in there
            else pa.nulls(len(table), COLUMNS[column])
            for column in columns
        }
    except UNREADABLE as error:
        raise DamagedFileError(
            f"{storage.path(name)} is damaged ({error}). Remove it and run `populace curate` again: the ledger is "
            "written anew from the scores."
        ) from error
    return pa.table(arrays)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printable(text: str) -> str:
    """The text with everything that a terminal would obey (escape and control characters, direction overrides, line
    breaks) written as an escape sequence. Names of files and members come from strangers."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def print_group(console: Console, group: Group) -> None:
    """The sentence, and the members as a table, with `>` before the row asked for."""
    console.print(Text(group.explanation()), soft_wrap=True)
    table = Table()
    table.add_column("", no_wrap=True)
    table.add_column("id", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    table.add_column("bits", justify="right")
    table.add_column("cosine", justify="right")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("picture", overflow="fold")
    for member in group.members:
        name = member["uri"] + (f"  {member['member']}" if member["member"] else "")
        similarity = member["similarity"]
        size = "" if member["width"] is None else f"{member['width']} x {member['height']}"
        table.add_row(
            ">" if member["is_query"] else "",
            Text(printable(member["id"])),
            "kept" if member["verdict"] == "kept" else Text(printable(member["reason"] or "dropped")),
            "" if member["distance"] is None else str(member["distance"]),
            "" if similarity is None else f"{similarity:.4f}",
            size,
            Text(printable(name)),
            style="bold" if member["is_query"] else "",
        )
    console.print(table)
    if group.total > len(group.members):
        console.print(f"{len(group.members):,} of {group.total:,} rows; --limit 0 shows all", highlight=False)
