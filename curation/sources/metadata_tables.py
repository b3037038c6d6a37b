"""`metadata.jsonl` and `metadata.csv`: the rows of many images in one file, found by `file_name` without holding it.

The file is read through once, and 20 bytes a row are kept: a hash of the name, and where the row is. Rows are then
read where they are needed, neighbours together. So a file of ten million rows takes 200 MB in a process that lists,
however long its rows are, and about a minute, once.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from curation.sources.filesystem import Files
from curation.sources.lenient_json import loads_row
from curation.sources.names import escape_name
from curation.sources.redact import describe
from curation.sources.sidecars import table_folders

MAX_ROW_BYTES = 256 << 10
"""Longer rows are left out."""

_BLOCK_BYTES = 4 << 20
_MAX_GAP_BYTES = 64 << 10
_MAX_QUOTED_LINES = 100
_MAX_REPEATS = 16

_CLOSED = re.compile(rb'(^|,)"(?:[^"]|"")*"')
_OPENED = re.compile(rb'(?:^|,)"')

log = logging.getLogger(__name__)

_MAX_CACHED = 16
_tables: dict[tuple[str, str, str], MetadataTable] = {}

ReadRange = Callable[[int, int], bytes]
"""(offset, size) -> bytes of the file from there; fewer at its end."""


class MetadataTable:
    """One such file. Rows that are not JSON objects, not CSV, too long, or without a name are left out, and their
    number is logged.

    Args:
        name: for messages; its end says which of the two it is.
        size: bytes.
        read: reads a range of it.

    Raises:
        OSError: it could not be read.
    """

    def __init__(self, name: str, size: int, read: ReadRange) -> None:
        self._read = read
        self._columns: list[str] | None = None
        is_csv = name.lower().endswith(".csv")
        hashes, offsets, sizes = array("Q"), array("Q"), array("L")
        bad = 0
        for offset, record in _quoted(_lines(size, read)) if is_csv else _lines(size, read):
            if is_csv and self._columns is None:
                self._columns = _fields(record.removeprefix(b"\xef\xbb\xbf")) or []
                continue
            row = self._parse(record)
            names = _names(row) if row is not None else []
            bad += not names and (not record or not record.isspace())
            for item in names:
                hashes.append(_hash(item))
                offsets.append(offset)
                sizes.append(len(record))
        if bad:
            log.warning("%s: %d rows have no file_name, or cannot be read; they say nothing of any image", name, bad)
        order = np.argsort(np.asarray(hashes, np.uint64), kind="stable")
        self._hashes = np.asarray(hashes, np.uint64)[order]
        self._offsets = np.asarray(offsets, np.uint64)[order]
        self._sizes = np.asarray(sizes, np.uint32)[order]

    def __len__(self) -> int:
        return len(self._hashes)

    def rows(self, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The rows of these files, in the table's order; files without any are absent.

        Args:
            names: escaped, relative to the table's folder. At most a few hundred: their rows are held.
        """
        wanted: list[tuple[int, int, str]] = []
        for name in set(names):
            first = int(np.searchsorted(self._hashes, np.uint64(_hash(name)), "left"))
            last = int(np.searchsorted(self._hashes, np.uint64(_hash(name)), "right"))
            chosen = slice(first, min(last, first + _MAX_REPEATS))
            places = zip(self._offsets[chosen].tolist(), self._sizes[chosen].tolist(), strict=True)
            wanted += [(offset, size, name) for offset, size in places]
        wanted.sort()
        found: dict[str, list[dict[str, Any]]] = {}
        for run in _runs(wanted):
            start = run[0][0]
            data = self._read(start, run[-1][0] + run[-1][1] - start)
            for offset, size, name in run:
                row = self._parse(data[offset - start : offset - start + size])
                if row is not None and name in _names(row):
                    found.setdefault(name, []).append({key: row[key] for key in row if not _is_name(key)})
        return found

    def _parse(self, record: bytes) -> dict[str, Any] | None:
        if not record.strip():
            return None
        if self._columns is None:
            return loads_row(record)
        fields = _fields(record)
        if fields is None:
            return None
        return {name: value for name, value in zip(self._columns, fields, strict=False) if name and value != ""}


