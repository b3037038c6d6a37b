"""Which addresses a download may connect to: pools carry URLs that aim at the machine's own network."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Sequence

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_IPV4_COMPATIBLE = ipaddress.IPv6Network("::/96")


class BadUrlError(ValueError):
    """Not an http(s) URL with a host."""


class AddressRefusedError(Exception):
    """The address is private, or special in another way.

    No OSError, so that aiohttp does not take it for a failed connection.
    """


def _carried(address: IPAddress) -> IPAddress:
    """The IPv4 address inside an IPv6 one that routes to it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return address.ipv4_mapped
        if address.sixtofour:
            return address.sixtofour
        if address.teredo:
            return address.teredo[1]
        if address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: IPAddress) -> bool:
    """True for a global unicast address: not private, loopback, link-local, shared, multicast, reserved or null."""
    address = _carried(address)
    if isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address in _NAT64_LOCAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def literal_address(host: str) -> IPAddress | None:
    """The address that a host spells out, also as `2130706433`, `0x7f.1`, `0177.0.0.1` or `127.1`; None for a name."""
    text = host.strip("[]").partition("%")[0].rstrip(".")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text)) if text and " " not in text else None
    except (OSError, ValueError):
        return None


class AddressPolicy:
    """Decides on addresses.

    Args:
        allow_private: every address may be connected to.
        networks: private networks in CIDR form that may be, in addition to the public ones.
    """

    def __init__(self, allow_private: bool = False, networks: Sequence[str] = ()) -> None:
        self.allow_private = allow_private
        self.networks: list[IPNetwork] = [ipaddress.ip_network(network) for network in networks]

    def allows(self, address: IPAddress) -> bool:
        """True when the address may be connected to."""
        if self.allow_private or is_public(address):
            return True
        plain = _carried(address)
        return any(plain in network for network in self.networks if network.version == plain.version)

    def check(self, url: URL) -> None:
        """Check what can be told without asking DNS; names are checked by `GuardedResolver`.

        Raises:
            BadUrlError: the scheme is not http or https, or there is no usable host.
            AddressRefusedError: the host is the literal of an address that is not allowed.
        """
        if url.scheme not in ("http", "https"):
            raise BadUrlError(f"the scheme is {url.scheme!r}, allowed are http and https")
        host = url.host
        if not host:
            raise BadUrlError("no host")
        address = literal_address(host)
        # aiohttp connects to what looks numeric without asking the resolver, so nothing numeric may slip through.
        if address is None and (":" in host or host.replace(".", "").isdigit()):
            raise BadUrlError("the host is no address and no name")
        if address is not None and not self.allows(address):
            raise AddressRefusedError(f"{address} is not a public address")


class GuardedResolver(AbstractResolver):
    """Resolves a name and hands on allowed addresses only, so that the connection goes to an address that was checked
    (a name that answers differently the second time gains nothing).

    Args:
        policy: what is allowed.
        unchecked: hosts that are always allowed (the proxies of the environment).
        inner: does the resolving; the system's resolver by default.
    """

    def __init__(
        self, policy: AddressPolicy, unchecked: Collection[str] = (), inner: AbstractResolver | None = None
    ) -> None:
        self.policy = policy
        self.unchecked = frozenset(unchecked)
        self.inner = inner or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Allowed addresses of a host.

        Raises:
            OSError: the name cannot be resolved.
            AddressRefusedError: no address of it is allowed.
        """
        found = await self.inner.resolve(host, port, family)
        if host in self.unchecked:
            return found
        allowed = [item for item in found if self.policy.allows(ipaddress.ip_address(item["host"].partition("%")[0]))]
        if found and not allowed:
            raise AddressRefusedError(f"{host} resolves to {found[0]['host']}, which is not a public address")
        return allowed

    async def close(self) -> None:
        """Close the inner resolver."""
        await self.inner.close()
