import numpy as np
import pytest

from training.data.labelled_sets.coco_numbers import annotation_keypoints, finite, inside
from training.tasks.keypoint_sets import keypoint_set


def flat(start, count, v=2):
    return [value for index in range(start, start + count) for value in (index + 0.25, 2 * index, v)]


WHOLE = {
    "keypoints": flat(0, 17),
    "foot_kpts": flat(17, 6),
    "face_kpts": flat(23, 68, v=0.7),
    "lefthand_kpts": flat(91, 21),
    "righthand_kpts": flat(112, 21),
}


def test_whole_body_lists_are_joined_in_the_order_of_the_set():
    points = annotation_keypoints(WHOLE, keypoint_set("wholebody133"), None)
    np.testing.assert_array_equal(points[:, 0], np.arange(133) + 0.25)
    np.testing.assert_array_equal(points[:, 2], 2)  # a confidence counts as visible
    names = keypoint_set("wholebody133").names
    assert names[17] == "left_big_toe"
    assert names[23] == "face-0"
    assert names[91] == "left_hand_root"
    assert names[112] == "right_hand_root"


def test_absent_and_invalid_lists_are_not_labelled():
    given = {name: value for name, value in WHOLE.items() if name != "foot_kpts"} | {"lefthand_valid": False}
    points = annotation_keypoints(given, keypoint_set("wholebody133"), None)
    empty = np.flatnonzero(~points.any(axis=1)).tolist()
    assert empty == [*range(17, 23), *range(91, 112)]


def test_a_flat_list_of_all_133():
    points = annotation_keypoints({"keypoints": flat(0, 133, v=1)}, keypoint_set("wholebody133"), None)
    assert points[132].tolist() == [132.25, 264, 1]


def test_a_field_of_another_name():
    points = annotation_keypoints({"keypoints": [], "own": flat(0, 17)}, keypoint_set("coco17"), "own")
    assert points[16].tolist() == [16.25, 32, 2]
    assert not annotation_keypoints({}, keypoint_set("coco17"), None).any()


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({"keypoints": flat(0, 16)}, "16 keypoints, wholebody133 has 133"),
        (WHOLE | {"face_kpts": flat(0, 67)}, "face_kpts has 67 keypoints instead of 68"),
        ({"keypoints": [1, 2]}, "flat list"),
        ({"keypoints": [1, 2, float("nan")]}, "flat list of finite"),
        ({"keypoints": [[1, 2, 2]]}, "flat list"),
        ({"keypoints": "none"}, "flat list"),
        (WHOLE | {"keypoints": flat(0, 17, v=-1)}, "visibility below 0"),
    ],
)
def test_wrong_numbers_are_named(annotation, message):
    with pytest.raises(ValueError, match=message):
        annotation_keypoints(annotation, keypoint_set("wholebody133"), None)


def test_what_counts_as_a_number():
    assert [finite(value) for value in (0, -1.5, True, None, "1", float("inf"), float("nan"), 10**400)] == [
        True,
        True,
        *[False] * 6,
    ]


def test_a_keypoint_is_inside_where_it_rounds_to_a_pixel():
    points = np.array([[[-0.5, 0, 2], [-0.51, 0, 2], [9.49, 4.49, 1], [9.5, 0, 1], [3, 4.5, 2], [3, 3, 0]]], np.float32)
    kept = inside(points, (5, 10))
    assert kept[0, :, 2].tolist() == [2, 0, 1, 0, 0, 0]
    assert not kept[0, 5].any()
    np.testing.assert_array_equal(kept[0, 2], points[0, 2])
