from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from curation.records import record_id
from pipeline.demo.check import Report, Score, check, combine
from pipeline.demo.floors import failures, passes
from pipeline.demo.truth import Truth, to_table

HASHES = {"a": 0x0F0F0F0F0F0F0F0F, "b": 0xFF00FF00FF00FF00, "c": 0x00FF00FFF00F0FF0}


def truth_row(name: str, expected: str, group: str, acceptable: tuple[str, ...] = ()) -> Truth:
    return Truth(record_id(name, ""), name, "", expected, acceptable, group, "kind", "none", True, "note", None)


TRUTH = to_table(
    [
        truth_row("a1", "kept", "a"),
        truth_row("a2", "near_duplicate", "a"),
        truth_row("a3", "near_duplicate", "a", ("kept",)),
        truth_row("b1", "kept", "b"),
        truth_row("b2", "exact_duplicate", "b"),
        truth_row("c1", "no_person", "c", ("not_photo",)),
        truth_row("d1", "too_small", "d"),
        truth_row("e1", "too_small", "e"),
    ]
)


def ledger_row(name: str, reason: str | None, phash: int | None = None, of: str | None = None) -> dict[str, Any]:
    return {
        "id": record_id(name, ""),
        "verdict": "kept" if reason is None else "dropped",
        "reason": reason,
        "duplicate_of": None if of is None else record_id(of, ""),
        "distance": None,
        "phash": phash,
        "phash_degenerate": False,
    }


def perfect() -> dict[str, dict[str, Any]]:
    return {
        "a1": ledger_row("a1", None, HASHES["a"]),
        "a2": ledger_row("a2", "near_duplicate", HASHES["a"] ^ 0b11, "a1") | {"distance": 2},
        "a3": ledger_row("a3", "near_duplicate", HASHES["a"], "a1") | {"distance": 0},
        "b1": ledger_row("b1", None, HASHES["b"]),
        "b2": ledger_row("b2", "exact_duplicate", HASHES["b"], "b1"),
        "c1": ledger_row("c1", "no_person", HASHES["c"]),
        "d1": ledger_row("d1", "too_small"),
        "e1": ledger_row("e1", "too_small"),
    }


def run(rows: dict[str, dict[str, Any]] | list[dict[str, Any]]) -> Report:
    listed = list(rows.values()) if isinstance(rows, dict) else rows
    types = {"distance": pa.int16(), "phash": pa.uint64()}
    columns = {name: pa.array([row[name] for row in listed], types.get(name)) for name in listed[0]}
    return check(pa.table(columns), TRUTH)


def test_a_perfect_ledger() -> None:
    report = run(perfect())
    assert report.scores == (
        Score("kept", 2, 2, 2, 0),
        Score("too_small", 2, 2, 2, 0),
        Score("no_person", 1, 1, 1, 0),
        Score("exact_duplicate", 1, 1, 1, 0),
        Score("near_duplicate", 2, 2, 2, 0),
    )
    assert (report.inputs, report.rows, report.kept, report.dropped) == (8, 8, 2, 6)
    assert report.adds_up
    assert report.mistakes == ()
    assert (report.links.exact, report.links.near) == (1, 2)
    assert failures(report) == []
    assert passes(report)


def test_which_member_of_a_family_survives_does_not_matter() -> None:
    rows = perfect()
    rows["a1"] = ledger_row("a1", "near_duplicate", HASHES["a"], "a2") | {"distance": 2}
    rows["a2"] = ledger_row("a2", None, HASHES["a"] ^ 0b11)
    rows["a3"] = ledger_row("a3", "near_duplicate", HASHES["a"], "a2") | {"distance": 2}
    rows["b1"], rows["b2"] = ledger_row("b1", "exact_duplicate", HASHES["b"], "b2"), ledger_row("b2", None, HASHES["b"])
    report = run(rows)
    assert report.scores == run(perfect()).scores
    assert passes(report)


