"""The score table of a chunk: what is written comes back, what is stale does not, what is missing is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.policy import Limit, Policy, PolicyConfig
from curation.reasons import Reason
from curation.records import Locator, record_id
from pipeline.scores import LOCATOR_COLUMNS, ScoreTable, missing_scores, part_meta, part_name, read_scores, to_arrow
from pipeline.stages import StageSet
from pipeline.storage import DamagedFileError, Storage
from tests.fixtures.counting import (
    BrightnessScorer,
    MeanScorer,
    ScoreReader,
    VectorScorer,
    locator_table,
    locators,
    stage_set,
)

FLOATS = st.floats(width=32, allow_nan=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), FLOATS),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), TEXT),
    (pa.list_(pa.float16()), st.lists(st.floats(width=16, allow_nan=False), max_size=5)),
    (pa.list_(pa.float32()), st.lists(FLOATS, max_size=5)),
    (pa.list_(pa.int32()), st.lists(st.integers(-9, 9), max_size=4)),
    (pa.list_(pa.string()), st.lists(TEXT, max_size=3)),
    (pa.list_(pa.list_(pa.float32())), st.lists(st.lists(FLOATS, max_size=3), max_size=3)),
]


@st.composite
def columns(draw: st.DrawFn) -> dict[str, tuple[pa.DataType, list[Any]]]:
    rows = draw(st.integers(0, 6))
    return {
        f"c{number}": (type_, draw(st.lists(st.none() | values, min_size=rows, max_size=rows)))
        for number, (type_, values) in enumerate(TYPES)
    }


@given(columns(), st.data())
@settings(max_examples=60, deadline=None)
def test_every_column_type_comes_back_from_parquet(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, tuple[pa.DataType, list[Any]]], data: st.DataObject
) -> None:
    rows = len(values["c0"][1])
    stages = {"read": {}, "person": {name: type_ for name, (type_, _) in values.items()}}
    table = ScoreTable(locator_table(locators(rows)), stages)
    scored = [data.draw(st.booleans()) for _ in range(rows)]
    for row in range(rows):
        table.set(row, {name: column[row] for name, (_, column) in values.items()})
        table.scored["person"][row] = scored[row]
    storage = Storage(tmp_path_factory.mktemp("scores"))
    storage.write_table("part.parquet", table.to_table({"fingerprints": {"read": "", "person": "x"}}))
    again = ScoreTable(locator_table(locators(rows)), stages)
    again.load(storage.read_table("part.parquet"), {"read": "", "person": "x"})
    assert again.scored["person"] == scored
    for name, (_, column) in values.items():
        assert again.columns[name] == column
        assert table.to_table({}).column(name).to_pylist() == column
    assert again.to_table({"a": 1}).equals(table.to_table({"a": 1}))
    assert again.to_table({"a": 1}).schema.field("c9").type == pa.list_(pa.float16())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numpy_values_are_taken(dtype: Any) -> None:
    vectors = [np.arange(3, dtype=dtype) / 4, None, np.empty(0, dtype)]
    array = to_arrow(vectors, pa.list_(pa.float16()))
    assert array.to_pylist() == [[0, 0.25, 0.5], None, []]
    assert to_arrow([None, None], pa.list_(pa.float16())).to_pylist() == [None, None]
    assert to_arrow([], pa.list_(pa.float16())).to_pylist() == []
    assert to_arrow([dtype(0.5), None], pa.float32()).to_pylist() == [0.5, None]
    assert to_arrow([np.uint64(2**64 - 1), None], pa.uint64()).to_pylist() == [2**64 - 1, None]
    assert to_arrow([np.bool_(True), None, False], pa.bool_()).to_pylist() == [True, None, False]


def test_values_have_the_stored_precision_at_once() -> None:
    """What a later stage reads must not depend on whether the earlier one ran in the same run."""
    types = {"single": pa.float32(), "double": pa.float64(), "half": pa.list_(pa.float16()), "whole": pa.int32()}
    table = ScoreTable(locator_table(locators(1)), {"person": types})
    values = {"single": 0.1, "double": 0.1, "half": [0.1, np.float64(0.3)], "whole": np.int64(3)}
    table.set(0, values)
    now = {name: table.columns[name][0] for name in types}
    stored = {name: table.to_table({}).column(name).to_pylist()[0] for name in types}
    assert {**now, "half": now["half"].tolist()} == stored
    assert stored["single"] == float(np.float32(0.1)) != 0.1
    assert stored["half"] == [np.float16(0.1), np.float16(0.3)]
    table.set(0, dict.fromkeys(types))
    assert [table.columns[name][0] for name in types] == [None] * 4


def test_problems_of_the_listing_are_there_from_the_start() -> None:
    rows = locators(2)
    rows.append(Locator(record_id("bad.tar", ""), "bad.tar", problem=Reason.BAD_CONTAINER, problem_detail="no tar"))
    table = ScoreTable(locator_table(rows), {"read": {}})
    assert table.columns["problem"] == [None, None, "bad_container"]
    assert table.columns["problem_stage"] == [None, None, "read"]
    assert table.columns["problem_detail"] == [None, None, "no tar"]
    assert table.columns["uri"] == ["0.jpg", "1.jpg", "bad.tar"]


def test_a_detail_is_short_and_can_be_stored_whatever_it_holds() -> None:
    table = ScoreTable(locator_table(locators(1)), {"read": {}})
    table.fail(0, "read", Reason.CORRUPT, "half a pair \ud83d " + "x" * 1000)
    stored = table.to_table({}).column("problem_detail").to_pylist()[0]
    assert stored.startswith("half a pair ? xxx")
    assert len(stored) == 500


# A part on disk, and stages that changed since


def written(storage: Storage, stages: StageSet, rows: int = 4) -> ScoreTable:
    """A part in which row r has the values r, except that row 2 failed at "person" and row 3 at "read"."""
    table = ScoreTable(locator_table(locators(rows)), stages.columns)
    for row in range(rows):
        table.set(row, {"http_status": 200 + row, "final_url": f"u{row}"})
        if row == 3:
            table.fail(row, "read", Reason.HTTP_ERROR, "404")
            continue
        for stage in stages:
            table.scored[stage.name][row] = stage.name != "read"
            for name, type_ in stage.columns.items():
                value: Any = [row / 4] * 3 if pa.types.is_list(type_) else row
                table.set(
                    row, {name: str(row) if type_ == pa.string() else bool(row) if type_ == pa.bool_() else value}
                )
        if row == 2:
            table.fail(row, "person", Reason.SCORER_FAILED, "boom")
            table.set(row, dict.fromkeys(stages.columns["person"]))
            for stage in stages.after("person"):
                table.scored[stage.name][row] = False
                table.set(row, dict.fromkeys(stage.columns))
    storage.write_table(part_name(0), table.to_table({"fingerprints": stages.fingerprints, "rows": rows}))
    return table


def everything(person: str = "one", embedding: str = "one") -> StageSet:
    return stage_set(MeanScorer(model=person), VectorScorer(model=embedding), BrightnessScorer(), ScoreReader())


def test_unchanged_stages_come_back_whole(tmp_path: Path) -> None:
    storage, stages = Storage(tmp_path), everything()
    table = written(storage, stages)
    read = read_scores(storage, 0, stages)
    assert read.drop_columns([f"scored_{name}" for name in stages.names]).equals(
        table.to_table({}).replace_schema_metadata(None).select(list(table.columns))
    )
    assert read.column("scored_person").to_pylist() == [True, True, True, False]
    again = ScoreTable(locator_table(locators(4)), stages.columns)
    again.load(storage.read_table(part_name(0)), stages.fingerprints)
    assert again.to_table({}).equals(table.to_table({}))
    assert again.scored == table.scored


def test_a_changed_model_hides_its_columns_its_dependants_and_its_problems(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    written(storage, everything())
    stages = everything(person="two")
    read = read_scores(storage, 0, stages)
    for name in ("person_count", "person_score", "person_short_side", "realism"):
        assert read.column(name).to_pylist() == [None] * 4
        assert read.schema.field(name).type == {**stages.columns["person"], **stages.columns["realism"]}[name]
    assert read.column("scored_person").to_pylist() == [False] * 4
    assert read.column("scored_realism").to_pylist() == [False] * 4
    assert read.column("problem").to_pylist() == [None, None, None, "http_error"]
    assert read.column("problem_stage").to_pylist() == [None, None, None, "read"]
    assert read.column("problem_detail").to_pylist() == [None, None, None, "404"]
    assert read.column("aesthetic").to_pylist() == [0, 1, None, None]
    assert read.column("embedding").to_pylist() == [[0.0] * 3, [0.25] * 3, None, None]
    assert read.column("http_status").to_pylist() == [200, 201, 202, 203]
    again = ScoreTable(locator_table(locators(4)), stages.columns)
    again.load(storage.read_table(part_name(0)), stages.fingerprints)
    assert again.columns == {name: read.column(name).to_pylist() for name in again.columns}
    assert again.scored == {name: read.column(f"scored_{name}").to_pylist() for name in stages.names}


def test_a_scorer_that_is_new_or_gone(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    written(storage, stage_set(MeanScorer()))
    read = read_scores(storage, 0, everything())
    assert read.column("embedding").to_pylist() == [None] * 4
    assert read.column("scored_embedding").to_pylist() == [False] * 4
    assert read.column("person_count").to_pylist() == [0, 1, None, None]
    fewer = read_scores(storage, 0, stage_set())
    assert "person_count" not in fewer.column_names
    # A problem of a scorer that is not configured any more is none.
    assert fewer.column("problem").to_pylist() == [None, None, None, "http_error"]


def test_only_the_columns_asked_for_come(tmp_path: Path) -> None:
    storage, stages = Storage(tmp_path), everything()
    written(storage, stages)
    read = read_scores(storage, 0, stages, {"sha256", "aesthetic"})
    expected = [
        *LOCATOR_COLUMNS, "sha256", "aesthetic", "problem", "problem_stage", "problem_detail",
        *(f"scored_{name}" for name in stages.names),
    ]  # fmt: skip
    assert read.column_names == expected


def test_retry_forgets_the_problems_asked_for_only(tmp_path: Path) -> None:
    storage, stages = Storage(tmp_path), everything()
    written(storage, stages)
    part = storage.read_table(part_name(0))

    def load(*reasons: str) -> ScoreTable:
        table = ScoreTable(locator_table(locators(4)), stages.columns)
        table.load(part, stages.fingerprints, reasons)
        return table

    assert load().columns["problem"] == [None, None, "scorer_failed", "http_error"]
    scorer = load("scorer_failed", "missing")
    assert scorer.columns["problem"] == [None, None, None, "http_error"]
    assert scorer.scored["person"] == [True, True, False, False]
    assert scorer.scored["screen"] == [True, True, True, False]
    assert load("http_error").columns["problem"] == [None, None, "scorer_failed", None]


def test_a_problem_behind_a_stage_that_must_be_measured_again_is_found_again(tmp_path: Path) -> None:
    """Else the row would be the only one without the earlier stage's columns."""
    storage = Storage(tmp_path)
    stages = stage_set(VectorScorer(), ScoreReader(), MeanScorer())
    table = ScoreTable(locator_table(locators(1)), stages.columns)
    for name in ("header", "screen", "person", "embedding", "realism"):
        table.scored[name][0] = True
    table.fail(0, "realism", Reason.SCORER_FAILED, "boom")
    storage.write_table(part_name(0), table.to_table({"fingerprints": stages.fingerprints}))
    changed = stage_set(VectorScorer(model="two"), ScoreReader(), MeanScorer())
    again = ScoreTable(locator_table(locators(1)), changed.columns)
    again.load(storage.read_table(part_name(0)), changed.fingerprints)
    assert again.columns["problem"] == [None]
    assert {name for name, rows in again.scored.items() if rows[0]} == {"header", "screen", "person"}
    assert missing_scores(read_scores(storage, 0, changed), Policy(PolicyConfig(), changed.names))


