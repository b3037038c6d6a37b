"""One form for the metadata that comes with an image, whatever the source.

The result is a JSON object. `caption`, `licence` and `url` are found under these names, whichever of the usual
names they came under; all other keys stay as they are.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from curation.sources.redact import redact_text, redact_url

MAX_METADATA_BYTES = 64 * 1024
"""Cap of one row's metadata, bytes of UTF-8; longer ones are cut and get `"metadata_truncated": true`."""

MAX_SIDECAR_BYTES = 1 << 20
"""Sidecar files longer than this are not read."""

_PROMOTED: dict[str, tuple[str, ...]] = {
    "caption": ("caption", "text", "txt", "alt"),
    "licence": ("licence", "license"),
    "url": ("url",),
}
_CUT_CHARS = 4096
_INT64 = (-(2**63), 2**63 - 1)
_MAX_DEPTH = 16


def normalise(values: Mapping[str, Any]) -> str | None:
    """Turn raw values into the JSON text of `Locator.metadata`; None when nothing is left.

    The first non-empty of caption, text, txt, alt (any case) is stored as `caption`; of licence, license as `licence`;
    url as `url`. Nulls are left out. Bytes become text (base64 when not UTF-8), times ISO 8601, integers beyond 64
    bits text, NaN null; URLs lose their credentials. Keys are sorted, so that equal metadata has equal text.
    """
    plain = {str(key): _plain(value, 0) for key, value in values.items() if value is not None}
    clean = {_valid(key): value for key, value in plain.items() if value is not None}
    for target, names in _PROMOTED.items():
        _promote(clean, target, names)
    if not clean:
        return None
    text = _dump(clean)
    return text if len(text.encode()) <= MAX_METADATA_BYTES else _dump(_cut(clean))


def sidecar_values(files: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Merge sidecar files (extension -> content, None when it could not be read) into raw metadata values.

    A JSON object is merged, other JSON is stored under its extension. Everything else is text under its extension,
    whole numbers (`cls`) as numbers. What cannot be parsed is named in `metadata_problem`.
    """
    values: dict[str, Any] = {}
    errors: list[str] = []
    for extension in sorted(files, key=lambda name: (name != "json", name)):
        data = files[extension]
        if data is None:
            errors.append(f"{extension}: not readable, or longer than {MAX_SIDECAR_BYTES} bytes")
        elif extension.rpartition(".")[2] == "json":
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                errors.append(f"{extension}: not JSON")
                continue
            if extension == "json" and isinstance(value, dict):
                values = {**value, **values}
            else:
                values.setdefault(extension, value)
        else:
            text = data.decode("utf-8", "replace").strip("\ufeff \t\r\n")
            short_number = text.removeprefix("-").isdecimal() and len(text) < 19
            values.setdefault(extension, int(text) if short_number and extension != "txt" else text)
    if isinstance(values.get("caption"), str) and values.get("txt") == values["caption"].strip():
        del values["txt"]
    if errors:
        values["metadata_problem"] = "; ".join(errors)
    return values


def _promote(values: dict[str, Any], target: str, names: tuple[str, ...]) -> None:
    if _filled(values.get(target)):
        return
    for name in names:
        for key in sorted(values):
            if key.lower() == name and _filled(values[key]):
                values[target] = values.pop(key)
                return


def _filled(value: Any) -> bool:
    return value is not None and value not in ("", [], {})


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _valid(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can smuggle in and Arrow refuses."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not text.isascii() else text


_STARTS_AS_URL = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # Beyond 64 bits neither Arrow nor what is built on it takes a number.
        return value if _INT64[0] <= value <= _INT64[1] else _digits(value)
    if isinstance(value, str):
        text = _valid(value)
        if "://" not in text:
            return text
        return redact_url(text) if _STARTS_AS_URL.match(text) else redact_text(text)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return _plain(data.decode(), depth)
        except UnicodeDecodeError:
            return base64.b64encode(data).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if depth >= _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {_valid(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return _valid(str(value))


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python makes no decimal text of more than 4300 digits
        return hex(value)


def _cut(values: dict[str, Any]) -> dict[str, Any]:
    """Shorten long strings, leave out long structures, and then whole keys until the cap is met.

    Of what has no place of its own the shortest stays: opt-outs and flags are short.
    """
    kept: dict[str, Any] = {"metadata_truncated": True}
    used = len(_dump(kept))
    short = {key: value[:_CUT_CHARS] if isinstance(value, str) else value for key, value in values.items()}
    sizes = {key: len(_dump({key: value}).encode()) for key, value in short.items()}
    for key in sorted(short, key=lambda name: (name not in (*_PROMOTED, "metadata_problem"), sizes[name], name)):
        value, entry = short[key], sizes[key]
        if entry > 4 * _CUT_CHARS + 1024 or used + entry > MAX_METADATA_BYTES:
            continue
        kept[key] = value
        used += entry
    return kept
