import contextlib
import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from curation.sources.addresses import BadUrlError
from curation.sources.responses import join_url, parse_url, retry_after, robots_directives


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], set()),
        (["noindex, NoAI"], {"noindex", "noai"}),
        (["googlebot: noimageai"], {"googlebot", "noimageai"}),
        (["all", "otherbot: noindex,noai"], {"all", "otherbot", "noindex", "noai"}),
        (["noaix"], {"noaix"}),
        (["max-image-preview:none, noimageai"], {"max-image-preview", "none", "noimageai"}),
    ],
)
def test_robots_directives(headers: list[str], expected: set[str]) -> None:
    assert robots_directives(headers) == expected


def test_retry_after() -> None:
    assert retry_after(None) is None
    assert retry_after("7") == 7.0
    assert retry_after("soon") is None
    assert retry_after("-5") is None
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert 28 < (retry_after(later) or 0) <= 30
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_signed_urls_are_sent_as_they_are_and_others_are_quoted() -> None:
    signed = "https://b.example/a%20b.jpg?sig=a%2Fb%3D&x=%c3"
    assert str(parse_url(signed)) == signed
    assert str(parse_url(" http://b.example/ä b.jpg\n")) == "http://b.example/%C3%A4%20b.jpg"


@pytest.mark.parametrize("text", [None, "", "  ", "http://[::1", "http://a:99999/", "http://a:b/", "x" * 9000])
def test_bad_urls(text: str | None) -> None:
    with pytest.raises(BadUrlError):
        parse_url(text)


@given(st.text())
def test_parsing_raises_nothing_else(text: str) -> None:
    for build in (lambda: parse_url(text), lambda: join_url(URL("http://a/b"), text)):
        with contextlib.suppress(BadUrlError):
            build()


def test_redirects_are_joined_and_do_not_carry_passwords() -> None:
    base = URL("https://u:p@a.example/x/y")
    assert str(join_url(base, "z.jpg")) == "https://a.example/x/z.jpg"
    assert str(join_url(base, "//b.example/z")) == "https://b.example/z"
    assert str(join_url(base, "?q=1")) == "https://a.example/x/y?q=1"
