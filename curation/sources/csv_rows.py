r"""Rows of CSV as RFC 4180 has it, within bounds, so that one stray quote costs one row and not all that follow.

A field that begins with a quote ends at the next single quote, and may hold delimiters, doubled quotes and line breaks.
It is taken for a stray quote, and its line for a row in which the quote is a character like others, when

- no quote ends it within `MAX_FIELD_LINES` lines and `MAX_FIELD_CHARS` characters, or before the end of the list;
- the quote that ends it on a later line is followed by neither a delimiter nor the end of the line;
- a line inside it is a row by itself: what stands in the key column (`Keys`) looks like a key and, unless that is the
  only column, a delimiter is beside it;
- its own line is such a row with as many fields as the header, and the key comes after the quote;
- it is a URL, and has text on more than one line.

Then the following lines are rows of their own, and the row says so, with its line number, under `metadata_problem`.
So a quoted caption in which a line begins with a URL and a comma is cut; one in which a URL is alone on its line is
not, and the row says under `metadata_problem` that it holds such a line.
Blank lines, also before the header, are no rows.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TextIO, TypeVar

from curation.sources.arrow_values import add_problems
from curation.sources.names import IMAGE_EXTENSIONS
from curation.sources.text_lists import checked, fields_of, lines, too_long

MAX_FIELD_LINES = 256
MAX_FIELD_CHARS = 64 * 1024

STRAY = "a quote begins a field here and none ends it; taken for a character"
DOUBTFUL = "a quoted field holds a line that may be a row; taken for text of this one"

P = TypeVar("P")

_FILE = rf"[^\s,]*\.(?:{'|'.join(IMAGE_EXTENSIONS)})"
_URL = re.compile(
    rf"[a-z][a-z0-9+.-]*://|//\S|{_FILE}(?:[?#]\S*)?$|[\w-]+(?:\.[\w-]+)*\.[a-z]{{2,}}/\S+$", re.IGNORECASE
)


class Keys(NamedTuple):
    """What tells the rows of a list from the lines of a quoted field."""

    is_column: Callable[[str], bool]
    """True for the name of a column that holds keys; the first such counts."""
    looks_like: Callable[[str, str | None], bool]
    """(text, key of the row that the quote is in, if it comes before the quote) -> whether the text is such a key."""
    one_line: bool
    """True when keys never span lines."""


class Record(NamedTuple, Generic[P]):
    """One record of a list."""

    places: list[P]
    """Of its lines."""
    fields: list[str]
    text: str | None
    """None for a line that was too long."""
    problem: str | None


def csv_rows(text: TextIO, url_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, values) of each row after the header. Blank lines are no rows."""
    records = Records(lines(text), _url_keys(url_column))
    for index, record in enumerate(records):
        if record.text is None:
            yield index, too_long()
            continue
        number = record.places[0] + 1
        values = checked(fields_of(records.header, record.fields, number), record.text)
        if record.problem:
            add_problems(values, [(f"line {number}", record.problem)])
        yield index, values


def csv_header(text: TextIO, url_column: str) -> list[str]:
    """The names of the columns; none for an empty list."""
    return Records(lines(text), _url_keys(url_column)).header


def stray_fields(text: str) -> tuple[list[str], int | None]:
    """The fields of the text of a `Record`, and which of them begins with a stray quote, if one does."""
    fields, opened = _split(text)
    if opened is None:
        return fields, None
    return [*fields, *text[opened:].split(",")], len(fields)


def _url_keys(column: str) -> Keys:
    return Keys(lambda name: name == column, lambda text, _: _URL.match(text.strip()) is not None, True)


