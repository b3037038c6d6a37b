"""Parquet files with the encoded images in a column."""

from __future__ import annotations

import logging
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from curation.reasons import Reason
from curation.records import Locator, Payload, record_id
from curation.sources.base import Source, SourceError, Unit
from curation.sources.containers import Containers
from curation.sources.failures import TooManyBytesError, failure, with_retries
from curation.sources.leaves import field_name, is_bytes, leaf
from curation.sources.metadata import normalise
from curation.sources.redact import describe
from curation.sources.storage import StorageConfig
from curation.sources.tables import PARQUET_SUFFIXES, ParquetReader, container_failure, problem_row, require_column
from curation.sources.tables_metadata import Columns, TableMetadata, check_columns

log = logging.getLogger(__name__)


class ParquetConfig(StorageConfig):
    """Parquet files with image bytes: a folder (recursive), one file, a glob or a range in braces."""

    kind: Literal["parquet"] = "parquet"
    image_column: str = Field(
        "image", description="column with the encoded bytes: binary, or a struct with `bytes` (Hugging Face's layout)"
    )
    metadata_columns: tuple[str, ...] | None = Field(
        None,
        description="columns to carry along, whole; null for all others, without vectors of numbers and without binary "
        "values at any depth; columns that may say an opt-out (noai, robots, ...) always come along, whole",
    )


class BrokenFileError(Exception):
    """The content of a file cannot be read; trying again does not help."""


class ParquetSource(Source):
    """One unit per file, one input per row; `member` is the row's index in its file.

    A null image is missing, a zero-length one empty. A file that cannot be opened is one row with reason
    bad_container. Files of one pool may have different columns: the rows of one without the image column, or with
    another type there, get bad_container each. Damaged pages give bad_container for the rows from the damage to the
    end of the row group.

    Names that begin with `_` or `.` are the files of a table's own (`_delta_log`, `_metadata`, `_SUCCESS`, `.crc`)
    and ignored. Folders `name=value` (Hive partitions) are metadata of the rows below them, unless a column has that
    name. Metadata that Python cannot hold are kept as `curation.sources.arrow_values` says.

    Parquet has no byte address for a row: a row group is decoded from its start, 64 rows at a time, to the wanted row.
    Reads that go on where the last one ended continue there.
    """

    config: ParquetConfig

    def __init__(self, config: ParquetConfig) -> None:
        super().__init__(config)
        self.containers = Containers(config, PARQUET_SUFFIXES, "Parquet file", lake=True)
        self.metadata = TableMetadata(config.metadata_columns, config.image_column)
        self._cursor: _Cursor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cursor": None}

    def units(self) -> list[Unit]:
        """One unit per file. Some files are looked at, until every configured column was found.

        Raises:
            SourceError: nothing there, or a column is in none of them, or of another type.
        """
        units = self.containers.units()
        check_columns([unit.entries[0][0] for unit in units], self.metadata, self._columns)
        return units

    def _columns(self, uri: str) -> Columns:
        with ParquetReader(self.containers.files, uri) as reader:
            try:
                self._image_leaf(reader, uri)
            except SourceError as error:
                return Columns(reader.names, error=error)
            return Columns(reader.names, self.metadata.select(reader, uri).binary)

    def ignored(self) -> dict[str, int]:
        """Files beside the Parquet files, by extension."""
        return self.containers.ignored

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """One locator per row, in order. Reads the metadata columns only."""
        uri = unit.entries[0][0]
        try:
            reader = with_retries(lambda: ParquetReader(self.containers.files, uri))
        except Exception as error:  # noqa: BLE001 - told apart by container_failure
            payload = container_failure(error)
            yield problem_row(uri, None, payload.reason, payload.detail)
            return
        with reader:
            try:
                self._image_leaf(reader, uri)
            except SourceError as error:
                log.warning("%d rows are not read: %s", reader.num_rows, error)
                for row in range(reader.num_rows):
                    yield problem_row(uri, row, Reason.BAD_CONTAINER, str(error))
                return
            for row, metadata in enumerate(self._metadata(reader, uri)):
                yield Locator(record_id(uri, str(row)), uri, str(row), metadata=metadata)

    def read(self, locators: Sequence[Locator]) -> Iterator[Payload]:
        """The image column of the rows asked for."""
        for locator in locators:
            if locator.problem is not None:
                yield Payload(None, locator.problem, locator.problem_detail)
                continue
            try:
                yield with_retries(lambda: self._read_one(locator.uri, int(locator.member)))  # noqa: B023
            except BrokenFileError as error:
                yield Payload(None, Reason.BAD_CONTAINER, str(error))
            except Exception as error:  # noqa: BLE001 - one row's reason
                yield container_failure(error)

    def _read_one(self, uri: str, row: int) -> Payload:
        if self._cursor is None or self._cursor.uri != uri:
            self._close()
            try:
                reader = ParquetReader(self.containers.files, uri)
                self._cursor = _Cursor(uri, reader, self._image_leaf(reader, uri))
            except Exception as error:
                _raise_if_broken(error)
                raise
        try:
            value = self._cursor.value(row)
        except BrokenFileError:
            raise
        except Exception:
            self._close()
            raise
        if value is None:
            return Payload(None, Reason.MISSING, "the row's image is null, or the file has fewer rows than when listed")
        size = value.as_buffer().size
        if size > self.config.max_bytes:
            return failure(TooManyBytesError(f"{size} bytes, the cap is {self.config.max_bytes}"))
        return Payload(value.as_py()) if size else Payload(None, Reason.EMPTY, "the row's image has zero bytes")

    def _close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _image_leaf(self, reader: ParquetReader, shown: str) -> int:
        """The Parquet column with the bytes: the image column, or its field `bytes`."""
        column = self.config.image_column
        require_column(reader.names, column, "source.image_column", shown)
        kind = reader.field_type(column)
        path = (column, "bytes") if pa.types.is_struct(kind) else (column,)
        held = kind if len(path) == 1 else next((field.type for field in kind if field_name(field) == "bytes"), None)
        found = leaf(reader.schema, path)
        if held is not None and is_bytes(held) and found is not None:
            return found
        raise SourceError(
            f"{shown}: column {column!r} is {kind}; allowed are binary, or a struct with a binary field `bytes`. "
            "For a column of URLs use source.kind=urls."
        )

    def _metadata(self, reader: ParquetReader, uri: str) -> Iterator[str | None]:
        column = self.config.image_column
        selection = self.metadata.select(reader, uri)
        path = leaf(reader.schema, (column, "path"))
        chosen = selection.leaves if path is None else tuple(sorted((*selection.leaves, path)))
        partitions = self.metadata.partitions(uri)
        try:
            for values in reader.rows(chosen):
                image = values.pop(column, None)
                if isinstance(image, dict) and image.get("path"):
                    values.setdefault("path", image["path"])
                yield normalise({**partitions, **values})
        except Exception as error:
            raise SourceError(f"the file {uri} could not be read: {describe(error)}") from error


