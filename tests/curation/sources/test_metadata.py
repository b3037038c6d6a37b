import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.sources.metadata import MAX_METADATA_BYTES, normalise, sidecar_values


def loaded(values: dict[str, Any]) -> Any:
    text = normalise(values)
    assert text is not None
    return json.loads(text)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"TEXT": "a cat", "URL": "http://x/y", "LICENSE": "cc0"},
            {"caption": "a cat", "url": "http://x/y", "licence": "cc0"},
        ),
        ({"caption": "kept", "text": "other"}, {"caption": "kept", "text": "other"}),
        ({"caption": "", "alt": "a cat"}, {"caption": "a cat"}),
        ({"caption": None, "txt": "a cat", "nsfw": False}, {"caption": "a cat", "nsfw": False}),
        ({"license": "by", "score": float("nan"), "width": 3}, {"licence": "by", "width": 3}),
        ({"blob": b"text", "raw": b"\xff\x00"}, {"blob": "text", "raw": "/wA="}),
        (
            {"when": datetime.datetime(2020, 1, 2), "price": decimal.Decimal("1.50")},
            {"when": "2020-01-02T00:00:00", "price": "1.50"},
        ),
        ({"bad": "\ud800x"}, {"bad": "\ufffdx"}),
        (
            {"n": 2**63 - 1, "m": -(2**63), "big": 2**63, "deep": [{"hash": 2**64}], "huge": 10**5000},
            {"n": 2**63 - 1, "m": -(2**63), "big": str(2**63), "deep": [{"hash": str(2**64)}], "huge": hex(10**5000)},
        ),
        (
            {"url": "https://u:p@h/a?sig=1", "page": "https://u:p@h/"},
            {"url": "https://h/a?sig=REDACTED", "page": "https://h/"},
        ),
    ],
)
def test_normalise(values: dict[str, Any], expected: dict[str, Any]) -> None:
    assert loaded(values) == expected


def test_nothing_is_none() -> None:
    assert normalise({}) is None
    assert normalise({"a": None}) is None


def test_equal_metadata_has_equal_text() -> None:
    assert normalise({"b": 1, "a": {"d": 1, "c": 2}}) == normalise({"a": {"c": 2, "d": 1}, "b": 1})


def test_huge_metadata_is_cut_and_says_so() -> None:
    values = {
        "noai": True,
        "metadata_problem": "p" * 500,
        "caption": "é" * 100_000,
        "vector": list(range(50_000)),
        **{f"k{i}": "v" * 1000 for i in range(200)},
    }
    text = normalise(values)
    assert text is not None
    assert len(text.encode()) <= MAX_METADATA_BYTES
    cut = json.loads(text)
    assert cut["metadata_truncated"] is True
    assert cut["caption"] == "é" * 4096
    assert "vector" not in cut
    assert cut["noai"] is True
    assert cut["metadata_problem"] == "p" * 500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=6))
def test_any_values_become_valid_json_in_utf8(values: dict[str, Any]) -> None:
    text = normalise(values)
    if text is not None:
        assert isinstance(json.loads(text.encode()), dict)


def test_sidecars_merge() -> None:
    assert sidecar_values(
        {"txt": b"\xef\xbb\xbfa cat\n", "json": b'{"caption": "a cat", "cls": 1}', "cls": b"7\n"}
    ) == {
        "caption": "a cat",
        "cls": 1,
    }
    assert sidecar_values({"json": b"[1, 2]"}) == {"json": [1, 2]}
    assert sidecar_values({"seg.json": b'{"a": 1}', "cls": b"-3"}) == {"seg.json": {"a": 1}, "cls": -3}
    assert sidecar_values({"txt": b"2024"}) == {"txt": "2024"}


def test_an_opt_out_survives_the_cap() -> None:
    text = normalise({f"a{number:03d}": "v" * 1000 for number in range(200)} | {"noai": True, "caption": "a cat"})
    assert text is not None
    assert len(text.encode()) <= MAX_METADATA_BYTES
    assert json.loads(text)["noai"] is True
    assert json.loads(text)["caption"] == "a cat"


