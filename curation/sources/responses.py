"""Reading what servers and lists of URLs say: URLs, redirects, header values, compressed bodies, errors."""

from __future__ import annotations

import email.utils
import re
import time
import zlib
from collections.abc import AsyncIterator

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from curation.sources.addresses import BadUrlError

CHUNK_BYTES = 64 << 10
MAX_URL_CHARS = 8192
_CLEAN = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")


class EncodingError(Exception):
    """The body's content encoding cannot be undone."""


async def decoded(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body in pieces of at most 64 KiB. Compression was not asked for; gzip and deflate are undone piece by
    piece, so that a bomb meets the cap early.

    Raises:
        zlib.error: broken compression.
        EncodingError: another content encoding, or the compressed body ends early.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        async for part in response.content.iter_chunked(CHUNK_BYTES):
            yield part
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise EncodingError(f"the content encoding {encoding[:20]!r} was not asked for")
    unzip = zlib.decompressobj(wbits=47)  # gzip or zlib, by the header
    async for part in response.content.iter_chunked(CHUNK_BYTES):
        rest = part
        while rest:
            yield unzip.decompress(rest, CHUNK_BYTES)
            rest = unzip.unconsumed_tail
    if not unzip.eof:
        raise EncodingError("the compressed body ends early")


def parse_url(text: str | None) -> URL:
    """Parse what a list has.

    Raises:
        BadUrlError: no text, too long, or not a URL.
    """
    clean = (text or "").strip()
    if not clean:
        raise BadUrlError("no URL, or one that is not UTF-8")
    if len(clean) > MAX_URL_CHARS:
        raise BadUrlError(f"{len(clean)} characters, at most {MAX_URL_CHARS} are taken")
    try:
        # Signed URLs must not be quoted again; others may hold blanks and letters of any script.
        url = URL(clean, encoded=_CLEAN.fullmatch(clean) is not None)
        _ = url.host, url.port
    except (ValueError, TypeError, UnicodeError) as error:
        raise BadUrlError(f"not a URL ({type(error).__name__})") from error
    return url


def join_url(base: URL, location: str) -> URL:
    """Where a redirect leads.

    Raises:
        BadUrlError: the Location header is no URL.
    """
    try:
        return base.with_user(None).join(parse_url(location))
    except (ValueError, UnicodeError) as error:
        raise BadUrlError(f"the redirect leads to no URL ({type(error).__name__})") from error


def robots_directives(headers: list[str]) -> set[str]:
    """All directives of X-Robots-Tag headers, lower-case; a user agent's name before a colon counts as one of them,
    so that a directive for any user agent is found."""
    return {word for header in headers for word in re.split(r"[,:;\s]+", header.lower()) if word}


def header_opt_outs(headers: CIMultiDictProxy[str], directives: frozenset[str]) -> list[str]:
    """What of a response's headers opts out, as 'Header: value': X-Robots-Tag with one of the directives, for whatever
    user agent, and TDM-Reservation of 1."""
    found = sorted(directives & robots_directives(headers.getall("X-Robots-Tag", [])))
    said = [f"X-Robots-Tag: {', '.join(found)}"] if found else []
    reserved = any(value.strip() == "1" for value in headers.getall("TDM-Reservation", []))
    return [*said, "TDM-Reservation: 1"] if reserved else said


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header (a number or an HTTP date); None when absent or unreadable."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    return max(0.0, moment.timestamp() - time.time())


def error_code(error: BaseException) -> str:
    """The code in column `read_error`: timeout, dns, certificate, tls, connect, cut_body, disconnected, bad_encoding,
    protocol, other."""
    codes: list[tuple[type[BaseException] | tuple[type[BaseException], ...], str]] = [
        ((TimeoutError, aiohttp.ServerTimeoutError), "timeout"),
        (aiohttp.ClientConnectorDNSError, "dns"),
        (aiohttp.ClientConnectorCertificateError, "certificate"),
        (aiohttp.ClientSSLError, "tls"),
        (aiohttp.ClientConnectorError, "connect"),
        (aiohttp.ClientPayloadError, "cut_body"),
        (aiohttp.ServerDisconnectedError, "disconnected"),
        ((aiohttp.ClientOSError, OSError), "connect"),
        ((zlib.error, EncodingError), "bad_encoding"),
        (aiohttp.ClientError, "protocol"),
    ]
    return next((code for kinds, code in codes if isinstance(error, kinds)), "other")
