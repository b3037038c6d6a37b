"""What counts as a publisher's opt-out from data mining and training, wherever it is said.

| said | counts |
|---|---|
| metadata `noai`, `noimageai`, `noml`, `opt_out`, ... that is true, 1, "yes"; in objects below as well | yes |
| `robots`, `X-Robots-Tag` (metadata or HTTP header) with `noai`, `noimageai` or `noml` | yes |
| `tdm-reservation: 1` (metadata or HTTP header), `tdm:reservation` in XMP | yes; 0, and a `tdm-policy` alone, do not |
| `plus:DataMining` (IPTC and PLUS; metadata or XMP) `DMI-PROHIBITED` and every value that starts so: \
`-AIMLTRAINING`, `-GENAIMLTRAINING`, `-EXCEPTSEARCHENGINEINDEXING`, `-SEECONSTRAINT`, ... | yes: a \
prohibition with exceptions or conditions is one |
| `DMI-ALLOWED`, `DMI-UNSPECIFIED`, nothing | no |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

OPT_OUT_KEYS = (
    "noai", "noimageai", "noml", "opt_out", "optout", "opted_out", "robots", "x_robots_tag", "tdm_reservation",
    "data_mining", "datamining", "plus_datamining", "xmp_plus_datamining",
)  # fmt: skip
"""Keys of metadata that may say it; case, and which of `-`, `_`, `:`, `.` and blanks they have, do not matter."""

DIRECTIVES = frozenset(("noai", "noimageai", "noml"))

_TRUE = {"1", "true", "yes", "y", "on"}
_PROHIBITED = re.compile(r"(?:^|[^a-z])dmi[-_]prohibited|^prohibited\b")
_MAX_DEPTH = 4


def opted_out(metadata: Mapping[str, Any], keys: Sequence[str] = OPT_OUT_KEYS) -> bool:
    """True when one of the keys, at the top or in objects below, says that the publisher opted out.

    A key counts when its value is true, 1 or "true"/"yes"; a list of directives or a text with one of `DIRECTIVES`
    among its words, as in X-Robots-Tag; or a PLUS value that prohibits.
    """
    return _any_says_no(metadata, _keys(tuple(keys)), 0)


def prohibits(embedded: str | None) -> bool:
    """True when what an image says of itself (`curation.codecs.rights.data_mining`) is an opt-out."""
    return embedded is not None and not embedded.startswith(("DMI-ALLOWED", "DMI-UNSPECIFIED"))


@lru_cache(64)
def _keys(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_key, names))


def _any_says_no(value: Any, wanted: frozenset[str], depth: int) -> bool:
    if isinstance(value, Mapping):
        if any(_key(str(key)) in wanted and _says_no(item) for key, item in value.items()):
            return True
        inner = [item for item in value.values() if isinstance(item, (Mapping, list, tuple))]
    else:
        inner = [item for item in value if isinstance(item, Mapping)]
    return depth < _MAX_DEPTH and any(_any_says_no(item, wanted, depth + 1) for item in inner)


def _says_no(value: Any) -> bool:
    if isinstance(value, (bool, int, float)):
        return value == 1
    if isinstance(value, (list, tuple)):
        return any(_says_no(item) for item in value if isinstance(item, str))
    if not isinstance(value, str):
        return False
    text = value.strip().lower()
    return text in _TRUE or bool(DIRECTIVES & set(re.split(r"[^a-z]+", text))) or _PROHIBITED.search(text) is not None


@lru_cache(1024)
def _key(name: str) -> str:
    return re.sub(r"[-:.\s]+", "_", name.strip().lower())
