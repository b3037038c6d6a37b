"""Users rely on: one row per picture, the largest person by short side, exact geometry at the border."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.scorers.person_columns import (
    COCO17,
    COLUMNS,
    DETECTED,
    FRAMINGS,
    MAX_BOXES,
    TRUNCATED_BOTTOM,
    TRUNCATED_LEFT,
    TRUNCATED_RIGHT,
    TRUNCATED_TOP,
    Person,
    clip_box,
    framing_from_coco17,
    rows_to_columns,
    visible,
)


def columns_of(rows, sizes):
    return rows_to_columns(rows, sizes, box_source=DETECTED, layout=COCO17, visibility=0.5)


@pytest.mark.parametrize(
    ("box", "clipped", "bits"),
    [
        ((10, 20, 30, 40), (10, 20, 30, 40), 0),
        ((-5, 20, 30, 40), (0, 20, 30, 40), TRUNCATED_LEFT),
        ((10, 0, 30, 40), (10, 0, 30, 40), TRUNCATED_TOP),
        ((10, 20, 130, 40), (10, 20, 100, 40), TRUNCATED_RIGHT),
        ((10, 20, 30, 80), (10, 20, 30, 80), TRUNCATED_BOTTOM),
        ((-1, -1, 101, 81), (0, 0, 100, 80), 15),
    ],
)
def test_clip_box(box, clipped, bits):
    assert clip_box(box, 100, 80) == (clipped, bits)


def test_clip_box_tolerance_is_a_distance_from_the_border():
    assert clip_box((2, 3, 97, 78), 100, 80, tolerance=2)[1] == TRUNCATED_LEFT | TRUNCATED_BOTTOM


boxes = st.tuples(
    st.floats(-50, 250, width=32), st.floats(-50, 250, width=32), st.floats(0.5, 200, width=32), st.floats(0.5, 200)
).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


@given(boxes)
def test_a_clipped_box_is_inside_and_truncated_only_where_it_was_cut(box):
    clipped, bits = clip_box(box, 200, 150)
    assert 0 <= clipped[0] <= clipped[2] <= 200
    assert 0 <= clipped[1] <= clipped[3] <= 150
    assert bool(bits & TRUNCATED_LEFT) == (box[0] <= 0)
    assert bool(bits & TRUNCATED_RIGHT) == (box[2] >= 200)
    if bits == 0:
        assert clipped == box


def test_no_person_is_a_value():
    row = {name: values[0] for name, values in columns_of([[]], [(640, 480)]).items()}
    assert row["person_count"] == row["face_count"] == 0
    assert row["person_short_side"] == row["person_area_share"] == row["person_score"] == 0.0
    assert row["person_boxes"] == []
    assert row["person_box"] is row["person_truncation"] is row["person_keypoints"] is row["face_box"] is None


def test_largest_is_by_short_side_not_by_area():
    wide = Person((0, 0, 600, 100), 0.99, 0)
    square = Person((0, 0, 200, 200), 0.6, 4)
    row = {name: values[0] for name, values in columns_of([[wide, square]], [(640, 480)]).items()}
    assert row["person_box"] == [0, 0, 200, 200]
    assert row["person_short_side"] == 200
    assert row["person_score"] == 0.6
    assert row["person_truncation"] == 4
    assert row["person_area_share"] == pytest.approx(200 * 200 / (640 * 480), abs=1e-6)
    assert row["person_boxes"] == [0, 0, 200, 200, 0.6, 0, 0, 600, 100, 0.99]


@given(st.lists(st.tuples(boxes, st.floats(0, 1)), max_size=25), st.randoms(use_true_random=False))
def test_order_of_detections_does_not_matter_and_short_side_is_the_maximum(found, random):
    persons = [Person(clip_box(box, 500, 500)[0], score, 0) for box, score in found]
    shuffled = list(persons)
    random.shuffle(shuffled)
    columns = columns_of([persons], [(500, 500)])
    assert columns == columns_of([shuffled], [(500, 500)])
    assert columns["person_count"] == [len(persons)]
    assert columns["person_short_side"][0] == pytest.approx(max([p.short_side for p in persons], default=0), abs=0.01)
    assert len(columns["person_boxes"][0]) == 5 * min(len(persons), MAX_BOXES)


def test_columns_fit_their_arrow_types():
    keypoints = np.column_stack([np.arange(17.0), np.arange(17.0), np.linspace(0, 1, 17)])
    person = Person((1, 2, 300, 400), 0.9, 0, keypoints, (5, 5, 9, 9), True, "half")
    columns = columns_of([[person], []], [(640, 480), (10, 10)])
    assert list(columns) == list(COLUMNS)
    for name, kind in COLUMNS.items():
        array = pa.array(columns[name], type=kind)
        assert len(array) == 2
        assert array[0].as_py() is not None
    assert len(columns["person_keypoints"][0]) == 51
    assert columns["person_keypoint_visibility"][0] == pytest.approx(9 / 17, abs=1e-4)


def test_a_keypoint_outside_the_picture_is_not_visible():
    points = np.array([[5, 5, 0.9], [-1, 5, 0.9], [5, 11, 0.9], [5, 5, 0.4]])
    assert visible(points, 10, 10, 0.5).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("joints", "framing"),
    [
        ([0, 1, 2], "face"),
        ([0, 5], "head_shoulders"),
        ([0, 5, 6, 11], "half"),
        ([5, 11, 14], "three_quarter"),
        ([0, 5, 11, 13, 15], "full"),
        ([15], "full"),
        ([], None),
        ([7, 9], None),
    ],
)
def test_framing_follows_the_lowest_visible_joint(joints, framing):
    seen = np.zeros(17, bool)
    seen[joints] = True
    assert framing_from_coco17(seen) == framing
    assert framing is None or framing in FRAMINGS
