"""Licences in the metadata that came with an image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_CC_URL = re.compile(r"creativecommons\.org/(?:licenses|publicdomain)/([a-z+-]+)(?:/(\d\.\d))?")
_CC_TEXT = re.compile(
    r"^(?:cc|creative commons)?[\s_-]*(by(?:[\s_-]+(?:nc|nd|sa))*)(?:[\s_-]+v?(\d(?:\.\d)?))?(?:[\s_-].*)?$"
)
_CC0 = re.compile(r"^(?:cc[\s_-]*0|cc[\s_-]*zero|creative commons zero)\b")
_TOKEN = re.compile(r"^[a-z0-9][a-z0-9.+-]{0,63}$")
_WORDS = (
    ("attribution", "by"),
    ("noncommercial", "nc"),
    ("non-commercial", "nc"),
    ("noderivatives", "nd"),
    ("noderivs", "nd"),
    ("no-derivatives", "nd"),
    ("sharealike", "sa"),
    ("share-alike", "sa"),
)
_UNSTATED = {"", "none", "null", "n/a", "na", "unknown", "unspecified", "-", "?"}


def normalised_licence(text: Any) -> str | None:
    """A licence as an SPDX identifier in lower case, where it is recognised.

    Creative Commons names and URLs become `cc-by-4.0`, `cc-by-nc-sa-2.0`, `cc0-1.0`, `pdm-1.0`; without a version the
    version is left out (`cc-by`). Other short names pass in lower case with hyphens (`mit`, `unsplash`). Anything else,
    and no value, is None: unknown.
    """
    if not isinstance(text, str):
        return None
    value = text.strip().lower()
    if value in _UNSTATED:
        return None
    url = _CC_URL.search(value)
    if url:
        kind, version = url.groups()
        if kind == "zero":
            return "cc0-1.0"
        if kind in ("mark", "publicdomain"):
            return "pdm-1.0"
        return f"cc-{kind}-{version}" if version else f"cc-{kind}"
    if value.startswith(("http://", "https://")):
        return None
    if _CC0.match(value):
        return "cc0-1.0"
    for word, short in _WORDS:
        value = value.replace(word, short)
    if "public domain" in value or value in ("pdm", "publicdomain"):
        return "pdm-1.0"
    match = _CC_TEXT.match(value)
    if match:
        parts, version = match.groups()
        kind = "-".join(re.split(r"[\s_-]+", parts))
        full = f"{version}.0" if version and "." not in version else version
        return f"cc-{kind}-{full}" if full else f"cc-{kind}"
    token = re.sub(r"[\s_]+", "-", value)
    return token if _TOKEN.match(token) else None


def first_value(metadata: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """The value of the first key that the metadata has with something in it (case and `-`/`_` do not matter)."""
    by_key = {_key(key): value for key, value in metadata.items() if value not in (None, "")}
    return next((by_key[_key(key)] for key in keys if _key(key) in by_key), None)


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")
