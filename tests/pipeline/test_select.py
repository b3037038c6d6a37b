"""Selection: stars, not chains; every dropped row names a kept one within the radius; row order means nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.policy import Limit, Policy, PolicyConfig
from pipeline.plan import Plan
from pipeline.scores import ScoreTable, part_name
from pipeline.select import NearDuplicateConfig, ReadCandidates, SelectConfig, Selection, check_quality, select
from pipeline.storage import Storage
from tests.fixtures.counting import BrightnessScorer, MeanScorer, locator_table, locators, stage_set

Row = dict[str, Any]


def config(radius: int | None = 4, exact: bool = True, quality: tuple[str, ...] = ("pixels", "bytes")) -> SelectConfig:
    near = None if radius is None else NearDuplicateConfig(radius=radius)
    return SelectConfig(exact_duplicates=exact, near_duplicates=near, quality=quality)


def candidates(rows: list[Row], qualities: int = 2) -> pa.Table:
    """Rows of (id, sha256, phash, degenerate, quality)."""
    columns: dict[str, pa.Array] = {
        "row": pa.array([row["row"] for row in rows], pa.int64()),
        "id": pa.array([row["id"] for row in rows], pa.string()),
        "sha256": pa.array([row["sha256"] for row in rows], pa.string()),
        "phash": pa.array([row["phash"] for row in rows], pa.uint64()),
        "phash_degenerate": pa.array([row.get("degenerate", False) for row in rows], pa.bool_()),
    }
    for position in range(qualities):
        columns[f"quality_{position}"] = pa.array(
            [np.nan if (value := row["quality"][position]) is None else value for row in rows], pa.float64()
        )
    return pa.table(columns)


def row(number: int, sha: str, phash: int | None, quality: tuple[float | None, ...] = (1, 1), **more: Any) -> Row:
    return {"row": number, "id": f"id{number:03d}", "sha256": sha, "phash": phash, "quality": quality, **more}


def as_dict(selection: Selection) -> dict[int, tuple[str, str, int]]:
    found = zip(selection.row, selection.reason, selection.duplicate_of, selection.distance, strict=True)
    return {int(at): (reason, keeper, int(bits)) for at, reason, keeper, bits in found}


def distance(one: int, other: int) -> int:
    return (one ^ other).bit_count()


def naive(rows: list[Row], radius: int | None, exact: bool) -> dict[int, tuple[str, str, int]]:
    """One row after the other, the best first: kept, unless a kept row has its bytes or is near it."""

    def rank(item: Row) -> tuple[Any, ...]:
        return (*(-np.inf if value is None else value for value in item["quality"]),)

    order = sorted(sorted(rows, key=lambda item: item["id"]), key=rank, reverse=True)
    kept: list[Row] = []
    drops: dict[int, tuple[str, str, int]] = {}
    for item in order:
        usable = item["phash"] is not None and not item.get("degenerate", False)
        same = [other for other in kept if exact and other["sha256"] == item["sha256"]]
        near = [
            other
            for other in kept
            if radius is not None and usable and other["phash"] is not None and not other.get("degenerate", False)
            and distance(other["phash"], item["phash"]) <= radius
        ]  # fmt: skip
        if same:
            drops[item["row"]] = ("exact_duplicate", same[0]["id"], 0)
        elif near:
            drops[item["row"]] = ("near_duplicate", near[0]["id"], distance(near[0]["phash"], item["phash"]))
        else:
            kept.append(item)
    return drops


# Hashes of a few bits, so that random ones meet; contents that decide the hash, as real bytes do.
HASH = st.integers(0, 255).map(lambda bits: bits * 0x0101_0000_0001)


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    contents = draw(st.lists(st.tuples(st.none() | HASH, st.booleans()), min_size=1, max_size=8))
    picks = draw(st.lists(st.integers(0, len(contents) - 1), max_size=24))
    score = st.none() | st.integers(0, 3)
    rows = []
    for number, pick in enumerate(picks):
        phash, flat = contents[pick]
        quality = (draw(score), draw(score))
        rows.append(row(number * 3, f"sha{pick}", phash, quality, degenerate=flat and pick % 3 == 0))
    ids = draw(st.permutations([item["id"] for item in rows]))
    return [{**item, "id": name} for item, name in zip(rows, ids, strict=True)]


@given(tables(), st.none() | st.integers(0, 8), st.booleans(), st.randoms())
@settings(max_examples=300, deadline=None)
def test_selection_agrees_with_the_naive_reading(rows: list[Row], radius: int | None, exact: bool, random: Any) -> None:
    found = as_dict(select(candidates(rows), config(radius, exact)))
    assert found == naive(rows, radius, exact)
    # Whatever the order in which chunks arrive.
    shuffled = random.sample(rows, len(rows))
    assert as_dict(select(candidates(shuffled), config(radius, exact))) == found
    # Stars: kept rows are apart, dropped rows name a kept one within the radius.
    by_id = {item["id"]: item for item in rows}
    kept = [item for item in rows if item["row"] not in found]
    for at, (reason, keeper, bits) in found.items():
        item = next(item for item in rows if item["row"] == at)
        assert by_id[keeper] in kept
        if reason == "near_duplicate":
            assert bits == distance(item["phash"], by_id[keeper]["phash"]) <= (radius or 0)
        else:
            assert item["sha256"] == by_id[keeper]["sha256"]
            assert bits == 0
    if radius is not None:
        usable = [item["phash"] for item in kept if item["phash"] is not None and not item["degenerate"]]
        pairs = [(one, other) for index, one in enumerate(usable) for other in usable[:index]]
        assert all(distance(one, other) > radius for one, other in pairs)


def test_no_chain_joins_what_is_apart() -> None:
    rows = [row(0, "a", 0, (3, 0)), row(1, "b", 0b111, (2, 0)), row(2, "c", 0b111111, (1, 0))]
    assert as_dict(select(candidates(rows), config(3))) == {1: ("near_duplicate", "id000", 3)}


def test_the_copy_of_a_near_duplicate_names_the_row_that_is_kept() -> None:
    rows = [row(0, "a", 0b1, (1, 0)), row(1, "a", 0b1, (2, 0)), row(2, "b", 0b111, (9, 0)), row(3, "b", 0b111, (1, 0))]
    assert as_dict(select(candidates(rows), config(4))) == {
        0: ("near_duplicate", "id002", 2),
        1: ("near_duplicate", "id002", 2),
        3: ("exact_duplicate", "id002", 0),
    }


def test_quality_goes_column_by_column_then_by_id_and_null_is_worst() -> None:
    def survivor(*qualities: tuple[float | None, float | None]) -> int:
        rows = [row(number, "same", number, quality) for number, quality in enumerate(qualities)]
        drops = as_dict(select(candidates(rows), config(None)))
        (left,) = set(range(len(rows))) - set(drops)
        return left

    assert survivor((1, 9), (2, 0)) == 1
    assert survivor((2, 0), (2, 1)) == 1
    assert survivor((2, 1), (2, 1), (2, 1)) == 0
    assert survivor((None, 9), (0, 0)) == 1
    assert survivor((1, None), (1, -5)) == 1
    assert survivor((None, None), (None, None)) == 0


def test_flat_pictures_are_no_near_duplicates_and_are_counted() -> None:
    rows = [
        row(0, "a", 0, degenerate=True), row(1, "b", 0, degenerate=True), row(2, "c", 0), row(3, "d", 1),
        row(4, "e", None), row(5, "a", 0, degenerate=True),
    ]  # fmt: skip
    selection = select(candidates(rows), config(4))
    assert as_dict(selection) == {3: ("near_duplicate", "id002", 1), 5: ("exact_duplicate", "id000", 0)}
    assert selection.degenerate == 3


@pytest.mark.parametrize("rows", [[], [row(7, "a", 5)]])
def test_nothing_to_drop(rows: list[Row]) -> None:
    assert as_dict(select(candidates(rows), config())) == {}
    assert as_dict(select(candidates(rows, 0), config(quality=()))) == {}
    assert as_dict(Selection.none()) == {}


def test_without_quality_columns_the_smaller_id_survives() -> None:
    rows = [row(5, "a", 5), row(1, "a", 5), row(9, "a", 5)]
    assert sorted(as_dict(select(candidates(rows, 0), config(quality=())))) == [5, 9]


def test_part_is_what_fell_among_some_rows() -> None:
    rows = [row(number, "same", 5) for number in range(10)]
    selection = select(candidates(rows), config())
    part = selection.part(4, 3)
    assert part.row.tolist() == [0, 1, 2]
    assert (list(part.reason), list(part.duplicate_of)) == (["exact_duplicate"] * 3, ["id000"] * 3)
    assert part.distance.tolist() == [0, 0, 0]
    assert selection.part(0, 1).row.tolist() == []
    assert selection.part(0, 10).row.tolist() == list(range(1, 10))


def test_quality_columns_are_checked_before_the_run() -> None:
    stages = stage_set(MeanScorer())
    check_quality(("pixels", "bytes", "person_score", "sharpness"), stages)
    check_quality((), stages)
    with pytest.raises(ValueError, match=r"select\.quality: 'persn_score' is no number.*did you mean person_score\?"):
        check_quality(("pixels", "persn_score"), stages)
    for name in ("format", "phash_degenerate", "aesthetic", "id"):
        with pytest.raises(ValueError, match=f"'{name}' is no number that this run measures"):
            check_quality((name,), stages)


def test_candidates_are_the_rows_that_pass_with_their_global_numbers(tmp_path: Path) -> None:
    storage, stages = Storage(tmp_path), stage_set(MeanScorer(), BrightnessScorer())
    policy = Policy(PolicyConfig(too_small=Limit(min=10), person_too_small=None), stages.names)
    for chunk in range(3):
        table = ScoreTable(locator_table(locators(3)), stages.columns)
        for at in range(3):
            for stage in stages:
                table.scored[stage.name][at] = stage.name != "read"
            table.set(at, {
                "width": 20, "height": 10 + at, "short_side": 10 * at, "bytes": None if at == 1 else 50,
                "sha256": f"{chunk}{at}", "phash": at, "phash_degenerate": False, "aesthetic": 0.5,
                "person_count": 1, "entropy": 5,
            })  # fmt: skip
        if chunk == 1:
            table.fail(2, "person", "scorer_failed", "boom")
        storage.write_table(part_name(chunk), table.to_table({"fingerprints": stages.fingerprints}))
    counts = np.array([3, 3, 3])
    plan = Plan(storage, counts, counts, counts, "x", {})
    assert plan.groups == [(0, 3)]
    read = ReadCandidates(storage, plan, stages, policy, ("pixels", "bytes", "aesthetic"))(0)
    assert read.column("row").to_pylist() == [1, 2, 4, 7, 8]
    assert read.column("sha256").to_pylist() == ["01", "02", "11", "21", "22"]
    assert read.column("quality_0").to_pylist() == [220, 240, 220, 220, 240]
    assert np.isnan(read.column("quality_1").to_numpy()).tolist() == [True, False, True, True, False]
    assert read.column("quality_2").to_pylist() == [0.5] * 5
