"""One download: redirects by hand, limits, opt-outs, retries. Turns whatever a server does into a payload."""

from __future__ import annotations

import asyncio
import random
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from pydantic import Field
from yarl import URL

from curation.config import Config
from curation.reasons import Reason
from curation.records import Payload
from curation.sources.addresses import AddressPolicy, AddressRefusedError, BadUrlError, GuardedResolver
from curation.sources.redact import describe, redact_url
from curation.sources.responses import decoded, error_code, header_opt_outs, join_url, parse_url, retry_after

REDIRECTS = frozenset([301, 302, 303, 307, 308])
MAX_BACKOFF_S = 60.0


class DownloadConfig(Config):
    """How URLs are downloaded. Limits are per worker: a machine with n download workers opens n times as many."""

    concurrency: int = Field(64, ge=1, description="downloads at the same time in one worker")
    per_host: int = Field(8, ge=1, description="requests at the same time to one host in one worker")
    connect_timeout_s: float = Field(10.0, gt=0, description="seconds to connect, TLS included")
    total_timeout_s: float = Field(60.0, gt=0, description="seconds for one try: redirects and the whole body")
    retries: int = Field(3, ge=0, description="further tries after connect errors, time-outs, cut bodies, 429 and 5xx")
    backoff_s: float = Field(1.0, ge=0, description="seconds before the first retry; doubles, with jitter, at most 60")
    retry_after_cap_s: float = Field(60.0, ge=0, description="longest Retry-After of a server that is waited for")
    max_redirects: int = Field(5, ge=0, description="redirects followed; each hop is checked like the first")
    max_buffered_bytes: int = Field(
        256 << 20, ge=1, description="bytes of downloads held in one worker, besides the next one in order"
    )
    user_agent: str = Field("Populace/0.1 (image corpus builder)", description="User-Agent header")
    contact: str = Field("", description="URL or e-mail address that is added to the User-Agent: say who you are")
    respect_robots_tag: bool = Field(
        True, description="drop what the headers X-Robots-Tag and TDM-Reservation opt out (opted_out)"
    )
    opt_out_directives: tuple[str, ...] = Field(
        ("noai", "noimageai", "noml"), description="X-Robots-Tag directives that opt out, for any user agent they name"
    )
    allow_private_addresses: bool = Field(
        False, description="allow private, loopback, link-local and other special addresses: a hole, for tests only"
    )
    allowed_networks: tuple[str, ...] = Field(
        (), description="private networks that may be connected to, such as 10.1.0.0/16"
    )
    trust_env: bool = Field(
        False,
        description="use the proxies of the environment; the proxy then resolves names, so only literals are refused",
    )
    verify_tls: bool = Field(True, description="check certificates")

    @property
    def full_user_agent(self) -> str:
        """The header's value, with the contact."""
        return f"{self.user_agent} (contact: {self.contact})" if self.contact else self.user_agent


@dataclass(frozen=True, slots=True)
class Tried:
    """What one try gave; `wait_s` is what the server asked for, if it may be tried again."""

    payload: Payload
    retry: bool = False
    wait_s: float | None = None


class OverBudgetError(Exception):
    """Too many bytes are held: give up this transfer for now."""


