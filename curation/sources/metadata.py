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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from curation.rights import opt_outs_in_lines, opted_out
from curation.sources.lenient_json import DECODER, DamagedJsonError, loads
from curation.sources.redact import redact_url, redact_urls_in

MAX_METADATA_BYTES = 64 * 1024
"""Cap of one row's metadata, bytes of UTF-8; longer ones are cut and get `"metadata_truncated": true`."""

MAX_SIDECAR_BYTES = 1 << 20
"""Sidecar files longer than this are not read."""

MERGED_FIELDS = frozenset(("", "meta", "metadata", "info", "data", "attributes", "properties"))
"""Fields of sidecar names (`s.meta.json`) whose JSON object is the image's metadata itself."""

_CAPTION_FIELDS = frozenset(("caption", "captions", "text", "description", "prompt", "output", "outputs"))

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


SidecarContent = bytes | Mapping[str, Any] | None
"""The bytes of a sidecar, the values that they were reduced to, or None when they could not be read."""


def sidecar_values(*levels: Mapping[str, SidecarContent], rows: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Merge sidecar files (label -> content, None when it could not be read) into raw metadata values.

    A label is an extension, or a field and an extension (`meta.json`). Of several levels the first that has a key
    counts, then `rows` of tables; an opt-out counts wherever it is. A JSON object is merged, also one in a text file;
    under a field that says no more than "metadata" (`MERGED_FIELDS`) as well, under others (`seg.json`) it stays
    together. Other JSON is stored under its label. Everything else is text under its label, whole numbers (`cls`) as
    numbers; a line that says `noai: true` or the like is an opt-out. What cannot be parsed, or not whole, is named in
    `metadata_problem`, and opt-outs that are plainly written in it count (`curation.sources.lenient_json`).
    """
    values: dict[str, Any] = {}
    errors: list[str] = []
    for files in levels:
        level: dict[str, Any] = {}
        for label in sorted(files, key=lambda name: (name != "json", not name.endswith(".json"), name)):
            data = files[label]
            if data is None:
                errors.append(f"{label}: not readable, or longer than {MAX_SIDECAR_BYTES} bytes")
                continue
            try:
                found, problem = _sidecar(label, data)
            except DamagedJsonError as error:
                found, problem = error.opt_outs, str(error)
            _add(level, found)
            if problem is not None:
                errors.append(f"{label}: {problem}")
        _add(values, level)
    for row in rows:
        _add(values, row)
    if isinstance(values.get("caption"), str) and values.get("txt") == values["caption"].strip():
        del values["txt"]
    if errors:
        before = values.get("metadata_problem")
        values["metadata_problem"] = "; ".join([before, *errors] if isinstance(before, str) and before else errors)
    return values


def reduced(label: str, data: bytes) -> SidecarContent:
    """A sidecar of more than `MAX_METADATA_BYTES` as the values that are left of it under the cap; a small one as it
    is. What many images share is so read in full once."""
    if len(data) <= MAX_METADATA_BYTES:
        return data
    text = sidecar_metadata([{label: data}])
    values: dict[str, Any] = json.loads(text) if text else {}
    return values


def sidecar_metadata(
    levels: Sequence[Mapping[str, SidecarContent]], rows: Sequence[Mapping[str, Any]] = ()
) -> str | None:
    """`normalise` of `sidecar_values`. Whatever files hold, the image stays: what fails is named like an unreadable
    file."""
    try:
        return normalise(sidecar_values(*levels, rows=rows))
    except Exception:  # noqa: BLE001 - content of files
        return normalise(sidecar_values({label: None for level in levels for label in level} or {"table": None}))


def _add(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add what is new; an opt-out replaces a value that is none."""
    for key, value in more.items():
        old = values.get(key)
        if not _filled(old) or (old != value and opted_out({key: value}) and not opted_out({key: old})):
            values[key] = value


def _sidecar(label: str, data: bytes | Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """The values of a file, and what was wrong with it."""
    if isinstance(data, Mapping):
        return data, None
    field, _, extension = label.rpartition(".")
    if extension == "json":
        value, problem = loads(data)
        whole = isinstance(value, dict) and field in MERGED_FIELDS
        return (value if whole else {label: value}), problem
    text = data.decode("utf-8", "replace").strip("\ufeff \t\r\n")
    if text.startswith("{") and text.endswith("}"):
        try:
            value = DECODER.decode(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value, None
    name = "txt" if extension in ("txt", "text", "caption") and field in _CAPTION_FIELDS else label
    found: dict[str, Any] = {name: text}
    if text.removeprefix("-").isdecimal() and len(text) < 19 and name != "txt":
        found[name] = int(text)
    return {**found, **opt_outs_in_lines(text)}, None


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
        return redact_url(text) if _STARTS_AS_URL.match(text) else redact_urls_in(text)
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

    Opt-outs come first; of what has no place of its own the shortest stays. An opt-out inside of what is cut away
    becomes `noai`.
    """
    kept: dict[str, Any] = {"metadata_truncated": True}
    used = len(_dump({**kept, "noai": True}))
    short = {key: value[:_CUT_CHARS] if isinstance(value, str) else value for key, value in values.items()}
    sizes = {key: len(_dump({key: value}).encode()) for key, value in short.items()}

    def rank(key: str) -> tuple[bool, bool, int, str]:
        return not opted_out({key: short[key]}), key not in (*_PROMOTED, "metadata_problem"), sizes[key], key

    for key in sorted(short, key=rank):
        value, entry = short[key], sizes[key]
        if entry > 4 * _CUT_CHARS + 1024 or used + entry > MAX_METADATA_BYTES:
            continue
        kept[key] = value
        used += entry
    if not opted_out(kept) and opted_out(values):
        kept["noai"] = True
    return kept
