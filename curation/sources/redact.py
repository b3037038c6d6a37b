"""Keeps credentials out of everything that is stored or printed."""

from __future__ import annotations

import re
from urllib.parse import unquote

REDACTED = "REDACTED"

SECRET_PARAMETERS = frozenset(
    [
        # Signed URLs: Amazon S3 (version 4 and 2), CloudFront, Google Cloud Storage, Azure SAS, Alibaba OSS, Akamai.
        "x-amz-signature", "x-amz-credential", "x-amz-security-token", "awsaccesskeyid", "signature", "key-pair-id",
        "policy", "x-goog-signature", "x-goog-credential", "googleaccessid", "sig", "ossaccesskeyid", "security-token",
        "x-oss-signature", "x-oss-credential", "x-oss-security-token", "hdnts", "hdnea", "__token__", "hmac",
        # Tokens and passwords under their usual names.
        "token", "access_token", "access-token", "accesstoken", "auth_token", "id_token", "refresh_token", "auth",
        "authorization", "jwt", "api_key", "api-key", "apikey", "secret", "client_secret", "password", "passwd", "pwd",
        "session", "sessionid", "session_id",
    ]
)  # fmt: skip
"""Query parameters, lower-case, whose values are replaced."""

_USER_INFO = re.compile(r"^(?P<scheme>\s*(?:[a-z][a-z0-9+.-]*:)?[/\\]{2,})[^/?#\\]*@", re.IGNORECASE)
_PARAMETER = re.compile(r"(?P<before>[?&;#])(?P<name>[^=&;#?]*)=(?P<value>[^&;#]*)")
_PARAMETER_IN_TEXT = re.compile(r"(?P<before>[?&;#])(?P<name>[^=&;#?\s'\"]*)=(?P<value>[^&;#\s'\"<>]*)")
_USER_INFO_IN_TEXT = re.compile(r"(?<![^\s'\"(\[=])[^\s/?#'\"<>@:()]+:[^\s/?#'\"<>@]+@(?=[\w\[.-])")
_URL_IN_TEXT = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)


def redact_url(url: str) -> str:
    """Remove `user:password@` and replace the values of signature and token parameters. Never raises.

    Works on text that is no valid URL too. A URL without secrets is returned unchanged.
    """

    return _PARAMETER.sub(_parameter, _USER_INFO.sub(lambda match: match["scheme"], url))


def _parameter(match: re.Match[str]) -> str:
    name = unquote(match["name"]).strip().lower()
    if name in SECRET_PARAMETERS or (name == "key" and match["value"].startswith("AIza")):  # Google API keys
        return f"{match['before']}{match['name']}={REDACTED}"
    return match[0]


def redact_text(text: str) -> str:
    """Apply `redact_url` to every URL inside a message, and to pieces of URLs.

    Storage libraries quote URLs without their scheme (`user:password@host/path?sig=...`).
    """
    text = _URL_IN_TEXT.sub(lambda match: redact_url(match[0]), text)
    return _PARAMETER_IN_TEXT.sub(_parameter, _USER_INFO_IN_TEXT.sub("", text))


def describe(error: BaseException, limit: int = 300) -> str:
    """One short line for a ledger: the error's type and text, without credentials or the machine's paths."""
    text = error.strerror if isinstance(error, OSError) and error.errno and error.strerror else str(error)
    line = redact_text(" ".join(f"{type(error).__name__}: {text}".split()))
    return line.encode("utf-8", "replace").decode()[:limit]
