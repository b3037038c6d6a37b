"""What selection says of rows: why one is dropped, and to which cluster and stratum it belongs.

Every step writes its marks per batch of rows; the ledger reads those of its group. Nothing of it passes the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.select.steps import task_name
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

MARK_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("duplicate_of", pa.string()),
        pa.field("distance", pa.int16()),
        pa.field("similarity", pa.float32()),
        pa.field("reference", pa.string()),
        pa.field("cluster", pa.int64()),
        pa.field("stratum", pa.string()),
    ]
)
"""reason: null for a row that stays. duplicate_of: id of the row in whose favour it is dropped, in `reference` (an
evaluation set or an earlier corpus) or, where that is null, here. distance: Hamming, bits; similarity: cosine."""


def mark_table(**columns: npt.ArrayLike | pa.Array) -> pa.Table:
    """Marks with the given columns; the others are null."""
    count = len(columns["row"])  # type: ignore[arg-type]
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in MARK_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=MARK_SCHEMA)


def marks_name(folder: str, batch: int) -> str:
    """Where a step's marks of a batch are."""
    return f"{folder}/{task_name(batch)}.parquet"


def read_marks(storage: Storage, folders: Sequence[str], batch: int) -> pa.Table:
    """Marks of a batch from several steps, in the order of rows."""
    tables = []
    for folder in folders:
        name = marks_name(folder, batch)
        try:
            tables.append(storage.read_table(name))
        except UNREADABLE as error:
            raise DamagedFileError(
                f"{storage.path(name)} is damaged ({error}). Remove the folder {storage.root} and run again: selection "
                "starts anew from the scores."
            ) from error
    return pa.concat_tables([MARK_SCHEMA.empty_table(), *tables]).sort_by("row")


def without(table: pa.Table, marks: pa.Table) -> pa.Table:
    """The rows of a table that no mark drops."""
    dropped = marks.filter(pc.is_valid(marks.column("reason"))).column("row")
    return table.filter(pc.invert(pc.is_in(table.column("row"), dropped.combine_chunks())))


@dataclass(frozen=True)
class KeptRows:
    """Picklable filter: what of a batch's candidates is still there after some steps."""

    storage: Storage
    folders: tuple[str, ...]

    def __call__(self, batch: int, candidates: pa.Table) -> pa.Table:
        """The candidates that no step dropped."""
        return without(candidates, read_marks(self.storage, self.folders, batch))


@dataclass(frozen=True)
class GroupMarks:
    """Picklable: the marks of a ledger group, from the final steps of a selection.

    Attributes:
        storage: folder of the selection.
        first: first global row of each batch, and the number of rows: int64 [batches + 1].
    """

    storage: Storage
    first: npt.NDArray[np.int64]
    folders: tuple[str, ...]

    def __call__(self, first: int, rows: int) -> pa.Table:
        """Marks of global rows [first, first + rows), which lie in one batch; `row` counts from `first`."""
        batch = int(np.searchsorted(self.first, first, side="right")) - 1
        marks = read_marks(self.storage, self.folders, batch)
        number = marks.column("row").to_numpy()
        low, high = np.searchsorted(number, [first, first + rows])
        picked = marks.slice(low, high - low)
        return picked.set_column(0, MARK_SCHEMA.field("row"), pa.array(number[low:high] - first))
