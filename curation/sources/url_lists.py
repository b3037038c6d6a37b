"""Lists of URLs: Parquet, CSV, TSV, JSON lines or a JSON array, or one URL a line; text also compressed with gzip."""

from __future__ import annotations

import gzip
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from curation.sources.base import SourceError
from curation.sources.csv_rows import csv_header, csv_rows
from curation.sources.filesystem import Files
from curation.sources.leaves import leaf
from curation.sources.tables import PARQUET_SUFFIXES, ParquetReader
from curation.sources.text_lists import UnreadableListError, clean_url, json_rows, lines, open_text, tsv_rows, url_rows

_TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")
_GZIP_SUFFIX = ".gz"
LIST_SUFFIXES = (*PARQUET_SUFFIXES, *_TEXT_SUFFIXES, *(f"{suffix}{_GZIP_SUFFIX}" for suffix in _TEXT_SUFFIXES))
"""What a folder is searched for. A single file may also be `.json` (an array of objects, or JSON lines)."""

SAMPLE_ROWS = 1000
"""JSON records whose keys are taken for the columns of the list; the column of URLs is looked for in all."""


def is_parquet(name: str) -> bool:
    """True for a list that is a Parquet file."""
    return name.lower().endswith(PARQUET_SUFFIXES)


def list_kind(name: str) -> str:
    """csv, tsv, json or txt.

    Raises:
        SourceError: the suffix is none of a list.
    """
    suffix = name.lower().removesuffix(_GZIP_SUFFIX).rpartition(".")[2]
    kind = {"csv": "csv", "tsv": "tsv", "txt": "txt", "jsonl": "json", "ndjson": "json", "json": "json"}.get(suffix)
    if kind is None:
        raise SourceError(
            f"{name} is no list that is known by its suffix. Allowed are {', '.join(LIST_SUFFIXES)} and .json."
        )
    return kind


def text_rows(files: Files, name: str, url_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, values) of each row of a text list. Blank lines are no rows; in a `.txt` a line is the URL.

    What was wrong with a line is said under the key `metadata_problem`.

    Raises:
        SourceError, UnreadableListError, OSError, EOFError, zlib.error: the list, or the rest of it, cannot be read.
    """
    kind = list_kind(name)
    with open_text(files, name) as text:
        if kind == "csv":
            yield from csv_rows(text, url_column)
        elif kind == "tsv":
            header = _first_line(text).split("\t")
            text.seek(0)
            yield from tsv_rows(text, header)
        elif kind == "txt":
            yield from url_rows(text, url_column)
        else:
            yield from json_rows(text)


def list_columns(files: Files, name: str, url_column: str) -> list[str] | None:
    """The columns of a list: its header, or the keys of its first records; None when it has no rows to tell.

    Raises:
        as text_rows and ParquetReader.
    """
    if is_parquet(name):
        with ParquetReader(files, name) as reader:
            return reader.names
    kind = list_kind(name)
    if kind == "txt":
        return [url_column]
    if kind == "json":
        keys: dict[str, None] = {}
        for count, (_, values) in enumerate(text_rows(files, name, url_column)):
            if count < SAMPLE_ROWS:
                keys.update(dict.fromkeys(values))
            elif url_column in keys:
                break
            elif url_column in values:  # the first may all be bad; a list is refused only when no record has a URL
                keys[url_column] = None
        return list(keys) if keys else None
    with open_text(files, name) as text:
        if kind == "csv":
            return csv_header(text, url_column) or None
        line = _first_line(text)
        return line.split("\t") if line else None


def _first_line(text: Any) -> str:
    """That is not blank; '' when there is none, or it is too long."""
    return next((line for _, line in lines(text) if line is None or line.strip()), None) or ""


class UrlColumn:
    """The URLs of a list by row index; holds one row group, or one text list, as an Arrow array."""

    def __init__(self, files: Files, column: str) -> None:
        self.files = files
        self.column = column
        self._held: tuple[str, int] | None = None
        self._values = pa.chunked_array([], pa.large_string())
        self._starts: dict[str, list[int]] = {}

    def lookup(self, name: str, rows: Sequence[int]) -> list[str | None]:
        """The URLs of some rows; None where there is none, or one that is not UTF-8.

        Raises:
            OSError, pa.ArrowException: the list cannot be read.
        """
        if not is_parquet(name):
            self._hold(name, 0)
            return [self._value(row) for row in rows]
        if name not in self._starts:
            with ParquetReader(self.files, name) as reader:
                self._starts = {name: reader.starts}
        starts = self._starts[name]
        urls: list[str | None] = []
        for row in rows:
            if not 0 <= row < starts[-1]:
                urls.append(None)
                continue
            group = bisect_right(starts, row) - 1
            self._hold(name, group)
            urls.append(self._value(row - starts[group]))
        return urls

    def _value(self, row: int) -> str | None:
        if not 0 <= row < len(self._values):
            return None
        try:
            return clean_url(self._values[row].as_py())
        except Exception:  # noqa: BLE001 - a value that Python cannot hold is no URL
            return None

    def _hold(self, name: str, group: int) -> None:
        if self._held == (name, group):
            return
        self._held = None
        if is_parquet(name):
            with ParquetReader(self.files, name) as reader:
                found = leaf(reader.schema, (self.column,))
                chunks = [] if found is None else list(reader.column_batches(group, found, batch_rows=1 << 16))
            self._values = pa.chunked_array(chunks) if chunks else pa.chunked_array([], pa.large_string())
        else:
            self._values = self._text_urls(name)
        self._held = name, group

    def _text_urls(self, name: str) -> pa.ChunkedArray:
        chunks: list[pa.Array] = []
        urls: list[str | None] = []
        count = 0
        try:
            for index, values in text_rows(self.files, name, self.column):
                urls.extend([None] * (index - count))
                urls.append(clean_url(values.get(self.column)))
                count = index + 1
                if len(urls) >= 1 << 16:
                    chunks.append(pa.array(urls, pa.large_string()))
                    urls = []
        except (UnreadableListError, gzip.BadGzipFile, EOFError, zlib.error):
            pass  # the listing has a row for what cannot be read; those before it are there
        chunks.append(pa.array(urls, pa.large_string()))
        return pa.chunked_array(chunks)
