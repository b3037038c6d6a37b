import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.sources.arrow_values import PROBLEM
from curation.sources.csv_rows import MAX_FIELD_CHARS, MAX_FIELD_LINES, csv_header, csv_rows

STRAY = "a quote begins a field here and none ends it; taken for a character"


def rows(text: str, url: str = "url") -> list[tuple[int, dict[str, Any]]]:
    return list(csv_rows(io.StringIO(text, newline=""), url))


def values(text: str, url: str = "url") -> list[dict[str, Any]]:
    return [row for _, row in rows(text, url)]


@pytest.mark.parametrize("position", ["caption", "closing", "url", "last"])
@pytest.mark.parametrize("quoted", [False, True])
def test_one_stray_quote_in_5000_lines_costs_one_row(position: str, quoted: bool) -> None:
    def line(n: int) -> str:
        return f'"http://h/{n}","a caption, {n}",5' if quoted else f"http://h/{n},a caption {n},5"

    lines = [line(n) for n in range(5000)]
    at = 4999 if position == "last" else 1234
    lines[at] = {
        "caption": f'http://h/{at},"a caption {at},5',
        "last": f'http://h/{at},"a caption {at},5',
        "closing": f'http://h/{at},a "caption" {at}",5',
        "url": f'"http://h/{at},a caption {at},5',
    }[position]
    found = values("url,caption,n\n" + "\n".join(lines))
    assert len(found) == 5000
    for n, row in enumerate(found):
        if n != at:
            assert row == {"url": f"http://h/{n}", "caption": f"a caption{', ' if quoted else ' '}{n}", "n": "5"}
    expected = {
        "caption": {"url": f"http://h/{at}", "caption": f'"a caption {at}', "n": "5"},
        "closing": {"url": f"http://h/{at}", "caption": f'a "caption" {at}"', "n": "5"},
        "url": {"url": f'"http://h/{at}', "caption": f"a caption {at}", "n": "5"},
    }
    expected["last"] = expected["caption"]
    assert {key: text for key, text in found[at].items() if key != PROBLEM} == expected[position]
    assert found[at].get(PROBLEM) == (None if position == "closing" else f"line {at + 2}: {STRAY}")


def test_two_stray_quotes_far_apart_swallow_nothing_that_has_a_url() -> None:
    lines = [f"http://h/{n},caption {n}" for n in range(200)]
    lines[20] = 'http://h/20,"open'
    lines[60] = 'http://h/60,closed"'
    found = values("url,caption\n" + "\n".join(lines))
    assert [row["url"] for row in found] == [f"http://h/{n}" for n in range(200)]
    assert [n for n, row in enumerate(found) if PROBLEM in row] == [20]


def test_quoted_fields_may_hold_lines_delimiters_and_quotes() -> None:
    text = (
        'caption,url,"n ""x"""\r\n"one, ""two""\r\n\r\nthree",http://h/0,1\r\n\r\n"",http://h/1,"2"\r\nlast,http://h/2,'
    )
    assert rows(text) == [
        (0, {"caption": 'one, "two"\n\nthree', "url": "http://h/0", 'n "x"': "1"}),
        (1, {"caption": "", "url": "http://h/1", 'n "x"': "2"}),
        (2, {"caption": "last", "url": "http://h/2", 'n "x"': ""}),
    ]


def test_a_caption_that_quotes_a_link_on_its_own_line_is_one_row_and_says_so() -> None:
    (row,) = values('url,caption\nhttp://h/0,"see\nhttp://elsewhere/x\nfor more"\n')
    doubt = "line 2: a quoted field holds a line that may be a row; taken for text of this one"
    assert row == {"url": "http://h/0", "caption": "see\nhttp://elsewhere/x\nfor more", PROBLEM: doubt}
    (row,) = values('url,caption\nhttp://h/0,"see it at\nour http://elsewhere/x\nfor more"\n')
    assert row == {"url": "http://h/0", "caption": "see it at\nour http://elsewhere/x\nfor more"}


