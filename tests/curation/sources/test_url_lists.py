import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.sources import SourceError
from curation.sources.filesystem import Files
from curation.sources.url_lists import UrlColumn, list_columns, list_kind, text_rows


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.csv", "csv"), ("A.TSV.GZ", "tsv"), ("a.b.jsonl", "json"), ("a.json", "json"), ("a.ndjson.gz", "json"),
     ("a.txt", "txt")],
)  # fmt: skip
def test_the_suffix_says_the_kind(name: str, kind: str) -> None:
    assert list_kind(name) == kind


@pytest.mark.parametrize("name", ["urls", "urls.dat", "urls.xlsx", "urls.gz", "urls.csv.zst"])
def test_other_suffixes_are_refused(name: str) -> None:
    with pytest.raises(SourceError, match=rf"{name} is no list.*\.csv, \.tsv"):
        list_kind(name)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b'"url","a b"\nu,1\n', ["url", "a b"]),
        ("b.tsv", b'url\t"x"\r\nu\t1\n', ["url", '"x"']),
        ("c.jsonl", b'not JSON\n{}\n{"a": 1}\n{"url": "u", "b": 2}\n', ["metadata_problem", "a", "url", "b"]),
        ("d.json", b'[{"url": "u"}, {"n": 1}]', ["url", "n"]),
        ("e.jsonl", b"", None),
        ("f.csv", b"", None),
        ("g.tsv", b"", None),
        ("h.txt", b"", ["url"]),
        ("j.csv", b"\n \r\nurl,n\n", ["url", "n"]),
        ("k.tsv", b"\n \r\nurl\tn\nu\t1\n", ["url", "n"]),
        ("l.jsonl", b'{"n": 1}\n' * 1500 + b'{"url": "u", "late": 1}\n', ["n", "url"]),
        ("m.jsonl", b'{"n": 1}\n' * 1500, ["n"]),
        ("i.csv.gz", gzip.compress(b"url,n\n", mtime=0), ["url", "n"]),
    ],
)
def test_columns(tmp_path: Path, name: str, content: bytes, expected: list[str] | None) -> None:
    (tmp_path / name).write_bytes(content)
    assert list_columns(Files(str(tmp_path), {}), name, "url") == expected


def test_urls_by_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"url": "u0"}\n\nnot JSON\n{"url": 5}\n{"url": "u4"}\n{"url": "\\udc80"}\n')
    (tmp_path / "b.csv").write_bytes(b"url\nu0\nu\xe91\nu2\n")
    odd = pa.array([b"u0", b"u\xe91", b"u2"]).view(pa.string())
    for name, column in {"c": odd, "d": odd.dictionary_encode(), "e": pa.array([b"u0", b"u\xe91", b"u2"])}.items():
        pq.write_table(pa.table({"x.url": ["no"] * 3, "url": column}), tmp_path / f"{name}.parquet", row_group_size=2)
    urls = UrlColumn(Files(str(tmp_path), {}), "url")
    assert urls.lookup("a.jsonl", [0, 2, 3, 4, 5, 9]) == ["u0", None, None, "u4", None, None]
    for name in ("b.csv", "c.parquet", "d.parquet", "e.parquet"):
        assert urls.lookup(name, [2, 0, 1, 7]) == ["u2", "u0", None, None], name


def test_a_list_that_is_cut_keeps_its_first_rows(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"http://h/{n}\n" for n in range(50_000)).encode())
    (tmp_path / "a.txt.gz").write_bytes(whole[: len(whole) // 2])
    files = Files(str(tmp_path), {})
    rows = text_rows(files, "a.txt.gz", "url")
    count = 0
    with pytest.raises(EOFError):
        for count, _ in enumerate(rows, 1):  # noqa: B007
            pass
    assert 10_000 < count < 40_000
    assert UrlColumn(files, "url").lookup("a.txt.gz", [0, count - 1, count]) == [
        "http://h/0", f"http://h/{count - 1}", None
    ]  # fmt: skip
