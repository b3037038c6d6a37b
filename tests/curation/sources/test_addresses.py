import asyncio
import ipaddress
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from curation.sources.addresses import (
    AddressPolicy,
    AddressRefusedError,
    BadUrlError,
    GuardedResolver,
    is_public,
    literal_address,
)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::",
    ],
)  # fmt: skip
def test_special_addresses_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_ordinary_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "017700000001"]
)
def test_every_spelling_of_an_address_is_seen(host: str) -> None:
    assert literal_address(host) == ipaddress.ip_address("127.0.0.1")
    with pytest.raises(AddressRefusedError):
        AddressPolicy().check(URL(f"http://{host}/a.jpg"))


@pytest.mark.parametrize("host", ["[::1]", "[::ffff:7f00:1]", "[fe80::1%25eth0]", "①②⑦.⓪.⓪.①"])
def test_ipv6_and_fancy_digits_are_refused(host: str) -> None:
    with pytest.raises((AddressRefusedError, BadUrlError)):
        AddressPolicy().check(URL(f"http://{host}/a.jpg"))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/a",
        "file:///etc/passwd",
        "/a.jpg",
        "http:///a",
        "data:image/png;base64,AA",
        "javascript:1",
        "http://1.2.3.4.5/",
    ],
)
def test_what_is_no_web_address_is_a_bad_url(url: str) -> None:
    with pytest.raises(BadUrlError):
        AddressPolicy().check(URL(url))


def test_names_are_left_to_the_resolver_and_networks_can_be_allowed() -> None:
    AddressPolicy().check(URL("https://example.org/a.jpg"))
    assert literal_address("example.org") is None
    policy = AddressPolicy(networks=["10.1.0.0/16", "fd00::/8"])
    assert policy.allows(ipaddress.ip_address("10.1.2.3"))
    assert policy.allows(ipaddress.ip_address("::ffff:10.1.2.3"))
    assert policy.allows(ipaddress.ip_address("fd00::1"))
    assert not policy.allows(ipaddress.ip_address("10.2.0.1"))
    assert AddressPolicy(allow_private=True).allows(ipaddress.ip_address("127.0.0.1"))


class Answers(AbstractResolver):
    """A resolver with fixed answers, as a hostile DNS server has them."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        pass


def test_the_resolver_hands_on_public_addresses_only() -> None:
    mixed = GuardedResolver(AddressPolicy(), inner=Answers("10.0.0.1", "8.8.8.8", "fe80::1%eth0"))
    assert [item["host"] for item in asyncio.run(mixed.resolve("x.example"))] == ["8.8.8.8"]
    with pytest.raises(AddressRefusedError, match=r"x.example resolves to 10.0.0.1"):
        asyncio.run(GuardedResolver(AddressPolicy(), inner=Answers("10.0.0.1")).resolve("x.example"))
    proxy = GuardedResolver(AddressPolicy(), unchecked=["proxy.local"], inner=Answers("10.0.0.1"))
    assert len(asyncio.run(proxy.resolve("proxy.local"))) == 1


def test_the_system_resolver_is_guarded_too() -> None:
    async def resolve() -> None:
        await GuardedResolver(AddressPolicy()).resolve("localhost", 80)

    with pytest.raises(AddressRefusedError, match="localhost resolves to"):
        asyncio.run(resolve())
