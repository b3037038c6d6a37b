"""The ledger: one row for every input, kept or dropped, with all that was measured and why.

    ledger/part-00000.parquet ...   in source order; the same run gives the same bytes
    ledger/_complete.json           rows, counts per reason, SHA-256 per part; without it the ledger is not finished

It is written whole beside the old one and then takes its place, so no reader sees two policies mixed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curation.parquet_files import FORMAT as PARQUET_FORMAT
from curation.policy import STAGES, Policy
from curation.reasons import Reason
from pipeline.plan import Plan
from pipeline.scores import LOCATOR_COLUMNS, PROBLEM_COLUMNS, read_scores
from pipeline.stages import StageSet
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

LEDGER = "ledger"
STAGING = "ledger.incomplete"
COMPLETE = "_complete.json"
LEDGER_FORMATS = {"ledger": 1, "parquet": PARQUET_FORMAT}
"""Raised when the same scores and marks would give another ledger: a finished one is then written anew."""

VERDICT_COLUMNS: dict[str, pa.DataType] = {
    "verdict": pa.string(),
    "reason": pa.string(),
    "stage": pa.string(),
    "column": pa.string(),
    "score": pa.float64(),
    "threshold": pa.float64(),
    "detail": pa.string(),
    "duplicate_of": pa.string(),
    "distance": pa.int16(),
    "similarity": pa.float32(),
    "reference": pa.string(),
    "cluster": pa.int64(),
    "stratum": pa.string(),
}
"""verdict: kept | dropped. reason: the first that applied. stage, column, score, threshold: where, and the numbers at
that time. detail: text of a problem. duplicate_of: id of the row that this one repeats, kept in this run or, where
`reference` has a name, in that evaluation set or earlier corpus; distance: Hamming, bits, or similarity: cosine.
cluster, stratum: where balancing counted the row; null without balancing."""

MARKED = ("duplicate_of", "distance", "similarity", "reference", "cluster", "stratum")
"""Verdict columns that only selection fills."""

PROMOTED = ("caption", "url", "licence")


@dataclass(frozen=True)
class LedgerPart:
    """What publishing one part reports."""

    name: str
    rows: int
    kept: int
    bytes: int
    sha256: str
    reasons: dict[str, int]


@dataclass(frozen=True)
class LedgerWriter:
    """Writes parts of the ledger; runs in workers."""

    storage: Storage
    plan: Plan
    stages: StageSet
    policy: Policy
    marks: Callable[[int, int], pa.Table]
    """First global row and number of rows -> what selection says of them (`pipeline.select.marks.MARK_SCHEMA`), with
    rows counted from the first."""

    def __call__(self, group: int) -> LedgerPart:
        """Write the part of one group of chunks, by its position in `plan.groups`."""
        start, stop = self.plan.groups[group]
        scores = pa.concat_tables(
            [read_scores(self.storage, chunk, self.stages) for chunk in range(start, stop)]
        ).combine_chunks()
        marks = self.marks(int(self.plan.first_row[start]), len(scores))
        table = self._rows(scores, marks, start, stop)
        name = f"part-{group:05d}.parquet"
        self.storage.write_table(f"{STAGING}/{name}", table, row_group_size=8192)
        data = self.storage.read_bytes(f"{STAGING}/{name}")
        digest = hashlib.sha256(data).hexdigest()
        reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
        return LedgerPart(name, len(table), len(table) - sum(reasons.values()), len(data), digest, dict(reasons))

    def _rows(self, scores: pa.Table, marks: pa.Table, start: int, stop: int) -> pa.Table:
        verdicts = self.policy.decide(scores)
        stage = np.array([STAGES[at] if at < len(STAGES) else None for at in verdicts.stage], dtype=object)
        reason, column = verdicts.reason, verdicts.column
        problem = np.array([value is not None for value in scores.column("problem").to_pylist()], dtype=bool)
        broken = problem & np.array([why is not None for why in reason], dtype=bool)
        broken &= np.array([name is None for name in column], dtype=bool)
        details = scores.column("problem_detail").to_pylist()
        detail = [text if bad else None for text, bad in zip(details, broken, strict=True)]
        marked: dict[str, list[Any]] = {name: [None] * len(scores) for name in MARKED}
        for mark in marks.to_pylist():
            row = mark["row"]
            if mark["reason"] is not None:
                assert reason[row] is None, "selection may only drop rows that passed the policy"
                reason[row], stage[row], detail[row] = mark["reason"], "select", mark["detail"]
            for name in MARKED:
                marked[name][row] = mark[name] if mark[name] is not None else marked[name][row]
        values: dict[str, Any] = {
            "verdict": ["kept" if why is None else "dropped" for why in reason],
            "reason": list(reason),
            "stage": list(stage),
            "column": list(column),
            "score": pa.array(verdicts.score, mask=np.isnan(verdicts.score)),
            "threshold": pa.array(verdicts.threshold, mask=np.isnan(verdicts.threshold)),
            "detail": detail,
            **marked,
        }
        hidden = {"metadata", *PROBLEM_COLUMNS, *(f"scored_{name}" for name in self.stages.names)}
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            name: scores.column(name) for name in LOCATOR_COLUMNS if name not in hidden
        }
        columns |= _promote(scores.column("metadata").to_pylist(), known=scores.column_names)
        columns["metadata"] = scores.column("metadata")
        columns |= {
            name: scores.column(name) for name in scores.column_names if name not in hidden and name not in columns
        }
        columns |= {name: pa.array(values[name], type_) for name, type_ in VERDICT_COLUMNS.items()}
        chunks = np.repeat(np.arange(start, stop), self.plan.rows[start:stop])
        columns["chunk"] = pa.array(chunks, pa.int64())
        columns["chunk_row"] = pa.array(
            np.concatenate([np.arange(count) for count in self.plan.rows[start:stop].tolist()] or [chunks]), pa.int64()
        )
        return pa.table(columns)


def _promote(metadata: Sequence[str | None], known: Sequence[str]) -> dict[str, pa.Array]:
    rows = [json.loads(text) if text else {} for text in metadata]
    return {
        name: pa.array([None if row.get(name) is None else str(row[name]) for row in rows], pa.string())
        for name in PROMOTED
        if name not in known
    }


def complete_record(parts: Sequence[LedgerPart], decision: str) -> dict[str, Any]:
    """What `_complete.json` says of a ledger: rows, counts, and one SHA-256 over those of its parts."""
    reasons: Counter[str] = Counter()
    for part in parts:
        reasons.update(part.reasons)
    record: dict[str, Any] = {
        "decision": decision,
        "rows": sum(part.rows for part in parts),
        "kept": sum(part.kept for part in parts),
        "dropped": dict(sorted(reasons.items())),
        "parts": [
            {"name": part.name, "rows": part.rows, "kept": part.kept, "bytes": part.bytes, "sha256": part.sha256}
            for part in parts
        ],
    }
    record["sha256"] = hashlib.sha256(json.dumps(record["parts"], sort_keys=True).encode()).hexdigest()
    assert record["rows"] == record["kept"] + sum(reasons.values())
    return record


def publish_ledger(storage: Storage, record: dict[str, Any]) -> None:
    """Mark the staged ledger as complete and put it in place of the old one."""
    storage.write_bytes(f"{STAGING}/{COMPLETE}", json.dumps(record, indent=2, sort_keys=True).encode() + b"\n")
    storage.publish_folder(STAGING, LEDGER, last=COMPLETE)


def record_problem(record: Mapping[str, Any]) -> str | None:
    """Why what `_complete.json` says does not add up; None when it does."""
    try:
        parts = record["parts"]
        if record["sha256"] != hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest():
            return "its SHA-256 is not that of its parts"
        rows, kept = (sum(part[name] for part in parts) for name in ("rows", "kept"))
        if [rows, kept] != [record["rows"], record["kept"]] or rows != kept + sum(record["dropped"].values()):
            return "its counts do not add up"
    except (KeyError, TypeError, AttributeError) as error:
        return f"it is not the record of a ledger ({error!r})"
    return None


def ledger_record(storage: Storage) -> dict[str, Any] | None:
    """`_complete.json` of a finished ledger, or None when it is not finished, or not whole any more: a part is missing
    or has another size."""
    record = storage.read_json(f"{LEDGER}/{COMPLETE}")
    if record is None or record_problem(record) is not None:
        return None
    names = [part["name"] for part in record["parts"]]
    if [f"{LEDGER}/{name}" for name in names] != ledger_parts(storage):
        return None
    sizes = [storage.size(f"{LEDGER}/{name}") for name in names]
    return record if sizes == [part["bytes"] for part in record["parts"]] else None


def ledger_parts(storage: Storage) -> list[str]:
    """Names of the ledger's parts, in order."""
    return [f"{LEDGER}/{name}" for name in storage.names(LEDGER) if name.endswith(".parquet")]


def funnel(storage: Storage) -> dict[str, Any]:
    """Inputs, kept, and dropped per reason, counted from the rows of the ledger.

    Raises:
        FileNotFoundError: the run has no finished ledger, or one that lost a part.
        DamagedFileError: a part cannot be read.
    """
    if ledger_record(storage) is None:
        raise FileNotFoundError(f"{storage.root}: no finished ledger")
    inputs, reasons = 0, Counter[str]()
    for name in ledger_parts(storage):
        try:
            column = storage.read_table(name, ["reason"]).column("reason")
        except UNREADABLE as error:
            raise DamagedFileError(
                f"{storage.path(name)} is damaged ({error}). Remove it and run `populace curate` again: the ledger is "
                "written anew from the scores."
            ) from error
        inputs += len(column)
        for item in column.value_counts().to_pylist():
            if item["values"] is not None:
                reasons[item["values"]] += item["counts"]
    order = {reason.value: position for position, reason in enumerate(Reason)}
    dropped: Mapping[str, int] = dict(sorted(reasons.items(), key=lambda item: order.get(item[0], len(order))))
    return {"inputs": inputs, "kept": inputs - sum(dropped.values()), "dropped": dropped}
