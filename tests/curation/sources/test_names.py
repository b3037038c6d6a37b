from hypothesis import given
from hypothesis import strategies as st

from curation.sources.names import escape_name, extension_label, split_extension, unescape_name, webdataset_key

raw_names = st.one_of(st.text(), st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))


@given(raw_names)
def test_escaping_is_reversible_and_gives_valid_utf8(name: str) -> None:
    assert unescape_name(escape_name(name)) == name
    escape_name(name).encode()


@given(st.sets(raw_names, max_size=8))
def test_escaping_keeps_names_apart(names: set[str]) -> None:
    assert len({escape_name(name) for name in names}) == len(names)


def test_ordinary_names_are_unchanged_and_bytes_are_readable() -> None:
    assert escape_name("a%20/日本 é.jpg") == "a%20/日本 é.jpg"
    assert escape_name(b"caf\xe9.jpg".decode("utf-8", "surrogateescape")) == "caf\\xe9.jpg"
    assert escape_name("a\\xe9.jpg") == "a\\\\xe9.jpg"


def test_extensions_and_keys() -> None:
    assert split_extension("set.v1/img.v2.JPG") == ("set.v1/img.v2", "jpg")
    assert split_extension("set.v1/abc") == ("set.v1/abc", "")
    assert split_extension(".jpg") == ("", "jpg")
    assert webdataset_key("set.v1/img.v2.jpg") == "set.v1/img"
    assert extension_label("a/b.TXT") == ".txt"
    assert extension_label("a.jpg?size=large&x=1") == "(other)"
