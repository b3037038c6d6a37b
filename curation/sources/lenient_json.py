"""JSON of strangers: what is wrong with a part of it does not cost the rest, and never an opt-out.

| wrong | what is read |
|---|---|
| bytes that are not UTF-8 | all of it, with U+FFFD in their place; told |
| an integer of any length | the integer; as text from `_MAX_DIGITS` digits on, which Python takes no number from |
| a key twice in an object | the last, or one that is an opt-out |
| text after the value (NUL bytes, a second object) | the value, and opt-outs in the text after it; told |
| otherwise damaged, nested too deep | the opt-outs that are plainly written in it; told |
"""

from __future__ import annotations

import json
import re
from typing import Any

from curation.rights import opt_outs_in_json, opted_out
from curation.sources.arrow_values import add_problems

_MAX_DIGITS = 640
_FILE_NAME = re.compile(r'"((?:\w{1,64}_)?file_name)"\s*:\s*("(?:[^"\\]|\\.){1,4096}")')


class DamagedJsonError(ValueError):
    """It is no JSON.

    Attributes:
        opt_outs: keys that plainly say an opt-out in the text, each with True.
        names: keys `file_name` or `*_file_name` and their texts, when there is an opt-out.
    """

    def __init__(self, text: str) -> None:
        super().__init__("not JSON")
        self.opt_outs = opt_outs_in_json(text)
        found = _FILE_NAME.finditer(text) if self.opt_outs else ()
        self.names = {match[1]: _text(match[2]) for match in found}


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < _MAX_DIGITS else digits


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        values.update(pair for pair in pairs if opted_out(dict([pair])))
    return values


DECODER = json.JSONDecoder(parse_int=_integer, object_pairs_hook=_object)
"""Of text that is UTF-8; raises ValueError and RecursionError as all decoders of JSON do."""


def loads(data: bytes) -> tuple[Any, str | None]:
    """The value, and what was wrong with it, if anything.

    Raises:
        DamagedJsonError: there is no value.
    """
    encoding = json.detect_encoding(data)
    problem = None
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
        problem = "not UTF-8" if encoding.startswith("utf-8") else f"not {encoding.upper()}"
    text = text.strip("\ufeff \t\r\n")
    try:
        value, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        raise DamagedJsonError(text) from None
    rest = text[end:].strip("\x00 \t\r\n")
    if end == len(text):
        return value, problem
    if not isinstance(value, dict):
        raise DamagedJsonError(text)
    value.update(opt_outs_in_json(rest))
    after = "text" if rest else "NUL bytes"
    return value, "; ".join(filter(None, (problem, f"{after} after the JSON object")))


def loads_row(data: bytes) -> dict[str, Any] | None:
    """A row of JSON lines that is found by its `file_name`; None for what is no object. Of a damaged one the name and
    the opt-out stay. What was wrong is said under `metadata_problem`."""
    try:
        row, problem = loads(data)
    except DamagedJsonError as error:
        row, problem = {**error.names, **error.opt_outs}, str(error)
    if not isinstance(row, dict) or not row:
        return None
    if problem is not None:
        add_problems(row, [("row", problem)])
    return row


def _text(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
