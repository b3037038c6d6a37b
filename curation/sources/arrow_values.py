"""Python values of Arrow arrays, also of what Python cannot hold. Nothing here raises because of a value.

A writer may put anything into a column: Latin-1 bytes into a string, the year 10000 into a date, a zone that no table
knows. Arrow reads all of it and refuses to make Python objects of it, a whole column at a time. Here such a value is
kept in the nearest form, and what happened is said beside it:

=============================== ====================================================================
not UTF-8                       text with U+FFFD in place of the bytes that are none
outside the years 1 to 9999     ISO 8601 text, in UTC where the column has a time zone
a time zone that is not known   ISO 8601 text in UTC
a duration or a time too large  the stored integer, in the column's unit
a name that is not UTF-8         text with U+FFFD in place of the bytes that are none
a field name twice in a struct  the second one as `name#2`
anything else                   null
=============================== ====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from curation.sources.leaves import field_name

PROBLEM = "metadata_problem"
"""Metadata key that says which values of a row are not as the source has them, or could not be read."""

_NAME_CHARS = 80
_NESTED = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def batch_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch as dictionaries; those with a value that Python cannot hold have the key `PROBLEM`.

    Of columns with one name the first counts.
    """
    columns: dict[str, tuple[list[Any], dict[int, str]]] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name not in columns:
            columns[name] = column_values(array)
    names = list(columns)
    rows = zip(*(values for values, _ in columns.values()), strict=True)
    damaged = any(problems for _, problems in columns.values())
    for number, values in enumerate(rows):
        row = dict(zip(names, values, strict=True))
        if damaged:
            add_problems(row, ((name, found[number]) for name, (_, found) in columns.items() if number in found))
        yield row


def add_problems(row: dict[str, Any], problems: Iterable[tuple[str, str]]) -> None:
    """Note (column, what happened) in a row; a problem that it has already stays."""
    texts = [f"{name[:_NAME_CHARS]}: {text}" for name, text in problems]
    if texts:
        before = row.get(PROBLEM)
        row[PROBLEM] = "; ".join([before, *texts] if isinstance(before, str) and before else texts)


def column_values(array: pa.Array) -> tuple[list[Any], dict[int, str]]:
    """The values of a column, and what happened to those that Python cannot hold, by position."""
    with suppress(Exception):  # codec, overflow, Arrow and value errors; one by one it becomes clear which
        return array.to_pylist(), {}
    values: list[Any] = []
    problems: dict[int, str] = {}
    for position in range(len(array)):
        found: dict[str, None] = {}
        try:
            values.append(_value(array[position], found))
        except Exception as error:  # noqa: BLE001 - a type that we do not know
            values.append(None)
            found[f"cannot be read ({type(error).__name__})"] = None
        if found:
            problems[position] = ", ".join(found)
    return values, problems


def _value(scalar: pa.Scalar, found: dict[str, None]) -> Any:
    try:
        return scalar.as_py()
    except Exception as error:  # noqa: BLE001 - see column_values
        kind = scalar.type
        if pa.types.is_struct(kind):
            return _struct(scalar, found)
        if pa.types.is_map(kind):  # pairs, as those that Python can hold
            return [(_value(item[0], found), _value(item[1], found)) for item in scalar.values]
        if any(test(kind) for test in _NESTED):
            return [_value(item, found) for item in scalar.values]
        if pa.types.is_dictionary(kind) or pa.types.is_union(kind) or isinstance(kind, pa.BaseExtensionType):
            return _value(scalar.value, found)
        return _kept(scalar, error, found)


def _struct(scalar: pa.StructScalar, found: dict[str, None]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    kind = scalar.type
    for position in range(kind.num_fields):
        name = field_name(kind.field(position))
        if name in values:
            found[f"the field {name[:_NAME_CHARS]!r} appears twice"] = None
        while name in values:
            name += "#2"
        values[name] = _value(scalar[position], found)
    return values


def _kept(scalar: pa.Scalar, error: Exception, found: dict[str, None]) -> Any:
    """The nearest form of one value."""
    kind = scalar.type
    if any(test(kind) for test in _TEXT):
        found["not UTF-8"] = None
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    if pa.types.is_date(kind):
        return _moment(scalar.value, "D" if pa.types.is_date32(kind) else "ms", found)
    if pa.types.is_timestamp(kind):
        text = _moment(scalar.value, kind.unit, found, kind.tz)
        return f"{text}+00:00" if kind.tz is not None and isinstance(text, str) else text
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        found[f"beyond what can be held, kept as the number of {kind.unit}"] = None
        return scalar.value
    found[f"cannot be read ({type(error).__name__})"] = None
    return None


def _moment(value: int, unit: str, found: dict[str, None], zone: str | None = None) -> str | int:
    if zone is not None and not _known(zone):
        found[f"the time zone {zone[:_NAME_CHARS]!r} is not known, kept in UTC"] = None
    else:
        found["outside the years 1 to 9999, kept as text"] = None
    moment = np.array(value, np.int64).view(f"datetime64[{unit}]")
    return value if np.isnat(moment) else str(moment)


def _known(zone: str) -> bool:
    try:
        pa.scalar(0, pa.timestamp("s", zone)).as_py()
    except Exception:  # noqa: BLE001 - whatever the tables of zones raise
        return False
    return True