def test_part_meta_of_a_foreign_schema_is_empty() -> None:
    assert part_meta(pa.schema([])) == {}
    assert part_meta(pa.schema([], metadata={b"populace": json.dumps({"chunk": 3}).encode()})) == {"chunk": 3}


# missing_scores


STAGES = stage_set(MeanScorer(), BrightnessScorer(), VectorScorer())
LIMITS = PolicyConfig(
    too_small=Limit(min=4), aspect_ratio=None, low_entropy=Limit(min=2), no_person=Limit(min=1),
    person_too_small=None, person_score=Limit(max=0.5), low_aesthetic=Limit(min=3),
)  # fmt: skip
VALUE = st.none() | st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0])


@st.composite
def score_tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 4))
    problem_stage = draw(st.lists(st.none() | st.sampled_from(STAGES.names), min_size=rows, max_size=rows))
    data: dict[str, Any] = {
        "problem": ["corrupt" if at else None for at in problem_stage],
        "problem_stage": problem_stage,
    }
    for name in STAGES.names:
        data[f"scored_{name}"] = draw(
            st.lists(st.sampled_from([True, True, True, False]), min_size=rows, max_size=rows)
        )
    for name in ("short_side", "local_entropy", "person_count", "person_score", "aesthetic"):
        data[name] = draw(st.lists(VALUE, min_size=rows, max_size=rows))
    types = {name: pa.bool_() if name.startswith("scored_") else pa.float64() for name in data}
    types |= {"problem": pa.string(), "problem_stage": pa.string()}
    return pa.table({name: pa.array(values, types[name]) for name, values in data.items()})