class Downloader:
    """Downloads over one aiohttp session; lives on one event loop, inside `async with`."""

    def __init__(self, config: DownloadConfig, max_bytes: int, resolver: AbstractResolver | None = None) -> None:
        self.config = config
        self.max_bytes = max_bytes
        self.policy = AddressPolicy(config.allow_private_addresses, config.allowed_networks)
        self._inner = resolver
        self._slots = asyncio.Semaphore(config.concurrency)
        self._hosts: dict[str, asyncio.Semaphore] = {}
        self._opt_out = frozenset(item.lower() for item in config.opt_out_directives)

    async def __aenter__(self) -> Downloader:
        proxies = urllib.request.getproxies().values() if self.config.trust_env else ()
        unchecked = [host for proxy in proxies if (host := URL(proxy).host)]
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self.policy, unchecked, self._inner),
            limit=0,
            ssl=self.config.verify_tls,
            ttl_dns_cache=300,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self.config.full_user_agent, "Accept": "image/*,*/*;q=0.5"},
            skip_auto_headers=["Accept-Encoding"],
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.config.connect_timeout_s),
            trust_env=self.config.trust_env,
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def fetch(self, url: str | None, grow: Callable[[int], None] = lambda size: None) -> Payload:
        """Download one URL, with retries. Never raises but for what `grow` raises.

        Args:
            url: as the list has it.
            grow: called with the number of bytes that a try now holds, before it holds more.
        """
        attempt = 0
        columns: dict[str, Any] = {"http_status": None, "final_url": None, "read_attempts": 0, "read_error": None}
        while True:
            attempt += 1
            columns["read_attempts"] = attempt
            columns["http_status"] = columns["read_error"] = None
            tried = await self._try(url, columns, grow)
            if not tried.retry or attempt > self.config.retries:
                return Payload(tried.payload.data, tried.payload.reason, tried.payload.detail, columns)
            grow(0)
            if tried.wait_s is not None:
                await asyncio.sleep(min(tried.wait_s, self.config.retry_after_cap_s))
            else:
                delay = min(self.config.backoff_s * 2 ** (attempt - 1), MAX_BACKOFF_S)
                await asyncio.sleep(delay * (0.5 + random.random()))

    async def _try(self, url: str | None, columns: dict[str, Any], grow: Callable[[int], None]) -> Tried:
        try:
            return await self._follow(parse_url(url), columns, grow)
        except BadUrlError as error:
            return Tried(Payload(None, Reason.BAD_URL, str(error)))
        except aiohttp.InvalidURL:
            return Tried(Payload(None, Reason.BAD_URL, "not a URL"))
        except AddressRefusedError as error:
            return Tried(Payload(None, Reason.ADDRESS_REFUSED, str(error)))
        except OverBudgetError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a server provokes is that row's reason
            code = error_code(error)
            columns["read_error"] = code
            retry = code not in ("certificate", "bad_encoding")
            text = "the time is up" if code == "timeout" else describe(error)
            return Tried(Payload(None, Reason.DOWNLOAD_FAILED, f"{code}: {text}"), retry)

    async def _follow(self, url: URL, columns: dict[str, Any], grow: Callable[[int], None]) -> Tried:
        """Request, and follow redirects. The clock runs while a request is out, not while it waits for its turn."""
        left = self.config.total_timeout_s
        for _ in range(self.config.max_redirects + 1):
            columns["final_url"] = redact_url(str(url))
            self.policy.check(url)
            columns["http_status"] = None
            async with self._host_limit(url), self._slots:
                started = time.monotonic()
                async with asyncio.timeout(left):
                    if self.config.trust_env:
                        await self._check_name(url)
                    outcome = await self._request(url, columns, grow)
                left -= time.monotonic() - started
            if isinstance(outcome, Tried):
                return outcome
            url = outcome
        columns["read_error"] = "too_many_redirects"
        return Tried(Payload(None, Reason.HTTP_ERROR, f"more than {self.config.max_redirects} redirects"))

    def _host_limit(self, url: URL) -> asyncio.Semaphore:
        host = (url.host or "").lower()
        if host not in self._hosts:
            self._hosts[host] = asyncio.Semaphore(self.config.per_host)
        return self._hosts[host]

    async def _check_name(self, url: URL) -> None:
        """With a proxy aiohttp does not resolve the name: look whether it leads to a private address all the same."""
        try:
            await GuardedResolver(self.policy, (), self._inner).resolve(url.host or "", url.port or 80)
        except OSError:
            return  # networks behind a proxy often have no DNS for the outside

    async def _request(self, url: URL, columns: dict[str, Any], grow: Callable[[int], None]) -> Tried | URL:
        async with self._session.get(url, allow_redirects=False) as response:
            status = columns["http_status"] = response.status
            location = response.headers.get("Location")
            redirect = status in REDIRECTS and location is not None
            if self.config.respect_robots_tag and (redirect or 200 <= status < 300):
                said = header_opt_outs(response.headers, self._opt_out)
                if said:
                    return Tried(Payload(None, Reason.OPTED_OUT, "; ".join(said)))
            if redirect:
                return join_url(url, location or "")
            if not 200 <= status < 300:
                columns["read_error"] = f"http_{status}"
                retry = status == 429 or status >= 500
                wait = retry_after(response.headers.get("Retry-After")) if retry else None
                return Tried(Payload(None, Reason.HTTP_ERROR, f"the server answered {status}"), retry, wait)
            return await self._body(response, grow)

    async def _body(self, response: aiohttp.ClientResponse, grow: Callable[[int], None]) -> Tried:
        cap = self.max_bytes
        data = bytearray()
        too_many = Tried(Payload(None, Reason.TOO_MANY_BYTES, f"the body is longer than the cap of {cap} bytes"))
        if (response.content_length or 0) > cap:
            return too_many
        async for part in decoded(response):
            if len(data) + len(part) > cap:
                return too_many
            grow(len(data) + len(part))
            data += part
        if not data:
            return Tried(Payload(None, Reason.EMPTY, "the body has zero bytes"))
        return Tried(Payload(bytes(data)))
