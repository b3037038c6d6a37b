"""Numbers of a training run as JSON that every reader takes.

JSON has no number for infinity or "not a number", and a diverging run is where they matter most. The rule: they are
written as the strings "nan", "inf" and "-inf", which Python's `float`, NumPy and pandas read back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plain(value: Any) -> Any:
    """A JSON-able copy: numbers of NumPy and 0-d tensors become Python's, non-finite ones become strings.

    Raises:
        TypeError: a value is of another kind.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if getattr(value, "ndim", None) and hasattr(value, "tolist"):
        return plain(value.tolist())
    if hasattr(value, "item"):
        return plain(value.item())
    raise TypeError(f"{value!r} is a {type(value).__name__}: give numbers, texts, lists, mappings, arrays or tensors")


def restored(value: Any) -> Any:
    """What `plain` was given: the strings "nan", "inf" and "-inf" become numbers again."""
    if isinstance(value, str):
        return _WORDS.get(value, value)
    if isinstance(value, dict):
        return {key: restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restored(item) for item in value]
    return value


def dump(value: Any, indent: int | None = None) -> bytes:
    """Strict JSON in UTF-8; on one line without `indent`."""
    separators = (",", ":") if indent is None else None
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent, separators=separators).encode()
