import codecs
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curation.sources.metadata_tables as metadata_tables
from curation.sources.filesystem import Files
from curation.sources.metadata_tables import MAX_ROW_BYTES, MetadataTable, cached_table, rows_of

STRAY = "a quote begins a field and none ends it"


def table(name: str, data: bytes) -> MetadataTable:
    return MetadataTable(name, len(data), lambda offset, size: data[offset : offset + size])


def test_json_lines(caplog: pytest.LogCaptureFixture) -> None:
    data = b"\n".join(
        [
            b'{"file_name": "a.jpg", "text": "a cat", "noai": true}',
            b"not json",
            b"",
            b'{"text": "no name"}',
            b'["a.jpg"]',
            b"[" * 100_000,
            b'{"file_name": "./sub/b.jpg", "n": 1}\r',
            b'{"left_file_name": "l.jpg", "right_file_name": "r.jpg", "pair": 7}',
            b'{"file_names": ["no"], "file_name": ["x.jpg", "y.jpg"], "list": 1}',
            b'{"file_name": "a.jpg", "again": true}',
            b'{"file_name": "caf\\u00e9\\\\.jpg", "k": 1}',
        ]
    )
    found = table("d/metadata.jsonl", data).rows(
        ["a.jpg", "sub/b.jpg", "l.jpg", "r.jpg", "x.jpg", "y.jpg", "café\\\\.jpg", "other.jpg"]
    )
    assert found == {
        "a.jpg": [{"text": "a cat", "noai": True}, {"again": True}],
        "sub/b.jpg": [{"n": 1}],
        "l.jpg": [{"pair": 7}],
        "r.jpg": [{"pair": 7}],
        "x.jpg": [{"file_names": ["no"], "list": 1}],
        "y.jpg": [{"file_names": ["no"], "list": 1}],
        "café\\\\.jpg": [{"k": 1}],
    }
    assert "d/metadata.jsonl: 4 rows have no file_name" in caplog.text


def test_csv_with_quotes_of_every_kind() -> None:
    data = (
        b'\xef\xbb\xbffile_name,text,n\r\na.jpg,plain,1\r\n"b.jpg","two\r\nlines, ""quoted""",2\r\nc.jpg,5" pipe,3\r\n'
        b'd.jpg,6" pipe,4\r\ne.jpg,"never closed,5\r\n' + b"".join(b"f%d.jpg,x,%d\r\n" % (n, n) for n in range(300))
    )
    names = ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg", "f0.jpg", "f299.jpg"]
    assert table("metadata.csv", data).rows(names) == {
        "a.jpg": [{"text": "plain", "n": "1"}],
        "b.jpg": [{"text": 'two\r\nlines, "quoted"', "n": "2"}],
        "c.jpg": [{"text": '5" pipe', "n": "3"}],
        "d.jpg": [{"text": '6" pipe', "n": "4"}],
        "e.jpg": [{"text": "never closed", "n": "5", "metadata_problem": f"metadata.csv: {STRAY}"}],
        "f0.jpg": [{"text": "x", "n": "0"}],
        "f299.jpg": [{"text": "x", "n": "299"}],
    }


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        # The quote that closes the first one is three rows on, in a field of text, or at the end of its line.
        ("file_name,caption,noai", ['{0},"12,true', "{1},x,true", '{2},13",true', "{3},y,true"]),
        ("file_name,noai,caption", ['{0},true,"12', "{1},true,x", '{2},true,13"', "{3},true,y"]),
        # Names after the text; the first quote is closed on the very next line.
        ("caption,file_name,noai", ['"12,{0},true', '13",{1},true', "x,{2},true", "y,{3},true"]),
        ("caption,file_name,noai", ['"12,{0},true', "x,{1},true", '13",{2},true', "y,{3},true"]),
        # The quote is at the name.
        ("file_name,noai", ['"{0},true', "{1},true", '{2},true"', "{3},true"]),
        # Rows with fewer fields than the header.
        ("file_name,noai,caption,n", ['{0},true,"12', "{1},true", '{2},true,13"', "{3},true"]),
        # Blank lines are before the header and between rows.
        ("\n \nfile_name,noai,caption", ['{0},true,"12', "", "{1},true,x", "", '{2},true,13"', "{3},true,y"]),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["{}.jpg", "a {}.JPG", "x/{}.png", "{}.jpg?w=3", "{}.jpg_large", "{}.odd", "img{}"])
