"""`metadata.jsonl` and `metadata.csv`: the rows of many images in one file, found by `file_name` without holding it.

The file is read through once, and 20 bytes a row are kept: a hash of the name, and where the row is. Rows are then
read where they are needed, neighbours together. So a file of ten million rows takes 200 MB in a process that lists,
however long its rows are, and about a minute, once.

Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark; lines end in LF, CR LF, or CR. CSV is split as
`curation.sources.csv_rows` has it, with file names for keys, so that a stray quote costs its own row at most: it is
left out, and the image gets a `metadata_problem`. In names a backslash may stand for `/`, and a `/` or `./` in front
does not count.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from curation.sources.arrow_values import PROBLEM
from curation.sources.csv_rows import DOUBTFUL, Keys, Records, stray_fields
from curation.sources.filesystem import Files
from curation.sources.lenient_json import loads_row
from curation.sources.names import IMAGE_EXTENSIONS, escape_name, split_extension
from curation.sources.redact import describe
from curation.sources.sidecars import table_folders

MAX_ROW_BYTES = 256 << 10
"""Longer rows are left out."""

_BLOCK_BYTES = 4 << 20
_MAX_GAP_BYTES = 64 << 10
_MAX_REPEATS = 16

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_IMAGE = re.compile(rf"\.(?:{'|'.join(IMAGE_EXTENSIONS)})(?![a-z0-9/])", re.IGNORECASE)

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
        self._name = name
        head = read(0, min(size, 4))
        mark, self._encoding = next((item for item in _MARKS if head.startswith(item[0])), (b"", "utf-8"))
        lines = _lines(size, read, len(mark), self._encoding)
        self._columns: list[str] | None = None
        hashes, offsets, sizes = array("Q"), array("Q"), array("L")
        bad, stray, doubtful = 0, array("Q"), 0
        for offset, record, problem in self._csv(lines) if name.lower().endswith(".csv") else _unsplit(lines):
            row = self._parse(record)
            names = _names(row) if row is not None else []
            bad += not names and (not record or bool(self._text(record).strip()))
            if problem == DOUBTFUL:
                doubtful += 1
            elif problem:
                stray.append(offset)
            for item in names:
                hashes.append(_hash(item))
                offsets.append(offset)
                sizes.append(len(record))
        if bad:
            log.warning("%s: %d rows have no file_name, or cannot be read; they say nothing of any image", name, bad)
        if stray:
            log.warning(
                "%s: in %d rows a quote begins a field and none ends it (the first is at byte %d); each is taken for a "
                "row of its own",
                name, len(stray), stray[0],
            )  # fmt: skip
        if doubtful:
            log.warning("%s: in %d rows %s", name, doubtful, DOUBTFUL)
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

    def _csv(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, str | None]]:
        texts = ((line, self._text(line[1]) if line[1] else None) for line in lines)
        records = Records(texts, Keys(_is_name, _looks_like_name, one_line=False))
        self._columns = records.header
        for record in records:
            yield record.places[0][0], b"".join(data for _, data in record.places), record.problem

    def _text(self, record: bytes) -> str:
        """Without the end of its line; bytes that are not UTF-8 are lone surrogates, as in names of files."""
        errors = "surrogateescape" if self._encoding == "utf-8" else "replace"
        return record.decode(self._encoding, errors).rstrip("\r\n")

    def _parse(self, record: bytes) -> dict[str, Any] | None:
        if not record.strip():
            return None
        if self._columns is None and self._encoding != "utf-8":
            record = self._text(record).encode("utf-8", "replace")
        if self._columns is None:
            return loads_row(record)
        fields, stray = stray_fields(self._text(record))
        if stray is not None:
            fields[stray] = fields[stray][1:]
        row = {name: value for name, value in zip(self._columns, fields, strict=False) if name and value != ""}
        if stray is not None:
            row[PROBLEM] = f"{self._name.rpartition('/')[2]}: a quote begins a field and none ends it"
        return row


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
    """The names that the files that a row is about may have, escaped."""
    values = [value for key, value in row.items() if _is_name(key)]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    names: dict[str, None] = {}
    for item in flat:
        if not isinstance(item, str) or not item:
            continue
        names[plain_name(escape_name(item))] = None
        if "\\" in item or item[0] == "/":
            names[plain_name(escape_name(item.replace("\\", "/").lstrip("/")))] = None
    return [name for name in names if name]


def _looks_like_name(text: str, own: str | None) -> bool:
    """Whether text has the extension of an image, or of the name in its row; or a digit, if that name has one and no
    extension."""
    text = text.strip()
    if not text or (any(map(str.isspace, text)) and not (own and any(map(str.isspace, own.strip())))):
        return False
    if _IMAGE.search(text):
        return True
    if own is None:
        return False
    extension = split_extension(own.strip())[1]
    if extension:
        return split_extension(text)[1] == extension
    return any(map(str.isdigit, own)) and any(map(str.isdigit, text))


def plain_name(name: str) -> str:
    """Without `./` in front."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _unsplit(lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, None]]:
    return ((offset, line, None) for offset, line in lines)


def _lines(size: int, read: ReadRange, start: int, encoding: str) -> Iterator[tuple[int, bytes]]:
    """(offset, line with its end) from an offset on; nothing for a line of more than `MAX_ROW_BYTES`."""
    cr, lf = "\r".encode(encoding), "\n".encode(encoding)
    width = len(lf)
    ends = re.compile(b"|".join(map(re.escape, (cr + lf, cr, lf))))
    rest, skipping = b"", False
    for position in range(start, size, _BLOCK_BYTES):
        data = rest + read(position, min(_BLOCK_BYTES, size - position))
        begin = 0
        for match in ends.finditer(data):
            end = match.end()
            if match.start() % width:  # in the midst of two characters
                continue
            if end == len(data) and match[0] == cr and position + _BLOCK_BYTES < size:
                break  # a line feed may follow
            fits = not skipping and end - begin <= MAX_ROW_BYTES
            yield start + begin, data[begin:end] if fits else b""
            skipping = False
            begin = end
        rest, start = data[begin:], start + begin
        if len(rest) > MAX_ROW_BYTES:
            rest, start, skipping = rest[-width:], start + len(rest) - width, True
    if rest or skipping:
        yield start, b"" if skipping else rest


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