def test_levels_merge_and_an_opt_out_counts_wherever_it_is() -> None:
    assert sidecar_values(
        {"json": b'{"a": 1, "noai": false, "empty": ""}'},
        {"meta.json": b'{"a": 2, "b": 2, "noai": true}', "seg.json": b'{"a": 3}'},
        {"outputs.txt": b"a cat"},
        rows=[{"a": 4, "c": 4, "noai": False, "empty": "no more"}],
    ) == {"a": 1, "b": 2, "c": 4, "noai": True, "seg.json": {"a": 3}, "txt": "a cat", "empty": "no more"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b' {"caption": "a cat", "noai": true}\n', {"caption": "a cat", "noai": True}),
        (b"{not json}", {"txt": "{not json}"}),
        (b"{" * 100_000 + b"}", {"txt": "{" * 100_000 + "}"}),
        (b"a cat\nNoAI = yes", {"txt": "a cat\nNoAI = yes", "noai": True}),
        (b"a cat\nnoai: false", {"txt": "a cat\nnoai: false"}),
        (b"a poster: noai", {"txt": "a poster: noai"}),
    ],
)
def test_text_that_is_json_or_says_no(content: bytes, expected: dict[str, Any]) -> None:
    assert sidecar_values({"txt": content}) == expected


@pytest.mark.parametrize("broken", [b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"noai": false,}', b"[1] [2]"])
def test_broken_json_is_named(broken: bytes) -> None:
    assert sidecar_values({"json": broken, "txt": b"x"}) == {"txt": "x", "metadata_problem": "json: not JSON"}


@pytest.mark.parametrize(
    "text",
    [
        "https://u:S3CRET@h.example/x?token=S3CRET",
        "see https://u:S3CRET@h.example/x?token=S3CRET for more",
        "a long caption in front of it: https://h.example/x?X-Amz-Signature=S3CRET",
        b"bytes that say https://u:S3CRET@h.example/",
    ],
)
def test_secrets_of_urls_are_kept_nowhere_in_a_text(text: Any) -> None:
    for values in ({"caption": text}, {"nested": {"list": [text]}}):
        stored = normalise(values)
        assert stored is not None
        assert "S3CRET" not in stored
        assert "h.example" in stored


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"caption":"caf\xe9","noai":true}', {"caption": "caf\ufffd", "noai": True, "p": "json: not UTF-8"}),
        (b'{"noai":true,"n":' + b"9" * 5000 + b"}", {"noai": True, "n": "9" * 5000}),
        (b'{"a":1,"noai":true}\x00\x00', {"a": 1, "noai": True, "p": "json: NUL bytes after the JSON object"}),
        (b'{"a":1}\n{"noai":true}', {"a": 1, "noai": True, "p": "json: text after the JSON object"}),
        (b'{"a":1,"noai":true,}', {"noai": True, "p": "json: not JSON"}),
        (b'{"noai":true,"a":' + b"[" * 5000 + b"]" * 5000 + b"}", {"noai": True, "p": "json: not JSON"}),
        ('{"caption":"café","noai":true}'.encode("utf-16"), {"caption": "café", "noai": True}),
    ],
)
def test_damage_in_json_costs_no_opt_out(content: bytes, expected: dict[str, Any]) -> None:
    if "p" in expected:
        expected["metadata_problem"] = expected.pop("p")
    assert sidecar_values({"json": content}) == expected


def test_what_was_wrong_with_a_row_and_a_file_is_both_told() -> None:
    values = sidecar_values({"seg.json": b"{"}, rows=[{"a": 1, "metadata_problem": "row: not UTF-8"}])
    assert values == {"a": 1, "metadata_problem": "row: not UTF-8; seg.json: not JSON"}


@pytest.mark.parametrize(
    "values",
    [
        {"seg.json": {"noai": True, "polygon": [1.5] * 20_000}},
        {"exif": {"noai": True, "blob": "x" * 80_000}},
        {"robots": "x " * 4000 + "noai", "blob": "x" * 80_000},
        {"exif": {"noai": True, "blob": "x" * 80_000}, "noai": False, **{f"k{n}": "v" * 1000 for n in range(100)}},
    ],
)
def test_an_opt_out_inside_of_what_is_cut_away_stays(values: dict[str, Any]) -> None:
    text = normalise(values)
    assert text is not None
    assert len(text.encode()) <= MAX_METADATA_BYTES
    cut = json.loads(text)
    assert cut["metadata_truncated"] is True
    assert cut["noai"] is True


def test_a_cut_adds_no_opt_out() -> None:
    assert loaded({"exif": {"noai": False, "blob": "x" * 80_000}}) == {"metadata_truncated": True}
