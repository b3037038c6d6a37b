"""Strata are numbered by their configuration: the same code means the same bin in every table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curation.balance import StratumConfig, check_strata, required_columns, strata, stratum_names
from curation.scorers.person_columns import COLUMNS, FRAMINGS

YAW = StratumConfig(column="head_yaw", edges=(-45, -15, 15, 45.5))
COUNT = StratumConfig(column="person_count", edges=(1, 2))
EYES = StratumConfig(column="face_visible", values=(True, False))
LICENCE = StratumConfig(column="licence", values=("cc0", "cc-by"))
LEDGER = {**COLUMNS, "head_yaw": pa.float32(), "face_visible": pa.bool_(), "licence": pa.string(), "height": pa.int32()}


def table(**columns: list[Any]) -> pa.Table:
    return pa.table({name: pa.array(values, LEDGER[name]) for name, values in columns.items()})


def named(data: pa.Table, *configs: StratumConfig) -> list[str]:
    codes, names = strata(data, configs)
    assert codes.dtype == np.int32
    assert names == stratum_names(configs)
    return [names[code] for code in codes]


def test_bins_hold_their_lower_edge() -> None:
    values = [None, float("nan"), -90, -45, -15.5, -15, 14.9, 15, 45.5, float("inf")]
    assert named(table(head_yaw=values), YAW) == [
        "head_yaw unknown",
        "head_yaw unknown",
        "head_yaw < -45",
        "head_yaw [-45, -15)",
        "head_yaw [-45, -15)",
        "head_yaw [-15, 15)",
        "head_yaw [-15, 15)",
        "head_yaw [15, 45.5)",
        "head_yaw >= 45.5",
        "head_yaw >= 45.5",
    ]


def test_absolute_values_make_left_and_right_alike() -> None:
    config = StratumConfig(column="head_yaw", edges=(15, 45), absolute=True)
    assert named(table(head_yaw=[-20, 20, 3, -90, None]), config) == [
        "|head_yaw| [15, 45)",
        "|head_yaw| [15, 45)",
        "|head_yaw| < 15",
        "|head_yaw| >= 45",
        "|head_yaw| unknown",
    ]


def test_categories_have_other_and_unknown() -> None:
    assert named(table(licence=["cc-by", "all rights", None, "cc0"]), LICENCE) == [
        "licence cc-by",
        "licence other",
        "licence unknown",
        "licence cc0",
    ]
    assert named(table(face_visible=[True, None, False]), EYES) == [
        "face_visible true",
        "face_visible unknown",
        "face_visible false",
    ]
    numbers = StratumConfig(column="person_count", values=(1, 2))
    assert named(table(person_count=[2, 7]), numbers) == ["person_count 2", "person_count other"]


def test_crossing_varies_the_first_slowest() -> None:
    codes, names = strata(table(head_yaw=[0, 90], person_count=[1, None]), [YAW, COUNT])
    assert len(names) == 6 * 4
    assert names[0] == "head_yaw unknown x person_count unknown"
    assert [names[code] for code in codes] == [
        "head_yaw [-15, 15) x person_count [1, 2)",
        "head_yaw >= 45.5 x person_count unknown",
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(width=32) | st.none(), st.integers(0, 5) | st.none()), max_size=12), st.integers(0, 12)
)
def test_codes_are_the_same_in_parts_of_a_table(rows: list[tuple[float | None, int | None]], cut: int) -> None:
    data = table(head_yaw=[yaw for yaw, _ in rows], person_count=[count for _, count in rows])
    whole = strata(data, [YAW, COUNT])[0]
    parts = [strata(part, [YAW, COUNT])[0] for part in (data.slice(0, cut), data.slice(min(cut, len(rows))))]
    assert np.array_equal(np.concatenate(parts), whole)


def test_no_attributes_are_one_stratum() -> None:
    assert named(table(head_yaw=[1, 2])) == ["all", "all"]
    assert strata(table(head_yaw=[]), [YAW])[0].tolist() == []


def test_chunked_tables() -> None:
    data = pa.concat_tables([table(licence=["cc0"]), table(licence=["x"]), table(licence=[])])
    assert named(data, LICENCE) == ["licence cc0", "licence other"]


def test_derived_attributes_bring_their_bins() -> None:
    framing, share = StratumConfig(column="framing"), StratumConfig(column="person_height_share", edges=(0.5,))
    data = table(person_framing=["half", None], person_box=[[0, 0, 5, 20], None], height=[100, 100])
    assert named(data, framing) == ["framing half", "framing unknown"]
    assert named(data, share) == ["person_height_share < 0.5", "person_height_share unknown"]
    assert len(stratum_names([framing])) == len(FRAMINGS) + 2
    assert required_columns([framing, share, YAW]) == {"person_framing", "person_box", "height", "head_yaw"}


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"column": "head_yaw"}, "give edges"),
        ({"column": "head_yaw", "edges": [1], "values": ["a"]}, "not both"),
        ({"column": "head_yaw", "edges": [1, 1]}, "ascend"),
        ({"column": "head_yaw", "edges": []}, "at least 1"),
        ({"column": "head_yaw", "edges": [float("nan")]}, "finite"),
        ({"column": "head_yaw", "edges": [0, 15], "absolute": True}, "above 0"),
        ({"column": "licence", "values": ["a"], "absolute": True}, "numbers"),
        ({"column": "licence", "values": ["a", "a"]}, "twice"),
        ({"column": "licence", "values": ["a", 1]}, "one type"),
        ({"column": "licence", "edge": [1]}, "edge"),
    ],
)
def test_bad_configurations_are_errors(config: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        StratumConfig(**config)


@pytest.mark.parametrize(
    ("configs", "what"),
    [
        ([StratumConfig(column="head_yw", edges=(1,))], "did you mean head_yaw"),
        ([StratumConfig(column="licence", edges=(1,))], "not a number"),
        ([StratumConfig(column="head_yaw", values=("a",))], "fraction take edges"),
        ([StratumConfig(column="person_count", values=("a",))], "int32"),
        ([StratumConfig(column="person_boxes", edges=(1,))], "not a number"),
        ([YAW, YAW], "comes twice"),
        (
            [StratumConfig(column=name, edges=tuple(range(400))) for name in ("head_yaw", "person_count")],
            "161,604 strata",
        ),
    ],
)
def test_columns_that_do_not_fit_are_errors(configs: list[StratumConfig], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        check_strata(configs, LEDGER)


def test_a_derived_attribute_without_its_column_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="occlusion is made of the column person_keypoints"):
        check_strata([StratumConfig(column="occlusion")], {"head_yaw": pa.float32()})
    with pytest.raises(ValueError, match="needs height as int32, got string"):
        check_strata([StratumConfig(column="person_height_share")], {**LEDGER, "height": pa.string()})
