from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.demo.links import DuplicateLinks, duplicate_links

A, B = 0x0F0F0F0F0F0F0F0F, 0xFF00FF00FF00FF00
FAMILIES = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b", "c1": "c"}
GOOD = DuplicateLinks(exact=1, near=2, not_kept=0, other_family=0, wrong_distance=0, kept_pairs=0)


def row(
    name: str, reason: str | None, phash: int | None, of: str | None = None, distance: int | None = None
) -> dict[str, Any]:
    return {
        "id": name,
        "verdict": "kept" if reason is None else "dropped",
        "reason": reason,
        "duplicate_of": of,
        "distance": distance,
        "phash": phash,
    }


def ledger() -> dict[str, dict[str, Any]]:
    rows = [
        row("a1", None, A),
        row("a2", "near_duplicate", A ^ 0b11, "a1", 2),
        row("a3", "near_duplicate", A, "a1", 0),
        row("b1", None, B),
        row("b2", "exact_duplicate", B, "b1"),
        row("c1", "too_small", None),
    ]
    return {item["id"]: item for item in rows}


def links(rows: dict[str, dict[str, Any]]) -> DuplicateLinks:
    return duplicate_links(list(rows.values()), FAMILIES, radius=4)


def test_stars_are_counted() -> None:
    assert links(ledger()) == GOOD


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"duplicate_of": "c1"}, "not_kept"),
        ({"duplicate_of": "a3"}, "not_kept"),
        ({"duplicate_of": "nowhere"}, "not_kept"),
        ({"duplicate_of": None}, "not_kept"),
        ({"distance": 3}, "wrong_distance"),
        ({"phash": A ^ 0b11111, "distance": 5}, "wrong_distance"),
        ({"phash": None}, "wrong_distance"),
    ],
)
def test_broken_links_are_counted(change: dict[str, Any], field: str) -> None:
    rows = ledger()
    rows["a2"] |= change
    assert links(rows) == replace(GOOD, **{field: 1})


def test_links_across_families_are_counted() -> None:
    rows = ledger()
    rows["b2"]["duplicate_of"] = "a1"
    assert links(rows) == replace(GOOD, other_family=1)


def test_kept_rows_within_the_radius_are_counted_unless_degenerate() -> None:
    rows = ledger()
    rows["b1"]["phash"] = A ^ 0b1111
    assert links(rows).kept_pairs == 1
    rows["b1"]["phash"] = A ^ 0b11111
    assert links(rows).kept_pairs == 0
    rows["b1"] |= {"phash": A, "phash_degenerate": True}
    assert links(rows).kept_pairs == 0


def test_an_empty_ledger_has_no_duplicates() -> None:
    assert duplicate_links([], {}, 4) == DuplicateLinks(0, 0, 0, 0, 0, 0)
