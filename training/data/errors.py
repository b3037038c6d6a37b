"""What goes wrong with data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from curation.reasons import Reason
from curation.sources.redact import REDACTED, describe, redact_url

_PARAMETER = re.compile(r"[?&;#][^=&;#]*=([^&;#]*)")
_USER_INFO = re.compile(r"://([^/?#]*)@")


class DataError(RuntimeError):
    """Data cannot be used or read. The message names the file, without credentials, and says what to do."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample that could not be made into views, and whose place another one took.

    Attributes:
        position: the place.
        index: row of the corpus.
        id: record id.
        shard: path or URL of the tar, without credentials.
        reason: why.
        detail: in words.
    """

    position: int
    index: int
    id: str
    shard: str
    reason: Reason
    detail: str


def explain(error: BaseException, url: str) -> str:
    """One short line about what went wrong with a path or URL, without the credentials that the URL holds.

    Storage libraries quote parts of the URL, without its scheme, so that `describe` alone does not know them.
    """
    given, safe = _PARAMETER.findall(url), _PARAMETER.findall(redact_url(url))
    secrets = [value for value, shown in zip(given, safe, strict=True) if value != shown] + _USER_INFO.findall(url)
    text = describe(error, 4000)
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text[:300]
