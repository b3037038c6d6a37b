r"""Rows of CSV as RFC 4180 has it, within bounds, so that one stray quote costs one row and not all that follow.

A field that begins with a quote ends at the next single quote, and may hold delimiters, doubled quotes and line breaks.
It is taken for a stray quote, and its line for a row in which the quote is a character like others, when

- no quote ends it within `MAX_FIELD_LINES` lines and `MAX_FIELD_CHARS` characters, or before the end of the list;
- the quote that ends it on a later line is followed by neither a delimiter nor the end of the line;
- a line inside it is a row by itself: as many fields as the header, with an http URL in the column of URLs.

Then the following lines are rows of their own, and the row says so, with its line number, under `metadata_problem`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, TextIO

from curation.sources.arrow_values import add_problems
from curation.sources.text_lists import checked, fields_of, lines, too_long

MAX_FIELD_LINES = 256
MAX_FIELD_CHARS = 64 * 1024

_Line = tuple[int, str | None]


def csv_rows(text: TextIO, url_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, values) of each row after the header. Blank lines are no rows."""
    reader = _Reader(lines(text), url_column)
    reader.header = reader.record()[1] if reader.more() else []
    index = 0
    while reader.more():
        number, fields, line, problem = reader.record_and_text()
        if line is None:
            yield index, too_long()
        elif line == "":
            continue
        else:
            values = checked(fields_of(reader.header, fields, number + 1), line)
            if problem:
                add_problems(values, [(f"line {number + 1}", problem)])
            yield index, values
        index += 1


def csv_header(text: TextIO) -> list[str]:
    """The names of the columns; none for an empty list."""
    reader = _Reader(lines(text), "")
    return reader.record()[1] if reader.more() else []


class _Reader:
    """Records of a list; holds at most the lines of one quoted field."""

    def __init__(self, source: Iterator[_Line], url_column: str) -> None:
        self.header: list[str] = []
        self._source = source
        self._url_column = url_column
        self._waiting: deque[_Line] = deque()

    def more(self) -> bool:
        """True while a line is left."""
        if not self._waiting:
            self._waiting.extend(line for _, line in zip(range(1), self._source, strict=False))
        return bool(self._waiting)

    def record(self) -> tuple[int, list[str]]:
        """Line number from 0, and fields."""
        number, fields, _, _ = self.record_and_text()
        return number, fields

    def record_and_text(self) -> tuple[int, list[str], str | None, str | None]:
        """Line number from 0, fields, the text (None when it was too long), and what was wrong."""
        number, line = self._waiting.popleft()
        if line is None:
            return number, [], None, None
        if '"' not in line:
            return number, line.split(","), line, None
        fields, opened = _split(line)
        if opened is None:
            return number, fields, line, None
        text = self._join(line)
        if text is not None:
            return number, _split(text)[0], text, None
        fields = [*fields, *line[opened:].split(",")]
        return number, fields, line, "a quote begins a field here and none ends it; taken for a character"

    def _join(self, line: str) -> str | None:
        """The record that begins with a line in which a quoted field stays open; None when that quote is stray, and
        then nothing was taken."""
        taken: list[_Line] = []
        text = line
        while len(taken) < MAX_FIELD_LINES and len(text) <= MAX_FIELD_CHARS and self.more():
            item = self._waiting.popleft()
            taken.append(item)
            following = item[1]
            if following is None:
                break
            end = _closing(following, 0)
            if self._is_row(following if end < 0 else following[:end]):
                break
            text = f"{text}\n{following}"
            if end < 0:
                continue
            if following[end + 1 : end + 2] not in ("", ","):
                break
            if _split(text)[1] is None:
                return text
        self._waiting.extendleft(reversed(taken))
        return None

    def _is_row(self, line: str) -> bool:
        if "://" not in line or len(self.header) < 2 or self._url_column not in self.header:
            return False
        fields = line.split(",")
        url = fields[self.header.index(self._url_column)] if len(fields) == len(self.header) else ""
        return url.lower().startswith(("http://", "https://"))


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
