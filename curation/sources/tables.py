"""Rows of Parquet files: their columns, their metadata, and one column read forward by row."""

from __future__ import annotations

import difflib
import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.reasons import Reason
from curation.records import Locator, Payload, record_id
from curation.sources import leaves
from curation.sources.arrow_values import add_problems, batch_rows, column_values
from curation.sources.base import SourceError
from curation.sources.failures import failure
from curation.sources.filesystem import Files
from curation.sources.redact import describe, redact_text

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
METADATA_BATCH = 1024
METADATA_BATCH_BYTES = 16 << 20
"""Metadata are read this many rows, or about this many bytes, at a time, whichever is less."""

COLUMN_BATCH = 64
BUFFER_BYTES = 1 << 20
CHECKED_FILES = 32
"""Files of a source whose columns are looked at, at most, before a column is said to be nowhere."""

_SHOWN_CHARS = 1000
_BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)


class _ParquetFile(pq.ParquetFile):
    def _build_nested_paths(self) -> dict[str, list[int]]:
        """None: columns are read by ordinal here, and a name that is not UTF-8 would cost the file."""
        return {}


class ParquetReader:
    """An open Parquet file. Reads one row group at a time, single-threaded (workers share the machine)."""

    def __init__(self, files: Files, name: str) -> None:
        self._file: IO[bytes] = files.open(name)
        try:
            self.parquet = _ParquetFile(self._file, buffer_size=BUFFER_BYTES, pre_buffer=False)
            self.schema: pa.Schema = self.parquet.schema_arrow
            self.names: list[str] = leaves.field_names(self.schema)
            self._named = not any("\ufffd" in name for name in self.names)
            if leaves.count(self.schema) != self.parquet.metadata.num_columns:
                raise pa.ArrowInvalid("the Arrow schema of the file does not fit its Parquet columns")
        except BaseException:
            self._file.close()
            raise
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

    def field_type(self, column: str) -> pa.DataType:
        """The type of a column, of the first where several have the name."""
        return self.schema.field(self.names.index(column)).type

    def rows(self, chosen: Sequence[int]) -> Iterator[dict[str, Any]]:
        """All rows of some Parquet columns (`curation.sources.leaves`) as dictionaries, in order.

        A damaged page costs its column the rest of the row group, and the rows say so under `metadata_problem`.

        Raises:
            OSError: the storage failed.
        """
        for group in range(self.parquet.num_row_groups):
            count, done = self.starts[group + 1] - self.starts[group], 0
            if not chosen:
                yield from ({} for _ in range(count))
                continue
            try:
                for batch in self._batches(group, chosen):
                    yield from batch_rows(batch)
                    done += len(batch)
            except Exception as error:  # noqa: BLE001 - told apart by container_failure
                raise_if_stored(error)
            if done < count:
                yield from self._salvaged(group, chosen, done, count)

    def _salvaged(self, group: int, chosen: Sequence[int], start: int, stop: int) -> Iterator[dict[str, Any]]:
        """Rows [start, stop) of a row group, each column by itself as far as it can be read."""
        owned: dict[str, list[int]] = {}
        for ordinal in chosen:
            owned.setdefault(self._top(ordinal), []).append(ordinal)
        columns = {name: self._column(group, ordinals, start, stop) for name, ordinals in owned.items()}
        for values in zip(*columns.values(), strict=True):
            row = {name: value for name, (value, _) in zip(columns, values, strict=True)}
            add_problems(row, ((name, text) for name, (_, text) in zip(columns, values, strict=True) if text))
            yield row

    def _top(self, ordinal: int) -> str:
        """The column that a Parquet column belongs to."""
        seen = 0
        for field in self.schema:
            seen += leaves.count(pa.schema([field]))
            if ordinal < seen:
                return leaves.field_name(field)
        raise IndexError(ordinal)

    def _column(self, group: int, ordinals: Sequence[int], start: int, stop: int) -> Iterator[tuple[Any, str | None]]:
        row, text = 0, "cannot be read"
        try:
            for batch in self._batches(group, ordinals):
                if row + len(batch) > start:
                    values, problems = column_values(batch.column(0))
                    for position in range(max(start - row, 0), len(batch)):
                        yield values[position], problems.get(position)
                row += len(batch)
        except Exception as error:  # noqa: BLE001 - told apart by container_failure
            raise_if_stored(error)
            text = f"cannot be read ({describe(error, 100)})"
        for _ in range(max(row, start), stop):
            yield None, text

    def _batches(self, group: int, ordinals: Sequence[int], batch_rows: int = 0) -> Iterator[pa.RecordBatch]:
        if not batch_rows:
            facts = self.parquet.metadata.row_group(group)
            size = sum(facts.column(ordinal).total_uncompressed_size for ordinal in ordinals)
            batch_rows = min(max(METADATA_BATCH_BYTES * facts.num_rows // max(size, 1), 1), METADATA_BATCH)
        # By ordinal: names with dots, and names that appear twice, name more than one column.
        for batch in self.parquet.reader.iter_batches(
            batch_rows, row_groups=[group], column_indices=list(ordinals), use_threads=False
        ):
            # Not even its values are given out of a column whose name is not UTF-8.
            yield batch if self._named else batch.rename_columns(leaves.field_names(batch.schema))

    def column_batches(self, group: int, ordinal: int, batch_rows: int = COLUMN_BATCH) -> Iterator[pa.Array]:
        """One Parquet column of one row group, a few rows at a time."""
        for batch in self._batches(group, [ordinal], batch_rows):
            array = batch.column(0)
            while pa.types.is_struct(array.type):
                array = array.flatten()[0]
            yield array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def require_column(names: Sequence[str], wanted: str, option: str, shown: str) -> None:
    """Raise a `SourceError` that names the columns present and the nearest one."""
    if wanted in names:
        return
    folded = {name.lower(): name for name in names}
    near = folded.get(wanted.lower()) or next(iter(difflib.get_close_matches(wanted, names, 1, 0.5)), None)
    hint = f" Did you mean {near!r}? Set {option}={near}." if near else f" Set {option} to one of them."
    # A list without a header has a URL there, and any list any bytes.
    present = redact_text(", ".join(names)).encode("utf-8", "replace").decode()
    if len(present) > _SHOWN_CHARS:
        present = f"{present[:_SHOWN_CHARS]}... ({len(names)} columns)"
    raise SourceError(f"{shown} has no column {wanted!r}; its columns are {present}.{hint}")


def sampled(count: int) -> list[int]:
    """Positions of the files whose columns are looked at: all, or `CHECKED_FILES` of them, evenly spread."""
    if count <= CHECKED_FILES:
        return list(range(count))
    return sorted({position * (count - 1) // (CHECKED_FILES - 1) for position in range(CHECKED_FILES)})


def container_failure(error: BaseException) -> Payload:
    """The payload for rows of a file that cannot be read: broken content is told apart from failing storage.

    Arrow raises OSError without an errno for broken pages, and ArrowException for the rest; a compressed list raises
    EOFError and zlib.error.
    """
    stored = isinstance(error, OSError) and (error.errno is not None or type(error) not in (OSError, *_BROKEN))
    if stored or not isinstance(
        error, (OSError, pa.ArrowException, ValueError, LookupError, ArithmeticError, TypeError, *_BROKEN)
    ):
        return failure(error)
    return Payload(None, Reason.BAD_CONTAINER, describe(error))


def raise_if_stored(error: Exception) -> None:
    """Raise the error again unless it comes from what the file holds."""
    if container_failure(error).reason is not Reason.BAD_CONTAINER:
        raise error


def problem_row(uri: str, row: int | None, reason: Reason | None, detail: str | None) -> Locator:
    """The input of a row that cannot be read, or, with None, of a whole file whose rows are not known."""
    member = "" if row is None else str(row)
    text = detail and detail.encode("utf-8", "replace").decode()
    return Locator(record_id(uri, member), uri, member, problem=reason, problem_detail=text)