@pytest.mark.parametrize(
    ("header", "lines", "urls"),
    [
        # One column: what follows a quote is a row, also where the list's other quote closes it.
        (
            "url",
            ['"http://h/0.jpg', *(f"http://h/{n}.jpg" for n in range(1, 9)), 'http://h/9.jpg"', "http://h/10.jpg"],
            ['"http://h/0.jpg', *(f"http://h/{n}.jpg" for n in range(1, 9)), 'http://h/9.jpg"', "http://h/10.jpg"],
        ),
        # Rows with fewer fields than the header.
        (
            "url,caption,w",
            ['http://h/0.jpg,"big', "http://h/1.jpg,cap", 'http://h/2.jpg,pipe 12"', "http://h/3.jpg,x,3"],
            [f"http://h/{n}.jpg" for n in range(4)],
        ),
        # URLs that the downloader refuses or mends are URLs.
        *(
            (
                "id,url",
                [f'1,"{url}0.jpg', f"2,{url}1.jpg", f'3,{url}2.jpg"'],
                [f'"{url}0.jpg', f"{url}1.jpg", f'{url}2.jpg"'],
            )
            for url in ("http://h/", "ftp://h/", " http://h/", "h/", "//h/", "HTTPS://h/")
        ),
        *(
            ("url,n", [f'{url}0.jpg,"1', f"{url}1.jpg,2", f'{url}2.jpg,3"'], [f"{url}{n}.jpg" for n in range(3)])
            for url in ("http://h/", "ftp://h/", " http://h/", "h/", "//h/", "s3://b/")
        ),
        # The quote comes before the URL, and closes on the next line.
        ("caption,url", ['"big,http://h/0', 'pipe 12",http://h/1'], ["http://h/0", "http://h/1"]),
        ("url", ['"http://h/a b', 'no url"'], ['"http://h/a b', 'no url"']),
    ],
)  # fmt: skip
def test_every_line_with_a_url_in_its_column_is_a_row(header: str, lines: list[str], urls: list[str]) -> None:
    found = values("\n".join([header, *lines]))
    assert [row["url"] for row in found] == urls
    assert [row.get(PROBLEM) for row in found] == [f"line 2: {STRAY}", *[None] * (len(lines) - 1)]


def test_a_quoted_url_may_have_blank_lines_about_it() -> None:
    assert values('url,caption\n"\nhttp://h/0.jpg\n","and\nso, on"\n') == [
        {"url": "\nhttp://h/0.jpg\n", "caption": "and\nso, on"}
    ]


def test_blank_lines_before_the_header() -> None:
    text = "\n \t\n\r\nurl,caption\nhttp://h/0,x\n"
    assert csv_header(io.StringIO(text, newline=""), "url") == ["url", "caption"]
    assert rows(text) == [(0, {"url": "http://h/0", "caption": "x"})]


@pytest.mark.parametrize(("extra", "whole"), [(0, True), (1, False)])
def test_the_bound_of_lines(extra: int, whole: bool) -> None:
    text = 'url,caption\nu,"' + "\n".join(["x"] * (MAX_FIELD_LINES + 1 + extra)) + '"\nv,w\n'
    found = values(text)
    assert (len(found) == 2) is whole
    assert len(found) == 2 if whole else len(found) == MAX_FIELD_LINES + 3
    assert (PROBLEM in found[0]) is not whole
    assert found[-1] == {"url": "v", "caption": "w"}


def test_the_bound_of_characters() -> None:
    line = "x" * 1000
    text = f'url,caption\nu,"{line}' + f"\n{line}" * (MAX_FIELD_CHARS // 1000 + 2) + '"\n'
    assert len(values(text)) == MAX_FIELD_CHARS // 1000 + 3


def test_surplus_fields_are_told_and_missing_ones_are_absent() -> None:
    assert values("url,caption\nu,one, two\nv\n") == [
        {"url": "u", "caption": "one", PROBLEM: "line 2: 3 fields where the header has 2 columns"},
        {"url": "v"},
    ]


@pytest.mark.parametrize("text", ["", "\n", "url", "url\n\n\n"])
def test_lists_without_rows(text: str) -> None:
    assert values(text) == []


def test_headers() -> None:
    assert csv_header(io.StringIO('"a,b",c\n1,2'), "url") == ["a,b", "c"]
    assert csv_header(io.StringIO(""), "url") == []


def test_a_stray_quote_in_the_header_swallows_no_row() -> None:
    text = 'url,"size\nhttp://h/0,5\nhttp://h/1,6"\n'
    assert csv_header(io.StringIO(text), "url") == ["url", '"size']
    assert values(text) == [
        {"url": "http://h/0", '"size': "5"},
        {"url": "http://h/1", '"size': '6"'},
    ]
    assert values('url,"size\n(px)"\nhttp://h/0,5\n') == [{"url": "http://h/0", "size\n(px)": "5"}]


field = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8)


@given(st.lists(st.lists(field, min_size=3, max_size=3), min_size=1, max_size=12))
def test_what_the_csv_module_writes_is_read_back(table: list[list[str]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["a", "b", "c"], *table])
    assert [list(row.values()) for row in values(out.getvalue())] == table


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=30), max_size=30))
def test_no_line_is_lost_and_nothing_raises(lines: list[str]) -> None:
    """With a URL in front, every line is a row, whatever quotes follow."""
    text = "url,caption\n" + "\n".join(f"http://h/{n},{line}" for n, line in enumerate(lines))
    found = values(text.replace('""', "'"))
    swallowed = sum(row.get("caption", "").count("\nhttp://h/") for row in found)
    assert len(found) + swallowed == len(lines)
