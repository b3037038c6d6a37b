"""Lists of URLs: Parquet, CSV, JSON lines, or one URL a line."""

from __future__ import annotations

import csv
import io
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from curation.sources.filesystem import Files
from curation.sources.tables import PARQUET_SUFFIXES, ParquetReader

LIST_SUFFIXES = (*PARQUET_SUFFIXES, ".csv", ".tsv", ".jsonl", ".ndjson", ".txt")


def is_parquet(name: str) -> bool:
    """True for a list that is a Parquet file."""
    return name.lower().endswith(PARQUET_SUFFIXES)


def text_rows(files: Files, name: str, url_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, values) of each row of a text list. Blank lines are no rows; in a `.txt` a line is the URL.

    A line that cannot be parsed is a row with the key `metadata_error` only.
    """
    suffix = name.lower().rpartition(".")[2]
    with files.open(name) as raw, io.TextIOWrapper(raw, "utf-8-sig", errors="replace", newline="") as text:
        if suffix in ("csv", "tsv"):
            yield from _csv_rows(text, "\t" if suffix == "tsv" else ",")
            return
        for index, line in enumerate(text):
            line = line.strip()
            if not line:
                continue
            if suffix == "txt":
                yield index, {url_column: line}
                continue
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                values = None
            yield index, values if isinstance(values, dict) else {"metadata_error": "not a JSON object"}


def _csv_rows(text: io.TextIOWrapper, delimiter: str) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = csv.reader(text, delimiter=delimiter)
    header = next(rows, [])
    index = 0
    while True:
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield index, {"metadata_error": f"not CSV: {error}"}
        else:
            if not values:
                continue
            yield index, dict(zip(header, values, strict=False))
        index += 1


class UrlColumn:
    """The URLs of a list by row index; holds one row group, or one text list, as an Arrow array."""

    def __init__(self, files: Files, column: str) -> None:
        self.files = files
        self.column = column
        self._held: tuple[str, int] | None = None
        self._values = pa.array([], pa.string())
        self._starts: dict[str, list[int]] = {}

    def lookup(self, name: str, rows: Sequence[int]) -> list[str | None]:
        """The URLs of some rows; None where there is none.

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
        value = self._values[row].as_py()
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        return value if isinstance(value, str) else None

    def _hold(self, name: str, group: int) -> None:
        if self._held == (name, group):
            return
        self._held = None
        if is_parquet(name):
            with ParquetReader(self.files, name) as reader:
                chunks = list(reader.column_batches(group, self.column, batch_rows=1 << 16))
            self._values = pa.chunked_array(chunks) if chunks else pa.array([], pa.string())
        else:
            found: list[str | None] = []
            for index, values in text_rows(self.files, name, self.column):
                found.extend([None] * (index - len(found)))
                url = values.get(self.column)
                found.append(url.encode("utf-8", "replace").decode() if isinstance(url, str) else None)
            self._values = pa.array(found, pa.large_string())
        self._held = name, group
