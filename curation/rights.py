"""What counts as a publisher's opt-out from data mining and training, wherever it is said.

| said | counts |
|---|---|
| metadata `noai`, `noimageai`, `noml`, `opt_out`, ... that is true, 1, "1.0", "yes"; in objects below as well, in \
JSON within a text, and in pairs of a name and a value (`["X-Robots-Tag", "noai"]`, `{"name": ..., "value": ...}`), as \
headers and maps are stored | yes |
| `robots`, `X-Robots-Tag` (metadata or HTTP header) with `noai`, `noimageai` or `noml` | yes |
| `tdm-reservation: 1` (metadata or HTTP header), `tdm:reservation` in XMP | yes; 0, and a `tdm-policy` alone, do not |
| `plus:DataMining` (IPTC and PLUS; metadata or XMP) `DMI-PROHIBITED` and every value that starts so: \
`-AIMLTRAINING`, `-GENAIMLTRAINING`, `-EXCEPTSEARCHENGINEINDEXING`, `-SEECONSTRAINT`, ... | yes: a \
prohibition with exceptions or conditions is one |
| `DMI-ALLOWED`, `DMI-UNSPECIFIED`, nothing | no |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

OPT_OUT_KEYS = (
    "noai", "noimageai", "noml", "opt_out", "optout", "opted_out", "robots", "x_robots_tag", "tdm_reservation",
    "data_mining", "datamining", "plus_datamining", "xmp_plus_datamining",
)  # fmt: skip
"""Keys of metadata that may say it; case does not matter, nor whether and where they have `-`, `_`, `:`, `.` and
blanks (`no_ai`, `tdmReservation`)."""

DIRECTIVES = frozenset(("noai", "noimageai", "noml"))

_TRUE = re.compile(r"\+?1(?:\.0*)?|true|t|yes|y|on")
_SEPARATORS = re.compile(r"[-_:.\s]+")
_NAMES = ("name", "key", "header", "property")
_VALUES = ("value", "content")
_WRITTEN = re.compile(
    r"""["']([^"'\\]{2,40})\\?["']\s*:\s*"""
    r"""(?:\\?["']([^"'\\]{1,4096})|\[([^\[\]{}]{1,4096})|([^\s,{}\[\]"'\\]{1,32}))"""
)
_LINE = re.compile(r"(?<![^\r\n])[ \t]*([\w:.-]{2,40})[ \t]*[:=][ \t]*(\S[^\r\n]{0,4095})")
_PROHIBITED = re.compile(r"(?:^|[^a-z])dmi[-_]prohibited|^prohibited\b")
_MAX_DEPTH = 4


def opted_out(metadata: Mapping[str, Any], keys: Sequence[str] = OPT_OUT_KEYS) -> bool:
    """True when one of the keys, at the top or in objects below, says that the publisher opted out.

    A key counts when its value is true, 1 or "true"/"yes"; a list of directives or a text with one of `DIRECTIVES`
    among its words, as in X-Robots-Tag; or a PLUS value that prohibits. A pair of such a key and its value in a list,
    and JSON in a text, count as well.
    """
    return _any_says_no(metadata, _keys(tuple(keys)), 0)


def is_opt_out_key(name: str) -> bool:
    """True for a name that is one of `OPT_OUT_KEYS`, however it is spelled."""
    return _key(name) in _keys(OPT_OUT_KEYS)


def opt_outs_in_json(text: str) -> dict[str, bool]:
    """The keys, in small letters, that say it in a text that was meant to be JSON and is damaged, each with True."""
    found: dict[str, bool] = {}
    for match in _WRITTEN.finditer(text):
        quoted, items, bare = match[2], match[3], match[4]
        value = quoted or bare or re.split(r"[\s,\"']+", items)
        if opted_out({match[1]: value}):
            found[match[1].strip().lower()] = True
    return found


def opt_outs_in_lines(text: str) -> dict[str, bool]:
    """The keys, in small letters, of the lines `key: value` or `key = value` that say it, each with True."""
    lines = _LINE.finditer(text) if ":" in text or "=" in text else ()
    return {line[1].lower(): True for line in lines if opted_out({line[1]: line[2]})}


def prohibits(embedded: str | None) -> bool:
    """True when what an image says of itself (`curation.codecs.rights.data_mining`) is an opt-out."""
    return embedded is not None and not embedded.startswith(("DMI-ALLOWED", "DMI-UNSPECIFIED"))


@lru_cache(64)
def _keys(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_key, names))


def _any_says_no(value: Any, wanted: frozenset[str], depth: int) -> bool:
    inner: list[Any]
    if isinstance(value, str):
        return _json_says_no(value, wanted, depth)
    if isinstance(value, Mapping):
        if any(_key(str(key)) in wanted and _says_no(item, depth) for key, item in value.items()):
            return True
        if any(name in value for name in _VALUES) and _pair_says_no(value, wanted, depth):
            return True
        inner = list(value.values())
    else:
        inner = list(value)
        if any(isinstance(item, (list, tuple)) and _is_no(item, wanted, depth) for item in inner):
            return True
    return depth < _MAX_DEPTH and any(
        _any_says_no(item, wanted, depth + 1)
        for item in inner
        if isinstance(item, (Mapping, list, tuple)) or (isinstance(item, str) and item.lstrip()[:1] in ("{", "["))
    )


def _is_no(pair: Sequence[Any], wanted: frozenset[str], depth: int) -> bool:
    """Whether a list is a key and a value that says it."""
    return len(pair) == 2 and isinstance(pair[0], str) and _key(pair[0]) in wanted and _says_no(pair[1], depth)


def _pair_says_no(value: Mapping[str, Any], wanted: frozenset[str], depth: int) -> bool:
    """Whether an object is such a pair, as in HAR (`name`, `value`) and meta tags (`name`, `content`)."""
    names = [value[name] for name in _NAMES if name in value]
    return any(_is_no((name, value[key]), wanted, depth) for name in names for key in _VALUES if key in value)


def _json_says_no(text: str, wanted: frozenset[str], depth: int) -> bool:
    """JSON that is the value of a key, as in the cells of CSV."""
    try:
        value = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return any(_key(key) in wanted for key in opt_outs_in_json(text))
    return isinstance(value, (Mapping, list)) and _any_says_no(value, wanted, depth)


def _integer(digits: str) -> int:
    """An integer of JSON as far as it matters here: Python refuses those of more than 4300 digits."""
    return int(digits[:2])


def _says_no(value: Any, depth: int) -> bool:
    if isinstance(value, (bool, int, float)):
        return value == 1
    if isinstance(value, (list, tuple)):
        return depth < _MAX_DEPTH and any(_says_no(item, depth + 1) for item in value)
    if not isinstance(value, str):
        return False
    text = value.strip(" \t\r\n\"'").lower()
    return (
        _TRUE.fullmatch(text) is not None
        or bool(DIRECTIVES & set(re.split(r"[^a-z]+", text)))
        or _PROHIBITED.search(text) is not None
    )


@lru_cache(1024)
def _key(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())
