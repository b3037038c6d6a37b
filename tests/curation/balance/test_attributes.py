"""Derived attributes say what the person columns say, and nothing where they say nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from curation.balance.attributes import ATTRIBUTES
from curation.scorers.person_columns import COCO17, COLUMNS, DETECTED, FACE5, Person, clip_box, rows_to_columns


def table(**columns: list[Any]) -> pa.Table:
    types = {**COLUMNS, "height": pa.int32()}
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def compute(name: str, **columns: list[Any]) -> list[Any]:
    result = ATTRIBUTES[name].compute(table(**columns))
    assert result.type == ATTRIBUTES[name].type
    return result.to_pylist()


def points(*seen: int) -> list[float]:
    return [value for joint in range(17) for value in (10.0, 10.0, 0.9 if joint in seen else 0.2)]


def test_person_height_share() -> None:
    boxes = [[0, 10, 5, 60], None, [0, 0, 5, 100], [1.0, 2.0]]
    assert compute("person_height_share", person_box=boxes, height=[100] * 4) == [0.5, None, 1.0, None]
    assert compute("person_height_share", person_box=[[0, 10, 5, 60]], height=[None]) == [None]
    assert compute("person_height_share", person_box=[], height=[]) == []


def test_truncation_names_the_border_that_takes_most() -> None:
    bits = [0, 8, 1, 4, 8 | 4, 2, 2 | 8, None]
    expected = ["none", "bottom", "side", "side", "side", "top", "top", None]
    assert compute("truncation", person_truncation=bits) == expected


def test_framing_is_the_person_scorers() -> None:
    assert compute("framing", person_framing=["half", None]) == ["half", None]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (range(17), 0.0),
        ((5, 6), 0.0),  # head and shoulders: what is below may be out of the picture
        ((5,), 0.5),
        ((0, 1, 2, 5, 6, 15, 16), 0.5),  # feet below something that hides hips and knees
        ((15,), 7 / 8),
        ((0, 1, 2, 3, 4), None),  # a face alone: no body joint is expected
        ((), None),
    ],
)
def test_occlusion_counts_hidden_joints_above_the_lowest_seen(seen, expected: float | None) -> None:
    assert compute("occlusion", person_keypoints=[points(*seen)], person_keypoint_layout=[COCO17]) == [expected]


def test_occlusion_is_not_measured_on_face_landmarks() -> None:
    values = {
        "person_keypoints": [[1.0] * 15, None, points(5), [0.5]],
        "person_keypoint_layout": [FACE5, None, COCO17, COCO17],
    }
    assert compute("occlusion", **values) == [None, None, 0.5, None]


def test_the_person_scorers_rows_go_in_as_they_are() -> None:
    box, bits = clip_box((10, 20, 60, 120), 100, 100)
    rows = rows_to_columns(
        [[Person(box, 0.9, bits, framing="full")], []],
        [(100, 100)] * 2,
        box_source=DETECTED,
        layout=None,
        visibility=0.5,
    )
    ledger = pa.table(
        {
            **{name: pa.array(values, COLUMNS[name]) for name, values in rows.items()},
            "height": pa.array([100, 100], pa.int32()),
        }
    )
    got = {name: attribute.compute(ledger).to_pylist() for name, attribute in ATTRIBUTES.items()}
    assert got == {
        "framing": ["full", None],
        "person_height_share": [0.8, None],
        "truncation": ["bottom", None],
        "occlusion": [None, None],
    }


def test_the_needed_columns_are_the_ledgers() -> None:
    for attribute in ATTRIBUTES.values():
        for name, type_ in attribute.columns.items():
            assert name == "height" or COLUMNS[name] == type_
        assert (attribute.edges is None) != (attribute.values is None)
