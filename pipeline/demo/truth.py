"""What is known about every input of the demo pool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

KEPT = "kept"
"""The label of inputs that belong in the corpus; all other labels are the values of `curation.reasons.Reason`."""

TRUTH_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field("member", pa.string(), nullable=False),
        pa.field("expected", pa.string(), nullable=False),
        pa.field("acceptable", pa.list_(pa.string()), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("transform", pa.string(), nullable=False),
        pa.field("is_person", pa.bool_(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
        pa.field("phash", pa.uint64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Truth:
    """One input.

    Attributes:
        id: `curation.records.record_id(uri, member)`.
        uri: file or tar, relative to the part of the pool that it is in.
        member: tar member; `name#2` for the second of a repeated name; empty for a file or for a whole broken tar.
        expected: "kept" or a reason code: what was done to the input so that it would be this.
        acceptable: other labels that are as right, because more than one thing is true of the input.
        group: family of duplicates. Within a family labels are interchangeable: which member survives is the
            pipeline's choice.
        kind: how it was made (`pipeline.demo.plan.KINDS`).
        transform: what was done, with parameters.
        is_person: whether it shows a real person.
        note: what it was made from.
        phash: `imagehash.phash` of the upright picture, for inputs that belong to a family; else None.
    """

    id: str
    uri: str
    member: str
    expected: str
    acceptable: tuple[str, ...]
    group: str
    kind: str
    transform: str
    is_person: bool
    note: str
    phash: int | None


def to_table(rows: Iterable[Truth]) -> pa.Table:
    """The rows in the order of their locators."""
    ordered = sorted(rows, key=lambda row: (row.uri, row.member))
    return pa.Table.from_pylist([{**asdict(row), "acceptable": list(row.acceptable)} for row in ordered], TRUTH_SCHEMA)
