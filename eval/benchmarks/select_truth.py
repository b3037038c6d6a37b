"""What a selection of planted rows must give: by what was planted, and by the in-memory kernels on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curation.dedup import exact_duplicates, near_duplicates, neighbour_pairs, survivors
from curation.reasons import Reason
from eval.benchmarks.select_pool import RADIUS, THRESHOLD, Planted, pool_plan
from pipeline.select import Layout
from pipeline.select.marks import read_marks
from pipeline.storage import Storage

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """What was decided for n rows.

    Attributes:
        keeper: int64 [n], the row in whose favour a row is dropped, else -1.
        reason: string [n], of a dropped row, also of one that is over-represented; else "".
    """

    keeper: Indices
    reason: npt.NDArray[np.str_]


@dataclass(frozen=True)
class Timed:
    """A keeper for each row as in `Outcome`, and the CPU seconds that it took."""

    keeper: Indices
    cpu_seconds: float


def read_outcome(folder: Path, name: str, rows: Planted, chunk_rows: int, folders: tuple[str, ...]) -> Outcome:
    """The marks of a finished selection."""
    storage = Storage(folder)
    layout = Layout(pool_plan(storage, len(rows), chunk_rows))
    keeper, reason = np.full(len(rows), -1, np.int64), np.full(len(rows), "", "<U24")
    for batch in range(len(layout.batches)):
        marks = read_marks(storage.child(name), folders, batch)
        marks = marks.filter(pc.is_valid(marks.column("reason")))
        at = marks.column("row").to_numpy()
        reason[at] = marks.column("reason").to_numpy(zero_copy_only=False).astype(str)
        named = marks.column("duplicate_of").combine_chunks()
        keeper[at] = pc.index_in(named, value_set=rows.id).fill_null(-1).to_numpy(zero_copy_only=False)
    return Outcome(keeper, reason)


def by_hash(rows: Planted) -> Timed:
    """Stars among near hashes, which rows of equal bytes are too."""
    ids = _ids(rows.id)

    def both() -> Indices:
        exact_duplicates(rows.content, rows.bytes.astype(np.float64), ids)
        return near_duplicates(rows.phash, rows.bytes.astype(np.float64), ids, RADIUS).keeper

    return _timed(both)


def by_vector(rows: Planted) -> Timed:
    """Stars among near embeddings."""
    ids = _ids(rows.id)
    assert rows.vectors is not None
    vectors = rows.vectors

    def search() -> Indices:
        pairs = neighbour_pairs(vectors, THRESHOLD)
        return survivors(pairs, rows.bytes.astype(np.float64), ids)

    return _timed(search)


def _ids(column: pa.Array) -> npt.NDArray[np.bytes_]:
    return np.array(column.to_pylist(), dtype=np.bytes_)


def _timed(call: Callable[[], Indices]) -> Timed:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        started = time.process_time()
        keeper = call()
        return Timed(keeper, time.process_time() - started)


def planted_recall(rows: Planted, outcome: Outcome, *kinds: str) -> float:
    """Share of the copies of some kinds that are dropped and name the row that they are a copy of."""
    copies = np.flatnonzero(np.isin(rows.kind, kinds))
    return float((outcome.keeper[copies] == rows.origin[copies]).mean())


def agreement(outcome: Outcome, expected: Timed) -> float:
    """Share of the rows that either side drops which both drop for the same row."""
    either = (outcome.keeper >= 0) | (expected.keeper >= 0)
    same = outcome.keeper == expected.keeper
    return float(same[either].mean()) if either.any() else 1.0


def dropped(outcome: Outcome, *reasons: Reason) -> int:
    """Rows dropped for some reasons."""
    return int(np.isin(outcome.reason, [str(reason) for reason in reasons]).sum())