def slow_missing(table: pa.Table) -> bool:
    """Row by row and stage by stage: does a row come to a stage that has neither measured it nor failed on it?"""
    limits = {
        "header": [("short_side", 4, None)], "screen": [("local_entropy", 2, None)],
        "person": [("person_count", 1, None), ("person_score", None, 0.5)], "aesthetic": [("aesthetic", 3, None)],
    }  # fmt: skip
    for row in table.to_pylist():
        for stage in STAGES.names:
            if row["problem_stage"] == stage:
                break
            if stage == "read":
                continue
            if not row[f"scored_{stage}"]:
                return True
            values = [(row[name], low, high) for name, low, high in limits.get(stage, [])]
            if any(
                value is not None and ((low is not None and value < low) or (high is not None and value > high))
                for value, low, high in values
            ):
                break
    return False


@given(score_tables())
@settings(max_examples=400, deadline=None)
def test_missing_scores_agrees_with_a_slow_reading(table: pa.Table) -> None:
    assert missing_scores(table, Policy(LIMITS, STAGES.names)) == slow_missing(table)


def test_a_column_that_the_footer_renames_is_damage_and_not_a_missing_score(tmp_path: Path) -> None:
    """Parts of before footers had a checksum: a flipped letter of a name must not read as a column of nulls."""
    storage, stages = Storage(tmp_path), everything()
    written(storage, stages)
    name = part_name(0)
    table = storage.read_table(name)
    assert len(read_scores(storage, 0, stages)) == len(table)
    renamed = table.rename_columns(["aestietic" if column == "aesthetic" else column for column in table.column_names])
    storage.write_table(name, renamed.replace_schema_metadata(table.schema.metadata))
    with pytest.raises(DamagedFileError, match="the column aesthetic is missing"):
        read_scores(storage, 0, stages)
