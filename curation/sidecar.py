"""Metadata as a sample's JSON has them: with one type for each key in the whole corpus.

Hugging Face `datasets` takes the types of the first five samples for those of all and ends at the first other value.
Sources have no such rule: the same key is a number in one sidecar and text in the next. So the types of all kept rows
are found first, and each key is written in one that holds them all:

- integers and floats under one key, also in lists: floats;
- anything else that differs, a list that is empty in some rows, objects with different keys: text in every row, text
  as it is and all else as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

MAX_KEYS = 4096
"""Keys whose types are kept; with more of them in a corpus (ids as keys) every value is text."""

Type = Any
"""'bool', 'int', 'float', 'text', 'null', MIXED, [Type of the items], [] for no items, or {key: Type}."""

MIXED = "mixed"


def type_of(value: Any) -> Type:
    """The type of a value from JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, list):
        kinds = [type_of(item) for item in value]
        inner = reduce(combined, kinds) if kinds else None
        return MIXED if inner == MIXED else [] if inner is None else [inner]
    if isinstance(value, dict):
        fields = {key: type_of(item) for key, item in value.items()}
        return MIXED if MIXED in fields.values() else fields
    return "text"


def combined(first: Type, second: Type) -> Type:
    """The type that holds two; `MIXED` where only text does."""
    if first == second:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return "float" if {first, second} == {"int", "float"} else MIXED
    if isinstance(first, list) and isinstance(second, list) and first and second:
        inner = combined(first[0], second[0])
        return MIXED if inner == MIXED else [inner]
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        fields = {key: combined(first[key], second[key]) for key in first}
        return MIXED if MIXED in fields.values() else fields
    return MIXED


def metadata_types(rows: Iterable[Mapping[str, Any]]) -> dict[str, Type] | None:
    """The type of each key over some rows; None when there are more than `MAX_KEYS` keys."""
    return merged_types({key: type_of(value) for key, value in row.items()} for row in rows)


def merged_types(parts: Iterable[Mapping[str, Type] | None]) -> dict[str, Type] | None:
    """The types that hold those of all parts of a corpus; order does not matter."""
    types: dict[str, Type] = {}
    for part in parts:
        if part is None:
            return None
        for key, kind in part.items():
            types[key] = combined(types[key], kind) if key in types else kind
        if len(types) > MAX_KEYS:
            return None
    return types


def typed(metadata: Mapping[str, Any], types: Mapping[str, Type] | None) -> dict[str, Any]:
    """The metadata of a row in the types of the corpus (`metadata_types`); all text with None."""
    if types is None:
        return {key: _text(value) for key, value in metadata.items()}
    return {key: _as(value, types[key]) for key, value in metadata.items()}


def _as(value: Any, kind: Type) -> Any:
    if kind == MIXED:
        return _text(value)
    if kind == "float":
        return float(value)
    if isinstance(kind, list) and kind:
        return [_as(item, kind[0]) for item in value]
    if isinstance(kind, dict):
        return {key: _as(item, kind[key]) for key, item in value.items()}
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