def test_an_acceptable_label_counts_as_the_expected_one() -> None:
    rows = perfect()
    rows["a3"] = ledger_row("a3", None, HASHES["c"])
    rows["c1"] = ledger_row("c1", "not_photo")
    report = run(rows)
    assert report.score("kept") == Score("kept", 3, 3, 3, 1)
    assert report.score("near_duplicate") == Score("near_duplicate", 1, 1, 1, 0)
    assert report.score("not_photo") == Score("not_photo", 1, 1, 1, 1)
    assert report.score("no_person") == Score("no_person", 0, 0, 0, 0)
    assert report.mistakes == ()


def test_a_lost_row_is_found_and_costs_recall() -> None:
    rows = perfect()
    del rows["d1"]
    report = run(rows)
    assert report.missing == (record_id("d1", ""),)
    assert not report.adds_up
    assert report.score("too_small") == Score("too_small", 2, 1, 1, 0)
    assert report.score("too_small").recall == 0.5
    assert report.score("too_small").precision == 1.0
    assert [item.found for item in report.mistakes] == ["(no row)"]
    assert not passes(report)
    assert "1 missing" in failures(report)[0]


def test_a_wrong_reason_costs_precision_of_one_label_and_recall_of_the_other() -> None:
    rows = perfect()
    rows["d1"] = ledger_row("d1", "no_person")
    report = run(rows)
    assert report.score("no_person") == Score("no_person", 1, 2, 1, 0)
    assert report.score("no_person").precision == 0.5
    assert report.score("too_small").recall == 0.5
    assert [(item.uri, item.expected, item.found) for item in report.mistakes] == [("d1", "too_small", "no_person")]
    assert not passes(report)


def test_a_copy_of_a_picture_that_was_dropped_shares_its_verdict() -> None:
    rows = perfect()
    rows["b1"], rows["b2"] = ledger_row("b1", "blurred"), ledger_row("b2", "blurred")
    report = run(rows)
    assert report.score("exact_duplicate") == Score("exact_duplicate", 0, 0, 0, 0)
    assert report.score("kept") == Score("kept", 2, 1, 1, 0)
    assert math.isnan(report.score("exact_duplicate").recall)
    assert report.score("blurred") == Score("blurred", 0, 2, 0, 0)


def test_both_copies_kept_is_a_missed_exact_duplicate() -> None:
    rows = perfect()
    rows["b2"] = ledger_row("b2", None, HASHES["b"])
    report = run(rows)
    assert report.score("exact_duplicate") == Score("exact_duplicate", 1, 0, 0, 0)
    assert report.score("kept") == Score("kept", 2, 3, 2, 0)
    assert report.links.kept_pairs == 1
    assert not passes(report)


def test_rows_that_are_extra_repeated_or_contradictory_are_named() -> None:
    rows = list(perfect().values())
    rows.append(ledger_row("unknown", None, HASHES["c"]))
    rows.append(rows[0])
    rows[6] = {**rows[6], "verdict": "kept"}
    report = run(rows)
    assert report.extra == (record_id("unknown", ""),)
    assert report.repeated == (record_id("a1", ""),)
    assert report.inconsistent == (record_id("d1", ""),)
    assert not passes(report)


def test_reports_add_up_over_runs() -> None:
    good, bad = run(perfect()), perfect()
    bad["d1"] = ledger_row("d1", "no_person")
    both = combine([good, run(bad)])
    assert (both.inputs, both.rows, both.kept, both.dropped) == (16, 16, 4, 12)
    assert both.score("too_small") == Score("too_small", 4, 3, 3, 0)
    assert both.score("no_person") == Score("no_person", 2, 3, 2, 0)
    assert len(both.mistakes) == 1
    assert both.adds_up
    assert (both.links.exact, both.links.near) == (2, 4)


def test_a_ledger_without_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column duplicate_of"):
        check(pa.table({"id": ["x"], "verdict": ["kept"], "reason": ["x"], "distance": [1], "phash": [1]}), TRUTH)