def test_a_stray_quote_hides_no_row_and_no_opt_out(
    header: str, lines: list[str], end: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    if lines[0].startswith('"'):  # only the row's own name, before the quote, tells that such a name is one
        name = {"a {}.JPG": "a{}.JPG", "{}.odd": "{}.jxl", "img{}": "img{}.tif"}.get(name, name)
    names = [name.format(n) for n in range(4)]
    data = end.join([header, *lines, ""]).format(*names).encode()
    found = table("d/metadata.csv", data).rows(names)
    assert set(found) == set(names)
    # The quote that is left over at the end of a field stays; an opt-out is judged without it.
    assert [found[item][0]["noai"].rstrip('"') for item in names] == ["true"] * 4
    assert [found[item][0].get("metadata_problem") for item in names] == [f"metadata.csv: {STRAY}", None, None, None]
    assert "d/metadata.csv: in 1 rows a quote begins a field and none ends it" in caplog.text
    assert "no file_name" not in caplog.text


def test_quoted_lines_that_name_images_in_passing_stay_together(caplog: pytest.LogCaptureFixture) -> None:
    data = b'file_name,text\na.jpg,"see\nb.jpg\n\nand, so on"\nb.jpg,"2, 3\r\n4, 5"\n'
    assert table("metadata.csv", data).rows(["a.jpg", "b.jpg"]) == {
        "a.jpg": [{"text": "see\nb.jpg\n\nand, so on"}],
        "b.jpg": [{"text": "2, 3\r\n4, 5"}],
    }
    assert [record.getMessage() for record in caplog.records] == [
        "metadata.csv: in 1 rows a quoted field holds a line that may be a row; taken for text of this one"
    ]


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("block", [12, 1000, 4 << 20])
def test_encodings_and_ends_of_lines(
    mark: bytes, encoding: str, end: str, block: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata_tables, "_BLOCK_BYTES", block)
    text = "\u0d0a\u0a0d \U0001f408 \u0d00\u000b\u0a00"  # bytes of line ends in other places
    names = [f"caf\u00e9\u0d0a {n}.jpg" for n in range(30)]
    lines = ["", "file_name,text,noai", *(f'{name},"{text}, {n}",true' for n, name in enumerate(names)), ""]
    found = table("metadata.csv", mark + end.join(lines).encode(encoding)).rows(names)
    assert found == {name: [{"text": f"{text}, {n}", "noai": "true"}] for n, name in enumerate(names)}
    rows = [{"file_name": name, "text": text, "n": n} for n, name in enumerate(names)]
    lines = [*(json.dumps(row, ensure_ascii=False) for row in rows), ""]
    found = table("metadata.jsonl", mark + end.join(lines).encode(encoding)).rows(names)
    assert found == {name: [{"text": text, "n": n}] for n, name in enumerate(names)}
    assert not caplog.records


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("block", [1000, 1001, 1 << 20])
def test_what_follows_a_line_that_is_too_long(end: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_tables, "_BLOCK_BYTES", block)
    for extra in range(4):
        long = json.dumps({"file_name": "b.jpg", "pad": "x" * (MAX_ROW_BYTES // 1000 * 1000 + 970 + extra)})
        data = end.join(['{"file_name": "a.jpg"}', long, '{"file_name": "c.jpg", "n": 1}']).encode()
        assert table("metadata.jsonl", data).rows(["a.jpg", "b.jpg", "c.jpg"]) == {"a.jpg": [{}], "c.jpg": [{"n": 1}]}


def test_names_as_other_systems_write_them() -> None:
    data = b"file_name,noai\nsub\\a.jpg,1\n/b.jpg,2\n\\sub\\c.jpg,3\n.\\d.jpg,4\nx\\e.jpg,5\ncaf\xe9.jpg,6\n"
    names = ["sub/a.jpg", "b.jpg", "/b.jpg", "sub/c.jpg", "d.jpg", "x\\\\e.jpg", "caf\\xe9.jpg"]
    found = table("metadata.csv", data).rows(names)
    assert [found[name][0]["noai"] for name in names] == ["1", "2", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("data", [b"", b"\n\n", b'"', b"a,b\n1,2\n", b'file_name\n"' + b"x" * 200_000, bytes(5000)])
def test_what_is_no_table_says_nothing(data: bytes) -> None:
    assert table("metadata.csv", data).rows(["a.jpg"]) == {}
    assert table("metadata.jsonl", data).rows(["a.jpg"]) == {}


def test_rows_across_the_blocks_of_reading_and_too_long_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata_tables, "_BLOCK_BYTES", 1000)
    rows = [{"file_name": f"{n}.jpg", "n": n, "pad": "x" * (n * 37 % 900)} for n in range(500)]
    rows.insert(250, {"file_name": "long.jpg", "pad": "y" * MAX_ROW_BYTES})
    data = "\n".join(map(json.dumps, rows)).encode()
    found = table("metadata.jsonl", data).rows([str(row["file_name"]) for row in rows])
    assert {name: values[0]["n"] for name, values in found.items()} == {f"{n}.jpg": n for n in range(500)}
    assert "1 rows" in caplog.text


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.text('",\nab', max_size=200).map(str.encode))
def test_any_bytes_are_read_to_the_end(data: bytes) -> None:
    for name in ("metadata.csv", "metadata.jsonl"):
        table(name, data).rows(["a"])
    lines = b"file_name,t\n" + data + b"\n" + b"z,z\n" * 200 + b"last,x\n"
    assert table("metadata.csv", lines).rows(["last"])["last"][0]["t"] == "x"


def test_a_big_table_is_small_in_memory_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 5_000
    with open(tmp_path / "metadata.jsonl", "w") as file:
        for n in range(count):
            file.write(json.dumps({"file_name": f"{n:06d}.jpg", "n": n, "text": "x" * 500}) + "\n")
    files = Files(str(tmp_path), {})
    tracemalloc.start()
    first = cached_table(files, "metadata.jsonl")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(first) == count
    assert held < 1 << 20
    assert peak < 16 << 20
    assert cached_table(files, "metadata.jsonl") is first
    reads = 0
    inner = files.read_range

    def counted(name: str, start: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return inner(name, start, size)

    first._read = lambda offset, size: counted("metadata.jsonl", offset, size)
    names = [f"{n:06d}.jpg" for n in range(1000, 1256)]
    assert [row["n"] for name in names for row in first.rows(names)[name]] == list(range(1000, 1256))
    assert reads == 256
    reads = 0
    first.rows(names)
    assert reads == 1
    time.sleep(0.01)
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.jpg"}\n')
    assert len(cached_table(files, "metadata.jsonl")) == 1


def test_the_nearest_table_comes_first() -> None:
    tables = {
        "": [table("metadata.jsonl", b'{"file_name": "a/b/c.jpg", "k": 0}')],
        "a": [table("a/metadata.jsonl", b'{"file_name": "b/c.jpg", "k": 1}')],
        "a/b": [table("metadata.csv", b"file_name,k\nc.jpg,2\n")],
    }
    assert rows_of(["a/b/c.jpg", "./a/b/c.jpg", "x.jpg"], tables) == {
        "a/b/c.jpg": [{"k": "2"}, {"k": 1}, {"k": 0}],
        "./a/b/c.jpg": [{"k": "2"}, {"k": 1}, {"k": 0}],
        "x.jpg": [],
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"file_name":"a.jpg","text":"caf\xe9","noai":true}', {"text": "caf\ufffd", "noai": True, "p": "not UTF-8"}),
        (b'{"file_name":"a.jpg","noai":true,"n":' + b"9" * 5000 + b"}", {"noai": True, "n": "9" * 5000}),
        (b'{"file_name":"a.jpg","caption":"x","noai":true,}', {"noai": True, "p": "not JSON"}),
    ],
)  # fmt: skip
def test_a_damaged_row_keeps_its_opt_out(line: bytes, expected: dict[str, Any]) -> None:
    if "p" in expected:
        expected["metadata_problem"] = f"row: {expected.pop('p')}"
    assert table("metadata.jsonl", line + b"\n").rows(["a.jpg"]) == {"a.jpg": [expected]}
