"""Rows to the partition of their key, through files: what `pipeline/select` groups by.

Each map task writes one Arrow file with a record batch per partition; a reduce task reads its batch from every file.
Beside Ray Data's hash shuffle this has three properties that selection needs: data lie on the run's storage and not
in the memory of nodes that may be taken back, a task that has written its file is never run again after a kill, and
what a task reads does not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.mixing import mix64
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

PARTITION_BYTES = 256 * 2**20
"""What a reduce task reads at most, if keys are spread evenly."""
PARTITION_ROWS = 50_000
"""Below this many rows in a partition, more partitions only cost files."""
MOST_PARTITIONS = 16_384

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def partition_count(rows: int, bytes_per_row: float) -> int:
    """How many partitions to use: a function of the data alone, so that a resumed run agrees with itself."""
    by_bytes = rows * bytes_per_row / PARTITION_BYTES
    by_rows = min(rows / PARTITION_ROWS, 64)
    return int(np.clip(np.ceil(max(by_bytes, by_rows)), 1, MOST_PARTITIONS))


def partition_of(keys: npt.ArrayLike, partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key, 0..partitions-1."""
    return (mix64(keys) % np.uint64(partitions)).astype(np.int64)


def write_partitions(
    storage: Storage, name: str, table: pa.Table, partition: npt.NDArray[np.int64], partitions: int
) -> int:
    """Publish a file with the rows of each partition side by side, in the table's order.

    Args:
        partition: int64 [n], 0..partitions-1.

    Returns:
        Number of rows.
    """
    # NumPy sorts 16-bit integers by radix, ten times as fast.
    order = np.argsort(partition.astype(np.min_scalar_type(max(partitions - 1, 0))), kind="stable")
    counts = np.bincount(partition, minlength=partitions)
    ends = np.cumsum(counts)
    table = table.take(pa.array(order)).combine_chunks()
    with storage.open_write(name) as file, pa.ipc.new_file(file, table.schema, options=_OPTIONS) as writer:
        for end, count in zip(ends.tolist(), counts.tolist(), strict=True):
            batches = table.slice(end - count, count).to_batches() if count else []
            writer.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema))
    return len(table)


def read_partition(storage: Storage, names: Sequence[str], partition: int) -> pa.Table:
    """The rows of a partition from all files, in the files' order.

    Raises:
        DamagedFileError: a file cannot be read.
    """
    return pa.concat_tables(_batches(storage, names, partition))


def _batches(storage: Storage, names: Iterable[str], partition: int) -> list[pa.Table]:
    tables = []
    for name in names:
        try:
            with storage.open_read(name) as file, pa.ipc.open_file(file) as reader:
                tables.append(pa.Table.from_batches([reader.get_batch(partition)]))
        except UNREADABLE as error:
            raise DamagedFileError(
                f"{storage.path(name)} is damaged ({error}). Remove the folder {storage.root} and run again: selection "
                "starts anew from the scores."
            ) from error
    return tables