def rows_of(names: Sequence[str], tables: Mapping[str, Sequence[MetadataTable]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of some files in all tables that may name them: the nearest folder's first.

    Args:
        names: escaped, relative to the root. At most a few hundred.
        tables: by folder, '' for the root.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    if not tables:
        return found
    inside: dict[str, list[str]] = {}
    for name in names:
        for folder in table_folders(plain_name(name)):
            if folder in tables:
                inside.setdefault(folder, []).append(name)
    for folder in sorted(inside, key=lambda folder: (-folder.count("/") - bool(folder), folder)):
        skip = len(folder) + 1 if folder else 0
        relative = {name: plain_name(name)[skip:] for name in inside[folder]}
        for table in tables[folder]:
            try:
                rows = table.rows(list(relative.values()))
            except Exception as error:  # noqa: BLE001 - the images stay
                log.warning("a table of metadata cannot be read any more: %s", describe(error))
                continue
            for name, short in relative.items():
                found.setdefault(name, []).extend(rows.get(short, ()))
    return found


def cached_table(files: Files, name: str) -> MetadataTable:
    """The table of that name. A process that lists many units of a folder reads it through once.

    Raises:
        OSError: it could not be read.
    """
    key = files.root, name, files.version(name)
    table = _tables.pop(key, None)
    if table is None:
        table = MetadataTable(name, files.size(name), partial(files.read_range, name))
        while len(_tables) >= _MAX_CACHED:
            del _tables[next(iter(_tables))]
    _tables[key] = table
    return table


def _is_name(key: str) -> bool:
    return key == "file_name" or key.endswith("_file_name")


def _names(row: Mapping[str, Any]) -> list[str]:
    """The files that a row is about, escaped."""
    values = [value for key, value in row.items() if _is_name(key)]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [plain_name(escape_name(item)) for item in flat if isinstance(item, str) and item]


def plain_name(name: str) -> str:
    """Without `./` in front."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _fields(record: bytes) -> list[str] | None:
    try:
        return next(csv.reader([record.decode("utf-8", "replace").rstrip("\r\n")], strict=False), [])
    except csv.Error:
        return None


def _lines(size: int, read: ReadRange) -> Iterator[tuple[int, bytes]]:
    """(offset, line with its end); nothing for a line of more than `MAX_ROW_BYTES`."""
    rest, start, skipping = b"", 0, False
    for position in range(0, size, _BLOCK_BYTES):
        data = rest + read(position, min(_BLOCK_BYTES, size - position))
        begin = 0
        while (end := data.find(b"\n", begin) + 1) > 0:
            fits = not skipping and end - begin <= MAX_ROW_BYTES
            yield start + begin, data[begin:end] if fits else b""
            skipping = False
            begin = end
        rest, start = data[begin:], start + begin
        if len(rest) > MAX_ROW_BYTES:
            rest, start, skipping = b"", start + len(rest), True
    if rest or skipping:
        yield start, b"" if skipping else rest


def _quoted(lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Lines joined where a quoted field runs on. A quote that is not closed within 100 lines is taken to end with its
    line."""
    waiting: deque[tuple[int, bytes]] = deque()
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        offset, first = line
        inside, size, used = _is_open(first, False), len(first), 0
        while inside and used < _MAX_QUOTED_LINES and size <= MAX_ROW_BYTES:
            if used == len(waiting):
                line = next(lines, None)
                if line is None:
                    break
                waiting.append(line)
            inside = _is_open(waiting[used][1], True)
            size += len(waiting[used][1])
            used += 1
        rest = [] if inside else [waiting.popleft()[1] for _ in range(used)]
        yield offset, b"".join([first, *rest])


def _is_open(line: bytes, inside: bool) -> bool:
    """Whether a line ends inside a quoted field, having begun inside one or not."""
    if inside:
        line = line.replace(b'""', b"")
        end = line.find(b'"')
        if end < 0:
            return True
        comma = line.find(b",", end)
        line = line[comma:] if comma >= 0 else b""
    return _OPENED.search(_CLOSED.sub(rb"\1", line)) is not None


def _runs(wanted: Sequence[tuple[int, int, str]]) -> Iterator[list[tuple[int, int, str]]]:
    """Neighbours that are read together."""
    run: list[tuple[int, int, str]] = []
    for item in wanted:
        if run and (item[0] - run[-1][0] - run[-1][1] > _MAX_GAP_BYTES or item[0] - run[0][0] > _BLOCK_BYTES):
            yield run
            run = []
        run.append(item)
    if run:
        yield run