class Records(Generic[P]):
    """The records after the header; holds at most the lines of one quoted field.

    Args:
        source: (place, text without its end, or None when it is too long) of each line.
        keys: how rows are told.
    """

    def __init__(self, source: Iterator[tuple[P, str | None]], keys: Keys) -> None:
        self.header: list[str] = []
        self._source = source
        self._keys = keys
        self._key: int | None = None
        self._waiting: deque[tuple[P, str | None]] = deque()
        first = next(self, None)
        if first is not None:
            self._head(first.fields)

    def _head(self, header: list[str]) -> None:
        self.header = header
        self._key = next((n for n, name in enumerate(header) if self._keys.is_column(name)), None)

    def __iter__(self) -> Iterator[Record[P]]:
        return self

    def __next__(self) -> Record[P]:
        while True:
            place, line = self._waiting.popleft() if self._waiting else next(self._source)
            if line is None:
                return Record([place], [], None, None)
            if line and (self.header or not line.isspace()):
                break
        if '"' not in line:
            return Record([place], line.split(","), line, None)
        fields, opened = _split(line)
        if opened is None:
            return Record([place], fields, line, None)
        if not self.header:  # what it is if its quote is stray, so that the rows after it are told from its lines
            self._head(stray_fields(line)[0])
        joined = self._join(line, fields)
        if joined is not None:
            places, text, doubtful = joined
            return Record([place, *places], _split(text)[0], text, DOUBTFUL if doubtful else None)
        return Record([place], stray_fields(line)[0], line, STRAY)

    def _join(self, line: str, before: list[str]) -> tuple[list[P], str, bool] | None:
        """The other lines of the record that begins with a line in which a quoted field stays open after some fields,
        its text, and whether one of them may be a row; None when that quote is stray, and then nothing was taken."""
        own = before[self._key] if self._key is not None and self._key < len(before) else None
        if own is None and self._is_whole_row(line, len(before)):
            return None
        taken: list[tuple[P, str | None]] = []
        text = line
        doubtful = False
        while len(taken) < MAX_FIELD_LINES and len(text) <= MAX_FIELD_CHARS:
            item = self._waiting.popleft() if self._waiting else next(self._source, None)
            if item is None:
                break
            taken.append(item)
            following = item[1]
            if following is None:
                break
            end = _closing(following, 0)
            inside = following if end < 0 else following[:end]
            if self._is_row(inside, own):
                break
            if self._key is not None and len(before) != self._key:
                doubtful = doubtful or self._keys.looks_like(inside, own)
            text = f"{text}\n{following}"
            if end < 0:
                continue
            if following[end + 1 : end + 2] not in ("", ","):
                break
            fields, opened = _split(text)
            if opened is None:
                if self._keys.one_line and self._key is not None and "\n" in "".join(fields[self._key :][:1]).strip():
                    break
                return [place for place, _ in taken], text, doubtful
        self._waiting.extendleft(reversed(taken))
        return None

    def _is_row(self, line: str, own: str | None) -> bool:
        if self._key is None:
            return False
        fields = line.split(",")
        beside = len(fields) > 1 or len(self.header) == 1
        return beside and self._key < len(fields) and self._keys.looks_like(fields[self._key], own)

    def _is_whole_row(self, line: str, opened: int) -> bool:
        """Whether a line whose field number `opened` stays open is a row when its quote is a character."""
        if self._key is None or self._key <= opened:
            return False
        fields = stray_fields(line)[0]
        key = fields[self._key] if len(fields) == len(self.header) else " "
        return not key[:1].isspace() and self._keys.looks_like(key, None)


def _closing(text: str, start: int) -> int:
    """Place of the next quote that is not doubled, or -1."""
    while (place := text.find('"', start)) >= 0 and text[place + 1 : place + 2] == '"':
        start = place + 2
    return place


def _split(text: str) -> tuple[list[str], int | None]:
    """The fields of a record; or those before a quoted field that does not end, and where that one begins.

    Text between a closing quote and the next delimiter belongs to the field, as the `csv` module has it.
    """
    fields: list[str] = []
    start = 0
    while True:
        begin, end = start, text.find(",", start)
        field = ""
        if text[start : start + 1] == '"':
            close = _closing(text, start + 1)
            if close < 0:
                return fields, start
            field = text[start + 1 : close].replace('""', '"')
            begin, end = close + 1, text.find(",", close + 1)
        fields.append(field + (text[begin:] if end < 0 else text[begin:end]))
        if end < 0:
            return fields, None
        start = end + 1
