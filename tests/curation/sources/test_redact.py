import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.sources.redact import describe, redact_text, redact_url, redact_urls_in, remember_secrets


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
        ("https://b/a?se=1&sig=abc%3D;w=2", "https://b/a?se=REDACTED&sig=REDACTED;w=2"),
        ("https://b/a?token=abc#access_token=def", "https://b/a?token=REDACTED#access_token=REDACTED"),
        ("https://maps/a?key=AIzaSyX&zoom=3", "https://maps/a?key=REDACTED&zoom=3"),
        ("https://b/a?key=photo-1", "https://b/a?key=photo-1"),
        # What a CDN signs with has names that nobody knows; without a signature, unknown parameters name the image.
        ("https://cdn/a.jpg?ex=65a1&is=65b2&hm=" + "9f" * 32, "https://cdn/a.jpg?ex=REDACTED&is=REDACTED&hm=REDACTED"),
        ("https://cdn/a.jpg?oh=00_AfBx9Zq1LmN-tRsUvWx2&oe=1", "https://cdn/a.jpg?oh=REDACTED&oe=REDACTED"),
        (
            "https://cdn/a.jpg?sv=2&spr=https&signature=x&id=7",
            "https://cdn/a.jpg?sv=REDACTED&spr=REDACTED&signature=REDACTED&id=7",
        ),
        (
            "https://b/i?file=photo-17&album=summer&id=12345678901",
            "https://b/i?file=photo-17&album=summer&id=12345678901",
        ),
        ("https://b/i?hash=" + "9f" * 16, "https://b/i?hash=" + "9f" * 16),
        ("https://b/i?author=ann&design=2&authors=3", "https://b/i?author=ann&design=2&authors=3"),
        # A slash does not belong into a password, and is there all the same.
        ("s3://AKIA12:wJal/XUtn/FEMI@bucket/x", "s3://bucket/x"),
        ("https://host:8080/@user/a.jpg", "https://host:8080/@user/a.jpg"),
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
        ("no such file: 'bucket/a.tar?sig=SECRET&x=1'", "no such file: 'bucket/a.tar?sig=REDACTED&x=REDACTED'"),
        # A bracket may belong to the secret.
        ("(user:SECRET@host/a?X-Amz-Signature=SECRET) then", "(host/a?X-Amz-Signature=REDACTED then"),
        ("line 3: a: b@c and x=1", "line 3: a: b@c and x=1"),
        ("tried 12:30, at row 4;7?", "tried 12:30, at row 4;7?"),
    ],
)
def test_pieces_of_urls_without_a_scheme_lose_their_credentials_too(text: str, shown: str) -> None:
    assert redact_text(text) == shown


SECRETS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+_-", min_size=12, max_size=40).filter(
    lambda text: text not in "REDACTED"
)
NAMES = st.sampled_from(["id", "w", "key", "sig", "X-Amz-Signature", "se", "Policy", "anything", "oh", "v", "url"])
QUOTES = st.sampled_from(
    ["{}", "'{}'", '"{}"', "({})", "[{}]", "<{}>", "at {}: no", "path={},", "{}: Not Found", "{}|x"]
)


@given(
    SECRETS, SECRETS, SECRETS, NAMES, st.sampled_from(["s3://", "https://", "", "gs://", "//"]), QUOTES, st.booleans()
)
def test_no_secret_of_a_url_is_in_a_message(
    user: str, password: str, value: str, name: str, scheme: str, quote: str, slash: bool
) -> None:
    if slash:
        password = f"{password[:6]}/{password[6:]}"
    url = f"{scheme}{user}:{password}@bucket.host/a/b.tar?w=3&{name}={value}"
    for text in (redact_text(quote.format(url)), describe(OSError(quote.format(url)))):
        for secret in (user, password, value):
            assert secret not in text
        assert "bucket.host/a/b.tar" in text
        assert "w=3" in text


@given(SECRETS, SECRETS, st.sampled_from(["s3", "https", "gs"]))
def test_no_user_info_is_in_a_stored_url(user: str, password: str, scheme: str) -> None:
    assert redact_url(f"{scheme}://{user}:{password}@bucket/a?id=1") == f"{scheme}://bucket/a?id=1"
    assert redact_url(f"{scheme}://{user}@bucket/a?id=1") == f"{scheme}://bucket/a?id=1"


def test_a_token_alone_and_a_bare_query_are_masked() -> None:
    assert redact_text("GET ghp_0123456789abcdef@github.com/a/b failed") == "GET github.com/a/b failed"
    assert redact_text("GET https://h/a?0123456789abcdef failed") == "GET https://h/a?REDACTED failed"
    assert redact_text("mail ann@example.org, line 7") == "mail ann@example.org, line 7"
    assert redact_text("'/pool/a:1/b@2x.jpg' is gone") == "'/pool/a:1/b@2x.jpg' is gone"


def test_secrets_of_configured_places_are_masked_in_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curation.sources.redact._known", set())
    remember_secrets("s3://AKIA0123456:wJalrXUtn/K7MDENGbPx@bucket/run")
    remember_secrets("https://host/list.csv?code=top%2Fsecret-value&w=300")
    remember_secrets("/local/a@b/c?x=1")
    assert redact_text('Invalid bucket name "AKIA0123456:wJalrXUtn"') == 'Invalid bucket name "REDACTED"'
    assert redact_text("K7MDENGbPx and top/secret-value") == "REDACTED and REDACTED"
    assert redact_text("bucket list.csv /local/a@b/c") == "bucket list.csv /local/a@b/c"


def test_a_caption_keeps_what_names_an_image() -> None:
    text = "see https://b/i?photo=17&album=2 or https://b/i?token=abc&x=1"
    assert redact_urls_in(text) == "see https://b/i?photo=17&album=2 or https://b/i?token=REDACTED&x=REDACTED"
