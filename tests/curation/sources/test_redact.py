import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.sources.redact import describe, redact_text, redact_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org/a.jpg?w=1&h=2#top", "https://example.org/a.jpg?w=1&h=2#top"),
        ("https://me:s3cret@example.org/a.jpg", "https://example.org/a.jpg"),
        ("https://me:p@ss@example.org/a.jpg", "https://example.org/a.jpg"),
        ("//me:s3cret@example.org/a.jpg", "//example.org/a.jpg"),
        ("https://example.org/@user/a.jpg?to=x@y", "https://example.org/@user/a.jpg?to=x@y"),
        ("https://b.s3/a?X-Amz-Signature=abc&w=1", "https://b.s3/a?X-Amz-Signature=REDACTED&w=1"),
        ("https://b/a?x%2Damz%2Dsignature=abc", "https://b/a?x%2Damz%2Dsignature=REDACTED"),
        ("https://b/a?se=1&sig=abc%3D;w=2", "https://b/a?se=1&sig=REDACTED;w=2"),
        ("https://b/a?token=abc#access_token=def", "https://b/a?token=REDACTED#access_token=REDACTED"),
        ("https://maps/a?key=AIzaSyX&zoom=3", "https://maps/a?key=REDACTED&zoom=3"),
        ("https://b/a?key=photo-1", "https://b/a?key=photo-1"),
        ("http://[::broken/a?sig=x", "http://[::broken/a?sig=REDACTED"),
        ("", ""),
    ],
)
def test_redact_url(url: str, expected: str) -> None:
    assert redact_url(url) == expected


@given(st.text())
def test_redacting_never_raises_and_is_idempotent(text: str) -> None:
    assert redact_url(redact_url(text)) == redact_url(text)


def test_messages_are_redacted_and_hold_no_local_path() -> None:
    assert redact_text("GET 'https://u:p@h/x?sig=1' failed") == "GET 'https://h/x?sig=REDACTED' failed"
    assert describe(FileNotFoundError(2, "No such file or directory", "/secret/place")) == (
        "FileNotFoundError: No such file or directory"
    )
    assert len(describe(ValueError("x" * 5000))) == 300


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "FileNotFoundError: user:SECRET@bucket/shards/manifest.json",
            "FileNotFoundError: bucket/shards/manifest.json",
        ),
        ("no such file: 'bucket/a.tar?sig=SECRET&x=1'", "no such file: 'bucket/a.tar?sig=REDACTED&x=1'"),
        # A bracket may belong to the secret.
        ("(user:SECRET@host/a?X-Amz-Signature=SECRET) then", "(host/a?X-Amz-Signature=REDACTED then"),
        ("line 3: a: b@c and x=1", "line 3: a: b@c and x=1"),
        ("tried 12:30, at row 4;7?", "tried 12:30, at row 4;7?"),
    ],
)
def test_pieces_of_urls_without_a_scheme_lose_their_credentials_too(text: str, shown: str) -> None:
    assert redact_text(text) == shown
