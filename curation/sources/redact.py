"""Keeps credentials out of everything that is stored or printed.

What is stored of an image's own URL has to go on naming the image: `redact_url` takes user names, passwords and the
values of parameters that are secret by their name or by their look, and of a signed URL all but a few harmless ones
(the unknown ones belong to the signature). Messages and logs name nothing that has to be found again: `redact_text`
takes every value but those few, whatever its name, of whole URLs and of pieces of them.

The places that a run was configured with are known: what `remember_secrets` found in them is masked wherever a library
quotes it, in whatever piece.
"""

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

HARMLESS_PARAMETERS = frozenset(
    [
        "w", "h", "width", "height", "size", "s", "dpr", "q", "quality", "fm", "format", "fit", "crop", "auto", "page",
        "index", "zoom", "scale", "resize", "rotate", "lang", "id", "n", "v", "version",
    ]
)  # fmt: skip
"""Query parameters, lower-case, whose short values stay in signed URLs and in messages."""

_SECRET_NAME = re.compile(
    r"(?:^|[^a-z])sig(?:n|nature)?$|^x-(amz|goog|oss|ms|cos)-|token|secret|passw|credential|hmac|jwt|access.?key|api.?key|auth(?!or)"
)
_NAMES_AN_IMAGE = frozenset(
    ["id", "image", "img", "photo", "file", "filename", "name", "path", "url", "src", "uuid", "guid", "key", "hash",
     "md5", "sha1", "sha256", "digest", "etag"]
)  # fmt: skip
"""Parameters whose values may look like signatures, and tell images apart."""
_HEX_SIGNATURE = re.compile(r"[0-9a-fA-F]{32,}")
_TEXT_SIGNATURE = re.compile(r"(?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*\d)(?:[A-Za-z0-9+_~=-]|%2[BbFf]|%3[Dd]){20,}")
_SHORT = re.compile(r"[\w.,-]{0,8}", re.ASCII)

# The user name and password; a password may hold what it must not hold (`/`): the part behind the colon is no port.
_USER_INFO = re.compile(
    r"^(?P<scheme>\s*(?:[a-z][a-z0-9+.-]*:)?[/\\]{2,})(?:[^/?#\\]*@|[^/?#\\:@\[]*:(?!\d{0,5}[/\\])[^?#\\@]*(?:@[^/?#\\@]*)*@)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"(?P<before>[?&;#])(?P<name>[^=&;#?]*)=(?P<value>[^&;#]*)")
_PARAMETER_IN_TEXT = re.compile(r"(?P<before>[?&;#])(?P<name>[^=&;#?\s'\"]*)=(?P<value>[^&;#\s'\"<>]*)")
_BARE_QUERY = re.compile(r"(?P<before>\?)(?P<value>[^=&;#?\s'\"<>]{9,})(?=$|[&;#\s'\"<>])")
_STARTS = r"(?<![^\s'\"(\[=<{,;|])"
_USER_INFO_IN_TEXT = re.compile(
    rf"{_STARTS}(?!/(?!/)|[.~(\[{{=,;|]|[a-z][a-z0-9+.-]*://)[^\s'\"<>@:]*:[^\s'\"<>]*@(?=[\w\[.-])"
    rf"|{_STARTS}[^\s'\"<>@:/.]{{8,}}@(?=[\w-]+\.[\w.-]*[/:?])",
    re.IGNORECASE,
)
_URL_IN_TEXT = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)
_USER_INFO_OF_URL = re.compile(r"://(?P<user>[^/?#:@]*):?(?P<password>[^?#]*)@")

_known: set[str] = set()
_LEAST_SECRET = 6


def redact_url(url: str) -> str:
    """Remove `user:password@` and replace the values of signature and token parameters. Never raises.

    Of a URL with such a parameter, all other values but those of `HARMLESS_PARAMETERS` are replaced as well. Works on
    text that is no valid URL too. A URL without secrets is returned unchanged.
    """
    url = _USER_INFO.sub(lambda match: match["scheme"], url)
    if not any(_is_secret(match) for match in _PARAMETER.finditer(url)):
        return url
    return _PARAMETER.sub(lambda match: match[0] if _is_harmless(match) else _masked(match), url)


def redact_urls_in(text: str) -> str:
    """Apply `redact_url` to every URL inside a text that is kept, a caption for example."""
    return _URL_IN_TEXT.sub(lambda match: redact_url(match[0]), text)


def redact_text(text: str) -> str:
    """Take credentials out of a message: every URL's user, password and values, and those of pieces of URLs.

    Storage libraries quote URLs without their scheme (`user:password@host/path?sig=...`).
    """
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    text = _URL_IN_TEXT.sub(lambda match: _USER_INFO.sub(lambda found: found["scheme"], match[0]), text)
    text = _PARAMETER_IN_TEXT.sub(lambda match: match[0] if _is_harmless(match) else _masked(match), text)
    text = _BARE_QUERY.sub(lambda match: f"{match['before']}{REDACTED}", text)
    return _USER_INFO_IN_TEXT.sub("", text)


def remember_secrets(url: str) -> None:
    """From now on, mask in every message of this process what is secret in this URL, however it is quoted."""
    if "@" not in url and "?" not in url:
        return
    found = [match["value"] for match in _PARAMETER.finditer(url) if not _is_harmless(match)]
    user = _USER_INFO_OF_URL.search(url)
    if user is not None and redact_url(url) != url:
        # A password with a slash in it is torn apart where a library looks for the end of the host's name.
        found += [user["user"], user["password"], *user["password"].split("/")]
        found += [f"{user['user']}:{part}" for part in (user["password"], user["password"].partition("/")[0])]
    for value in found:
        _known.update(item for item in (value, unquote(value)) if len(item) >= _LEAST_SECRET)


def describe(error: BaseException, limit: int = 300) -> str:
    """One short line for a ledger: the error's type and text, without credentials or the machine's paths."""
    text = error.strerror if isinstance(error, OSError) and error.errno and error.strerror else str(error)
    line = redact_text(" ".join(f"{type(error).__name__}: {text}".split()))
    return line.encode("utf-8", "replace").decode()[:limit]


def _name(match: re.Match[str]) -> str:
    return unquote(match["name"]).strip().lower()


def _is_secret(match: re.Match[str]) -> bool:
    name, value = _name(match), match["value"]
    if name in SECRET_PARAMETERS or _SECRET_NAME.search(name):
        return True
    if name == "key" and value.startswith("AIza"):  # Google API keys
        return True
    signature = _HEX_SIGNATURE.fullmatch(value) or _TEXT_SIGNATURE.fullmatch(value)
    return signature is not None and name not in _NAMES_AN_IMAGE


def _is_harmless(match: re.Match[str]) -> bool:
    return _name(match) in HARMLESS_PARAMETERS and _SHORT.fullmatch(match["value"]) is not None


def _masked(match: re.Match[str]) -> str:
    return f"{match['before']}{match['name']}={REDACTED}"
