"""The funnel as a table, and the end of a run."""

from __future__ import annotations

import io

from rich.console import Console

from pipeline.report import funnel_table, print_outcome

FUNNEL = {"inputs": 2000, "kept": 500, "dropped": {"corrupt": 100, "no_person": 1390, "of_another_version": 10}}


def shown(funnel: dict[str, object]) -> list[str]:
    out = Console(file=io.StringIO(), width=140)
    out.print(funnel_table(funnel))
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_the_table_has_every_count_its_share_and_its_meaning() -> None:
    rows = {line.strip("│┃ ").split()[0]: line.split() for line in shown(FUNNEL) if "│" in line}
    assert {name: cells[3:6:2] for name, cells in rows.items()} == {
        "inputs": ["2,000", "100.0%"], "corrupt": ["100", "5.0%"], "no_person": ["1,390", "69.5%"],
        "of_another_version": ["10", "0.5%"], "kept": ["500", "25.0%"],
    }  # fmt: skip
    assert any("the image data cannot be decoded" in line for line in shown(FUNNEL))


def test_nothing_dropped_and_nothing_at_all() -> None:
    assert any("kept" in line and "100.0%" in line for line in shown({"inputs": 3, "kept": 3, "dropped": {}}))
    assert any("inputs" in line and line.split()[5] == "-" for line in shown({"inputs": 0, "kept": 0, "dropped": {}}))


def test_the_outcome_says_where_things_are_and_what_to_do_next() -> None:
    out = Console(file=io.StringIO(), width=60)
    print_outcome(out, "/a/long/path/[to]/the run", FUNNEL, 1)
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    for piece in (
        "/a/long/path/[to]/the run/ledger/", "/a/long/path/[to]/the run/shards/", " 1 tar,",
        "/a/long/path/[to]/the run/lineage.json", "populace funnel /a/long/path/[to]/the run --json",
    ):  # fmt: skip
        assert piece in text
