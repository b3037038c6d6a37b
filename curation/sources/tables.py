"""Rows of Parquet files: their columns, their metadata, and one column read forward by row."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.reasons import Reason
from curation.records import Payload
from curation.sources.base import SourceError
from curation.sources.failures import failure
from curation.sources.filesystem import Files
from curation.sources.redact import describe

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
METADATA_BATCH = 1024
COLUMN_BATCH = 64
BUFFER_BYTES = 1 << 20


class ParquetReader:
    """An open Parquet file. Reads one row group at a time, single-threaded (workers share the machine)."""

    def __init__(self, files: Files, name: str) -> None:
        self._file: IO[bytes] = files.open(name)
        try:
            self.parquet = pq.ParquetFile(self._file, buffer_size=BUFFER_BYTES, pre_buffer=False)
        except BaseException:
            self._file.close()
            raise
        self.schema: pa.Schema = self.parquet.schema_arrow
        sizes = [self.parquet.metadata.row_group(i).num_rows for i in range(self.parquet.num_row_groups)]
        self.starts = list(accumulate(sizes, initial=0))

    def __enter__(self) -> ParquetReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.parquet.close()
        self._file.close()

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return int(self.starts[-1])

    def rows(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """All rows of some columns as dictionaries, in order."""
        if not columns:
            yield from ({} for _ in range(self.num_rows))
            return
        for group in range(self.parquet.num_row_groups):
            batches = self.parquet.iter_batches(
                METADATA_BATCH, row_groups=[group], columns=list(columns), use_threads=False
            )
            for batch in batches:
                yield from batch.to_pylist()

    def column_batches(self, group: int, column: str, batch_rows: int = COLUMN_BATCH) -> Iterator[pa.Array]:
        """One column of one row group, a few rows at a time."""
        for batch in self.parquet.iter_batches(batch_rows, row_groups=[group], columns=[column], use_threads=False):
            array = batch.column(0)
            while pa.types.is_struct(array.type):
                array = array.flatten()[0]
            yield array


def is_bytes(kind: pa.DataType) -> bool:
    """True for Arrow's binary types."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


def is_vector(kind: pa.DataType) -> bool:
    """True for lists of numbers, such as embeddings."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(kind) for test in lists):
        return False
    value = kind.value_type
    return pa.types.is_floating(value) or pa.types.is_integer(value) or is_vector(value)


def require_column(names: Sequence[str], wanted: str, option: str, shown: str) -> None:
    """Raise a `SourceError` that names the columns present and the nearest one."""
    if wanted in names:
        return
    folded = {name.lower(): name for name in names}
    near = folded.get(wanted.lower()) or next(iter(difflib.get_close_matches(wanted, names, 1, 0.5)), None)
    hint = f" Did you mean {near!r}? Set {option}={near}." if near else f" Set {option} to one of them."
    raise SourceError(f"{shown} has no column {wanted!r}; its columns are {', '.join(names)}.{hint}")


def choose_metadata(schema: pa.Schema, wanted: Sequence[str] | None, used: str, shown: str) -> list[str]:
    """The metadata columns: those that are wanted, or all but the used one, binary columns and vectors."""
    if wanted is not None:
        for name in wanted:
            require_column(schema.names, name, "source.metadata_columns", shown)
        return [name for name in wanted if name != used]
    return [
        field.name for field in schema if field.name != used and not is_bytes(field.type) and not is_vector(field.type)
    ]


def container_failure(error: BaseException) -> Payload:
    """The payload for rows of a file that cannot be read: broken content is told apart from failing storage.

    Arrow raises OSError without an errno for broken pages, and ArrowException for the rest.
    """
    stored = isinstance(error, OSError) and (error.errno is not None or type(error) is not OSError)
    if stored or not isinstance(error, OSError | pa.ArrowException | ValueError | KeyError):
        return failure(error)
    return Payload(None, Reason.BAD_CONTAINER, describe(error))