def _raise_if_broken(error: Exception) -> None:
    if isinstance(error, SourceError):
        raise BrokenFileError(str(error)) from error
    payload = container_failure(error)
    if payload.reason is Reason.BAD_CONTAINER:
        raise BrokenFileError(payload.detail) from error


class _Cursor:
    """Reads one column forward; holds one batch of rows. The file is closed with it, also when nobody calls `close`."""

    def __init__(self, uri: str, reader: ParquetReader, column: int) -> None:
        self.uri = uri
        self.reader = reader
        self.column = column
        self._group = -1
        self._batches: Iterator[pa.Array] = iter(())
        self._batch: pa.Array | None = None
        self._start = 0
        self._broken: dict[int, tuple[int, str]] = {}
        self.close = weakref.finalize(self, reader.close)

    def value(self, row: int) -> pa.Scalar | None:
        """The value of a row of the file; None when it is null or there is no such row."""
        if not 0 <= row < self.reader.num_rows:
            return None
        group = bisect_right(self.reader.starts, row) - 1
        first_broken, message = self._broken.get(group, (self.reader.num_rows, ""))
        if row >= first_broken:
            raise BrokenFileError(message)
        if group != self._group or row < self._start:
            self._group, self._start, self._batch = group, self.reader.starts[group], None
            self._batches = self.reader.column_batches(group, self.column)
        while self._batch is None or row >= self._start + len(self._batch):
            if self._batch is not None:
                self._start += len(self._batch)
                self._batch = None
            try:
                self._batch = next(self._batches)
            except (StopIteration, OSError, pa.ArrowException) as error:
                self._group = -1
                ended = isinstance(error, StopIteration)
                if not ended and container_failure(error).reason is not Reason.BAD_CONTAINER:
                    raise  # the storage failed: to be tried again
                message = f"row group {group} ends at row {self._start}: {describe(error)}"
                self._broken[group] = (self._start, message)
                raise BrokenFileError(message) from error
        scalar = self._batch[row - self._start]
        return scalar if scalar.is_valid else None
