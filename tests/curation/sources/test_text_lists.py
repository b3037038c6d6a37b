import codecs
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from curation.sources import text_lists
from curation.sources.arrow_values import PROBLEM
from curation.sources.filesystem import Files
from curation.sources.text_lists import UnreadableListError, clean_url, json_rows, lines, open_text, tsv_rows, url_rows


def text(content: str) -> io.StringIO:
    return io.StringIO(content, newline="")


def read(folder: Path, content: bytes) -> str:
    (folder / "list").write_bytes(content)
    with open_text(Files(str(folder), {}), "list") as opened:
        return opened.read()


@pytest.mark.parametrize(
    "content",
    [
        "é".encode(),
        codecs.BOM_UTF8 + "é".encode(),
        "é".encode("utf-16"),
        codecs.BOM_UTF16_BE + "é".encode("utf-16-be"),
        "é".encode("utf-32"),
        gzip.compress("é".encode(), mtime=0),
        gzip.compress("é".encode("utf-16"), mtime=0),
    ],
)
def test_encodings_and_gzip(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == "é"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04rest", "zip"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"BZh9rest", "bzip2"),
        (b"PAR1rest", "Parquet"),
        (gzip.compress(b"PK\x03\x04rest", mtime=0), "zip"),
    ],
)
def test_what_is_no_text_is_refused_for_what_it_is(tmp_path: Path, content: bytes, kind: str) -> None:
    with pytest.raises(UnreadableListError, match=kind):
        read(tmp_path, content)


def test_lines_end_in_any_way_and_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(lines(text("a\r\nb\rc\n\nd"))) == [(0, "a"), (1, "b"), (2, "c"), (3, ""), (4, "d")]
    monkeypatch.setattr(text_lists, "MAX_LINE_CHARS", 5)
    monkeypatch.setattr(text_lists, "_BLOCK_CHARS", 3)
    assert list(lines(text("12345\n123456\n1234567890123\r\nend"))) == [
        (0, "12345"), (1, None), (2, None), (3, "end")
    ]  # fmt: skip


def test_tsv_has_no_quotes() -> None:
    body = "".join(f"http://h/{n}\tcaption {n}\n" for n in range(5000))
    body = body.replace("\tcaption 1234\n", '\t"caption 1234\n').replace("\tcaption 4000\n", '\t"a" b"\n')
    found = list(tsv_rows(text("url\tcaption\n" + body), ["url", "caption"]))
    assert [row["url"] for _, row in found] == [f"http://h/{n}" for n in range(5000)]
    assert found[1234] == (1234, {"url": "http://h/1234", "caption": '"caption 1234'})
    assert found[4000][1]["caption"] == '"a" b"'


def test_tsv_with_blank_lines_before_the_header() -> None:
    assert list(tsv_rows(text("\n \r\nurl\tn\n\nu\t1\n"), ["url", "n"])) == [(0, {"url": "u", "n": "1"})]


def test_url_lines() -> None:
    assert list(url_rows(text("u\n\n  v  \r\nx\udce9\n"), "url")) == [
        (0, {"url": "u"}), (2, {"url": "v"}), (3, {"url": "x\udce9", PROBLEM: "url: not UTF-8"})
    ]  # fmt: skip


BAD = {PROBLEM: "not a JSON object"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{}\n{"url": "u"}\n', [(0, {}), (1, {"url": "u"})]),
        ('not JSON\n\n[1]\n5\n"s"\n{"a": 1', [(0, BAD), (2, BAD), (3, BAD), (4, BAD), (5, BAD)]),
        ('{"n": ' + "9" * 5000 + '}\n{"n": 1}', [(0, {"n": "9" * 5000}), (1, {"n": 1})]),
        ("[" * 100_000 + "\n{}", [(0, BAD), (1, {})]),
        ('[{"url": "u"}, {"url": "v"}]', [(0, {"url": "u"}), (1, {"url": "v"})]),
        ('\ufeff [\n  {"url": "u"},\n  5, "x", null,\n {"url": "v"}\n]\n', [
            (0, {"url": "u"}), (1, BAD), (2, BAD), (3, BAD), (4, {"url": "v"})
        ]),
        ("[]", []),
        ('[]\n{"url": "u"}\n\n{"url": "v"}', [(0, {"url": "u"}), (2, {"url": "v"})]),
        ('[]x\n{"url": "u"}', [(0, BAD), (1, {"url": "u"})]),
        ('[{"url": "u"},\n{"url": "v"}] x\n{"url": "w"}', [
            (0, {"url": "u"}), (1, {"url": "v"}), (2, BAD), (3, {"url": "w"})
        ]),
        ("", []),
        ('["a", {"url": "u"}]\n{"url": "v"}', [(0, BAD), (1, {"url": "v"})]),
    ],
)  # fmt: skip
def test_json(content: str, expected: list[tuple[int, dict[str, Any]]]) -> None:
    assert list(json_rows(text(content))) == expected


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 16])
def test_an_array_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(text_lists, "_BLOCK_CHARS", 1 << 16)
    items = [{"url": f"http://h/{n}", "n": n, "list": [{"a": "]"}]} for n in range(50)]
    content = json.dumps(items, indent=2)
    source = text(content)
    limited = source.read
    monkeypatch.setattr(source, "read", lambda size: limited(min(size, max(block, 4)) if source.tell() else size))
    assert [row for _, row in json_rows(source)] == items


@pytest.mark.parametrize(
    "content", ['[{"a": 1}, {"a": 2}, {"a": ', '[{"a": 1}, {"a": 2}, {broken}, {"a": 3}]', '[{"a": 1}, {"a": 2}']
)
def test_a_cut_array_gives_its_rows_first(content: str) -> None:
    rows = json_rows(text(content))
    assert next(rows) == (0, {"a": 1})
    assert next(rows) == (1, {"a": 2})
    with pytest.raises(UnreadableListError, match="element 2 of the JSON array"):
        next(rows)


@pytest.mark.parametrize(
    ("value", "expected"), [("u", "u"), (b"u", "u"), (b"\xe9", None), ("\udce9", None), (5, None), (None, None)]
)
def test_clean_urls(value: Any, expected: str | None) -> None:
    assert clean_url(value) == expected


def test_an_integer_of_any_length_costs_no_row() -> None:
    digits = "9" * 5000
    line = f'{{"url": "http://h/a", "n": {digits}, "m": 7}}'
    expected = {"url": "http://h/a", "n": digits, "m": 7}
    assert list(json_rows(text(line))) == [(0, expected)]
    assert list(json_rows(text(f"[{line}, {line}]"))) == [(0, expected), (1, expected)]
