"""The rows that take part in selection, read from the scores: those that pass the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.policy import Policy
from curation.vectors import to_matrix
from pipeline.plan import Plan
from pipeline.scores import read_scores
from pipeline.select.config import DERIVED
from pipeline.stages import StageSet
from pipeline.storage import Storage

MOST_BATCHES = 1024
"""Map tasks of a selection: more of them would make the pieces that a shuffle moves too small."""

HASH_COLUMNS = ("phash", "phash_mirrored", "phash_degenerate")


@dataclass(frozen=True)
class Layout:
    """How the rows of a plan are dealt to map tasks: runs of ledger groups. A function of the plan alone."""

    plan: Plan

    @cached_property
    def batches(self) -> list[tuple[int, int]]:
        """Groups [start, stop) of each batch."""
        count = len(self.plan.groups)
        step = max(1, -(-count // MOST_BATCHES))
        return [(start, min(start + step, count)) for start in range(0, count, step)]

    @cached_property
    def first_row(self) -> npt.NDArray[np.int64]:
        """First global row of each batch, and the number of rows: int64 [batches + 1]."""
        starts = [self.group_rows(group)[0] for group, _ in self.batches]
        return np.array([*starts, self.plan.inputs], dtype=np.int64)

    def batch_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The batch of each global row."""
        return np.searchsorted(self.first_row, rows, side="right") - 1

    def group_rows(self, group: int) -> tuple[int, int]:
        """First global row and number of rows of a ledger group."""
        start, stop = self.plan.groups[group]
        return int(self.plan.first_row[start]), int(self.plan.rows[start:stop].sum())


@dataclass(frozen=True)
class ReadScores:
    """Reads score columns of chosen rows; runs in workers.

    Attributes:
        storage: of the run.
    """

    storage: Storage
    plan: Plan
    stages: StageSet
    policy: Policy

    def passing(self, group: int, quality: tuple[str, ...], extra: frozenset[str]) -> pa.Table:
        """Rows of a ledger group that pass the policy.

        Args:
            extra: further columns wanted.

        Returns:
            row (global), id, quality_0 ..., and the extra columns that the run measures.
        """
        columns = {*extra, *self.policy.columns}
        for name in quality:
            columns |= set(DERIVED.get(name, (name,)))
        known = {name for stage in self.stages for name in stage.columns}
        tables = []
        for chunk in range(*self.plan.groups[group]):
            scores = read_scores(self.storage, chunk, self.stages, columns)
            passed = np.flatnonzero(self.policy.decide(scores).passed)
            rows = scores.take(pa.array(passed))
            picked = {"row": pa.array(passed + int(self.plan.first_row[chunk]), pa.int64()), "id": rows.column("id")}
            for position, name in enumerate(quality):
                picked[f"quality_{position}"] = pa.array(_quality(rows, name), pa.float64())
            picked |= {name: rows.column(name) for name in sorted(extra & known)}
            tables.append(pa.table(picked))
        return pa.concat_tables(tables).combine_chunks()

    def column(self, group: int, name: str, rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
        """One column of chosen rows of a ledger group, global and ascending, in their order."""
        parts = []
        for chunk in range(*self.plan.groups[group]):
            first = int(self.plan.first_row[chunk])
            low, high = np.searchsorted(rows, [first, first + int(self.plan.rows[chunk])])
            if high > low:
                scores = read_scores(self.storage, chunk, self.stages, {name})
                parts += scores.column(name).take(pa.array(rows[low:high] - first)).chunks
        kind = next(stage.columns[name] for stage in self.stages if name in stage.columns)
        return pa.chunked_array(parts, kind)

    def embeddings(
        self, groups: tuple[int, int], rows: npt.NDArray[np.int64]
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float16]]]:
        """Embeddings of chosen rows, group by group: (rows, float16 [n, d]), rows without one left out."""
        for group in range(*groups):
            first, count = Layout(self.plan).group_rows(group)
            low, high = np.searchsorted(rows, [first, first + count])
            if high > low:
                matrix, present = to_matrix(self.column(group, "embedding", rows[low:high]))
                if present.any():  # else the matrix does not know its width
                    yield rows[low:high][present], matrix[present]


def _quality(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    if name == "color":
        modes = table.column("mode").to_pylist()
        return np.array([0.0 if mode is None else _COLOR.get(mode, 0.0) for mode in modes], np.float64)
    product = np.ones(len(table))
    for part in DERIVED.get(name, (name,)):
        # Without a share there are no borders to take off.
        missing = 1.0 if part == "content_share" else np.nan
        product *= np.asarray(table.column(part).cast(pa.float64()).fill_null(missing))
    return product


_COLOR = {
    **dict.fromkeys(("RGB", "RGBA", "RGBX", "YCbCr", "RGB;16", "RGBA;16"), 2.0),
    **dict.fromkeys(("L", "LA", "L;16", "LA;16", "I;16", "I;16B", "I", "F", "P", "PA", "1"), 1.0),
}
"""Mode in the file -> how much of its color is there; others are 0."""


def hash_usable(columns: Mapping[str, pa.ChunkedArray] | pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows have a perceptual hash that can be compared. bool [n]."""
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    flat = table.column("phash_degenerate").fill_null(True).to_numpy(zero_copy_only=False).astype(bool)
    missing = table.column("phash").is_null().to_numpy(zero_copy_only=False).astype(bool)
    return ~(flat | missing)
