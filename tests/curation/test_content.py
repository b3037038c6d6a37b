import pytest

from curation.content import kind_of_content


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "nothing"),
        (bytes(600), "zero bytes only"),
        (b"root:x:0:0:root:/root:/bin/bash\n", "text"),
        ("été\n".encode() * 400, "text"),
        (b"  <!DOCTYPE html><p>secret", "an HTML page"),
        (b"\xef\xbb\xbf<HTML>", "an HTML page"),
        (b"%PDF-1.7 secret", "a PDF"),
        (b"PK\x03\x04secret", "a zip archive"),
        (b"\x00\x00\x00\x20ftypisom", "an MP4 or QuickTime file"),
        (b"\x01\x02secret key", "binary data"),
        (bytes(range(128, 256)) * 4, "binary data"),
    ],
)
def test_the_kind_is_named_and_nothing_is_quoted(data: bytes, kind: str) -> None:
    assert kind_of_content(data) == kind
