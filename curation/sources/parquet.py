"""Parquet files with the encoded images in a column."""

from __future__ import annotations

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
from curation.sources.metadata import normalise
from curation.sources.redact import describe
from curation.sources.storage import StorageConfig
from curation.sources.tables import (
    PARQUET_SUFFIXES,
    ParquetReader,
    choose_metadata,
    container_failure,
    is_bytes,
    require_column,
)


class ParquetConfig(StorageConfig):
    """Parquet files with image bytes: a folder (recursive), one file, a glob or a range in braces."""

    kind: Literal["parquet"] = "parquet"
    image_column: str = Field(
        "image", description="column with the encoded bytes: binary, or a struct with `bytes` (Hugging Face's layout)"
    )
    metadata_columns: tuple[str, ...] | None = Field(
        None, description="columns to carry along; null for all others but binary columns and vectors of numbers"
    )


class BrokenFileError(Exception):
    """The content of a file cannot be read; trying again does not help."""


class ParquetSource(Source):
    """One unit per file, one input per row; `member` is the row's index in its file.

    A null image is missing, a zero-length one empty. A file that cannot be opened, or that lacks the image column, is
    one row with reason bad_container; damaged pages give bad_container for the rows from the damage to the end of the
    row group.

    Parquet has no byte address for a row: a row group is decoded from its start, 64 rows at a time, to the wanted row.
    Reads that go on where the last one ended continue there.
    """

    config: ParquetConfig

    def __init__(self, config: ParquetConfig) -> None:
        super().__init__(config)
        self.containers = Containers(config, PARQUET_SUFFIXES, "Parquet file")
        self._cursor: _Cursor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cursor": None}

    def units(self) -> list[Unit]:
        """One unit per file. The columns are checked on the first file that opens.

        Raises:
            SourceError: nothing there, no such column, or a column of another type.
        """
        units = self.containers.units()
        for unit in units[:8]:
            name = unit.entries[0][0]
            try:
                reader = ParquetReader(self.containers.files, name)
            except Exception:  # noqa: BLE001, S112 - a broken file is accounted for by list_unit
                continue
            with reader:
                self._image_leaf(reader.schema, name)
                choose_metadata(reader.schema, self.config.metadata_columns, self.config.image_column, name)
            break
        return units

    def ignored(self) -> dict[str, int]:
        """Files beside the Parquet files, by extension."""
        return self.containers.ignored

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """One locator per row, in order. Reads the metadata columns only."""
        uri = unit.entries[0][0]
        try:
            reader = with_retries(lambda: ParquetReader(self.containers.files, uri))
        except Exception as error:  # noqa: BLE001 - told apart by container_failure
            yield _problem(uri, container_failure(error))
            return
        with reader:
            try:
                self._image_leaf(reader.schema, uri)
            except SourceError as error:
                yield _problem(uri, Payload(None, Reason.BAD_CONTAINER, str(error)))
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
                self._cursor = _Cursor(uri, reader, self._image_leaf(reader.schema, uri))
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

    def _image_leaf(self, schema: pa.Schema, shown: str) -> str:
        """The Parquet path of the bytes: the column, or its `bytes` field."""
        column = self.config.image_column
        require_column(schema.names, column, "source.image_column", shown)
        kind = schema.field(column).type
        if pa.types.is_struct(kind):
            names = [kind.field(i).name for i in range(kind.num_fields)]
            if "bytes" in names and is_bytes(kind.field("bytes").type):
                return f"{column}.bytes"
        elif is_bytes(kind):
            return column
        raise SourceError(
            f"{shown}: column {column!r} is {kind}; allowed are binary, or a struct with a binary field `bytes`. "
            "For a column of URLs use source.kind=urls."
        )

    def _metadata(self, reader: ParquetReader, uri: str) -> Iterator[str | None]:
        column = self.config.image_column
        wanted = self.config.metadata_columns
        if wanted is not None:  # files of one pool may differ; the first one was checked
            wanted = tuple(name for name in wanted if name in reader.schema.names)
        columns = choose_metadata(reader.schema, wanted, column, uri)
        kind = reader.schema.field(column).type
        if pa.types.is_struct(kind) and kind.get_field_index("path") >= 0:
            columns = [*columns, f"{column}.path"]
        done = 0
        error_text = None
        try:
            for values in reader.rows(columns):
                path = values.pop(column, None)
                if path is not None and path.get("path"):
                    values.setdefault("path", path["path"])
                yield normalise(values)
                done += 1
        except (OSError, pa.ArrowException) as error:
            if container_failure(error).reason is not Reason.BAD_CONTAINER:
                raise SourceError(f"the file {uri} could not be read: {describe(error)}") from error
            error_text = describe(error)
        for _ in range(done, reader.num_rows):
            yield normalise({"metadata_error": error_text})


def _problem(uri: str, payload: Payload) -> Locator:
    return Locator(record_id(uri, ""), uri, problem=payload.reason, problem_detail=payload.detail)


def _raise_if_broken(error: Exception) -> None:
    if isinstance(error, SourceError):
        raise BrokenFileError(str(error)) from error
    payload = container_failure(error)
    if payload.reason is Reason.BAD_CONTAINER:
        raise BrokenFileError(payload.detail) from error


class _Cursor:
    """Reads one column forward; holds one batch of rows. The file is closed with it, also when nobody calls `close`."""

    def __init__(self, uri: str, reader: ParquetReader, column: str) -> None:
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
