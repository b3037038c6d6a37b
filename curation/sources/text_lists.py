"""The lines of a text list, whatever its encoding and compression, and its rows: TSV, JSON lines, a JSON array, URLs.

Every line that is not blank is a row (CSV: `curation.sources.csv_rows`), also one that cannot be parsed, which has only
the key `metadata_problem`. Bounds: a line has at most `MAX_LINE_CHARS`; a longer one is a row without values.

Encodings: UTF-8, with or without a byte order mark, and UTF-16 or UTF-32 with one. Bytes that are not UTF-8 become
U+FFFD, and the row says so. A list that is compressed with gzip is read whatever its name; other compressions are
refused by their name.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, TextIO, cast

from curation.sources.arrow_values import PROBLEM, add_problems
from curation.sources.filesystem import Files
from curation.sources.lenient_json import DECODER

MAX_LINE_CHARS = 8 << 20
_BLOCK_CHARS = 64 << 10

_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"BZh": "a bzip2 file", b"\xfd7zXZ\x00": "an xz file", b"\x28\xb5\x2f\xfd": "a zstd file",
    b"PK\x03\x04": "a zip file (or a spreadsheet)", b"PAR1": "a Parquet file",
}  # fmt: skip
_NOT_TEXT = re.compile("[\ud800-\udfff]")
_ARRAY = re.compile(r"\s*\[\s*[{\]]")
_SPACE = re.compile(r"[\s,]*")


class UnreadableListError(ValueError):
    """The list, or the rest of it, cannot be read. The message says why."""


@contextmanager
def open_text(files: Files, name: str) -> Iterator[TextIO]:
    """A list as text; bytes that are not UTF-8 are lone surrogates in it.

    Raises:
        UnreadableListError: what it is instead of a text list.
        OSError: it cannot be read.
    """
    with files.open(name) as raw:
        head = raw.read(8)
        raw.seek(0)
        if head.startswith(_GZIP):
            with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                head = unpacked.read(8)
                unpacked.seek(0)
                with _decoded(cast(IO[bytes], unpacked), head) as text:
                    yield text
            return
        with _decoded(raw, head) as text:
            yield text


def _decoded(raw: IO[bytes], head: bytes) -> io.TextIOWrapper:
    for magic, kind in _OTHERS.items():
        if head.startswith(magic):
            raise UnreadableListError(
                f"{kind} under the name of a text list. Decompress it first, or give it its own suffix; text lists may "
                "be compressed with gzip."
            )
    encoding = next((name for mark, name in _ENCODINGS if head.startswith(mark)), "utf-8")
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    return io.TextIOWrapper(raw, encoding, errors=errors, newline="")


def lines(text: TextIO) -> Iterator[tuple[int, str | None]]:
    """(number from 0, the line without its end) of every line; None for one that is too long."""
    number = 0
    while line := text.readline(MAX_LINE_CHARS + 2):
        content = line.rstrip("\r\n")
        whole = len(content) <= MAX_LINE_CHARS
        rest = line
        while not whole and rest and rest[-1] not in "\r\n":
            rest = text.readline(_BLOCK_CHARS)
        yield number, content if whole else None
        number += 1


def too_long() -> dict[str, Any]:
    """The values of a line above the bound."""
    return {PROBLEM: f"the line has more than {MAX_LINE_CHARS} characters and was not read"}


def checked(values: dict[str, Any], line: str) -> dict[str, Any]:
    """The values of a line; says which were not UTF-8."""
    if not line.isascii() and _NOT_TEXT.search(line):
        names = [name for name, value in values.items() if isinstance(value, str) and _NOT_TEXT.search(value)]
        add_problems(values, ((_NOT_TEXT.sub("\ufffd", name), "not UTF-8") for name in names or ["line"]))
    return values


def clean_url(value: Any) -> str | None:
    """A URL as text, or None for what is none: another type, or bytes that are not UTF-8."""
    try:
        text = value.decode() if isinstance(value, bytes) else value
        text.encode()
    except (UnicodeError, AttributeError):
        return None
    return cast(str, text)


def tsv_rows(text: TextIO, header: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, values): one row a line after the first that is not blank, which is the header. TSV has no quoting: a
    quote is a character like others."""
    index = 0
    numbered = lines(text)
    next((line for _, line in numbered if line is None or line.strip()), None)
    for number, line in numbered:
        if line == "":
            continue
        yield index, too_long() if line is None else checked(fields_of(header, line.split("\t"), number + 1), line)
        index += 1


def fields_of(header: list[str], fields: list[str], line_number: int) -> dict[str, Any]:
    """The fields of a line under the names of the header; those beyond it are told and left out."""
    values: dict[str, Any] = dict(zip(header, fields, strict=False))
    if len(fields) > len(header):
        add_problems(
            values, [(f"line {line_number}", f"{len(fields)} fields where the header has {len(header)} columns")]
        )
    return values


def url_rows(text: TextIO, url_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 0, values): one URL a line."""
    for number, line in lines(text):
        if line is None:
            yield number, too_long()
        elif stripped := line.strip():
            yield number, checked({url_column: stripped}, line)


def json_rows(text: TextIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, values) of JSON lines (index: line number from 0), or of an array of objects (index: place in it), after
    which lines may follow.

    Raises:
        UnreadableListError: an element of an array is no JSON, so that where the next one begins is not known.
    """
    head = text.read(_BLOCK_CHARS)
    text.seek(0)
    index, after = 0, 0
    if _ARRAY.match(head.lstrip("\ufeff")):
        for place, values, line_count in _array_rows(text):
            index, after = place, line_count
            if values is not None:
                yield index, values
        text.seek(0)
    for number, line in islice(lines(text), after, None):
        at = index + number - after
        if line is None:
            yield at, too_long()
        elif stripped := line.strip():
            yield at, _record(stripped)


def _record(line: str) -> dict[str, Any]:
    try:
        values = DECODER.decode(line)
    except (ValueError, RecursionError):
        values = None
    return checked(values, line) if isinstance(values, dict) else {PROBLEM: "not a JSON object"}


def _array_rows(text: TextIO) -> Iterator[tuple[int, dict[str, Any] | None, int]]:
    """(index, values, lines up to here) element by element; last, without values, what comes after the array. Holds
    one element and a block of text."""
    decode = DECODER.raw_decode
    held = text.read(_BLOCK_CHARS)
    start, index, passed, ended = held.index("[") + 1, 0, 0, False
    while True:
        start = cast(re.Match[str], _SPACE.match(held, start)).end()
        if held[start : start + 1] == "]":
            rest = held[start + 1 :].partition("\n")[0] if "\n" in held[start:] else held[start + 1 :] + text.readline()
            if rest.strip():
                yield index, {PROBLEM: "not a JSON object"}, passed
                index += 1
            yield index, None, passed + held.count("\n", 0, start) + 1
            return
        try:
            value, end = decode(held, start)
            whole = end < len(held) or ended  # a number may go on
        except (ValueError, RecursionError):
            whole = False
            end = start
        if whole:
            values = checked(value, held[start:end]) if isinstance(value, dict) else {PROBLEM: "not a JSON object"}
            yield index, values, passed
            index, start = index + 1, end
            continue
        if ended or len(held) - start > MAX_LINE_CHARS:
            raise UnreadableListError(f"element {index} of the JSON array is damaged or cut; the rest cannot be found")
        more = text.read(max(_BLOCK_CHARS, len(held) - start))
        ended = not more
        passed += held.count("\n", 0, start)
        held, start = held[start:] + more, 0
