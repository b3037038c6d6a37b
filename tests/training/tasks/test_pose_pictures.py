"""Skeletons are drawn where the keypoints are, in the colours of their sides, and only sure ones."""

from __future__ import annotations

import numpy as np
import pytest

from training.tasks.keypoint_sets import keypoint_set
from training.tasks.pose_pictures import COLOURS, draw_skeletons

COCO = keypoint_set("coco17")
BLACK = np.zeros((100, 120, 3), np.uint8)


def person(**places: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    keypoints, scores = np.zeros((1, 17, 2)), np.zeros((1, 17))
    for name, place in places.items():
        index = COCO.names.index(name)
        keypoints[0, index], scores[0, index] = place, 0.9
    return keypoints, scores


def test_points_and_lines_have_the_colours_of_their_sides() -> None:
    keypoints, scores = person(left_hip=(20, 20), left_knee=(20, 80), right_hip=(90, 20), right_knee=(90, 80))
    result = draw_skeletons(BLACK, keypoints, scores, COCO, radius=3)
    np.testing.assert_array_equal(result[80, 20], COLOURS[1])
    np.testing.assert_array_equal(result[50, 20], COLOURS[1])
    np.testing.assert_array_equal(result[50, 90], COLOURS[2])
    np.testing.assert_array_equal(result[20, 55], COLOURS[0])  # from hip to hip
    assert not result[50, 40:70].any()
    assert not BLACK.any()


def test_a_line_needs_both_ends_and_a_point_its_score() -> None:
    keypoints, scores = person(left_hip=(20, 20), left_knee=(20, 80))
    scores[0, COCO.names.index("left_knee")] = 0.2
    result = draw_skeletons(BLACK, keypoints, scores, COCO, radius=2)
    assert result[20, 20].any()
    assert not result[40:].any()
    assert not draw_skeletons(BLACK, keypoints, scores, COCO, threshold=0.95).any()


def test_the_centre_of_a_drawn_point_is_the_keypoint_to_a_fraction_of_a_pixel() -> None:
    result = draw_skeletons(BLACK, *person(nose=(40.4, 30.7)), COCO, radius=4)[..., 0].astype(float)
    rows, columns = np.indices(result.shape)
    np.testing.assert_allclose(
        ((result * columns).sum() / result.sum(), (result * rows).sum() / result.sum()), (40.4, 30.7), atol=0.15
    )


def test_nobody_far_points_and_values_that_are_no_numbers_are_no_error() -> None:
    np.testing.assert_array_equal(draw_skeletons(BLACK, np.zeros((0, 17, 2)), np.zeros((0, 17)), COCO), BLACK)
    keypoints, scores = person(nose=(1e9, 5), left_eye=(np.nan, 3), right_eye=(30, 30))
    assert draw_skeletons(BLACK, keypoints, scores, COCO).any()
    with pytest.raises(ValueError, match=r"coco17 has \[n, 17, 2\]"):
        draw_skeletons(BLACK, np.zeros((1, 5, 2)), np.zeros((1, 5)), COCO)
