from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from training.data.keys import generator
from training.data.people.config import PeopleConfig
from training.data.people.face_points import front_layout
from training.data.people.looks import Look, sample_look
from training.data.people.materials import IRIS, PUPIL, Materials
from training.data.people.points import KEYPOINTS, body_keypoints, face_keypoints
from training.data.people.poses import Pose
from training.data.people.shapes import Frame
from training.data.people.skeleton import skeleton
from training.tasks.keypoint_sets import keypoint_set

HEAD = Frame(np.eye(3), np.zeros(3))
REST = Pose((0.0,) * 3, (0.0,) * 3, ((0.1,) * 7,) * 2, ((0.1,) * 5,) * 2, ((0.2,) * 5,) * 2, (0.5, 0.5))


def look(**changes: Any) -> Look:
    drawn = sample_look(generator(3), PeopleConfig(), Materials(), "stand")
    return replace(drawn, gaze=(0.0, 0.0), **changes)


def test_a_body_in_a_symmetric_pose_mirrors_its_keypoints_as_the_set_says() -> None:
    points, slack = body_keypoints(look(), skeleton(look(), REST, HEAD))
    assert points.shape == (KEYPOINTS, 3)
    assert np.isfinite(points).all()
    assert (slack > 0).all()
    flip = keypoint_set("sapiens308").flip
    np.testing.assert_allclose(points[flip], points * (-1, 1, 1), atol=2e-6)
    np.testing.assert_allclose(slack[flip], slack)
    assert np.unique(points.round(6), axis=0).shape[0] > 290  # few points coincide (nose, tragus, centres of eyes)


@pytest.mark.parametrize("mouth", [0.0, 1.0])
@pytest.mark.parametrize("eyes", [0.0, 1.0])
def test_the_face_is_in_order_from_top_to_bottom(mouth: float, eyes: float) -> None:
    ids, points = face_keypoints(look(mouth=mouth, eyes_open=eyes), HEAD)
    y = dict(zip(ids.tolist(), points[:, 1].tolist(), strict=True))
    # brow over crease, lid, upper lash, lower lash, lower lid, nose, lips from top to bottom, chin
    order = [90, 116, 109, 98, 146, 157, 178, 179, 190, 206, 207, 191, 77]
    heights = [y[number] for number in order]
    assert all(above >= below - 1e-4 for above, below in pairwise(heights)), heights
    assert (y[206] - y[207] > 0.008) == (mouth == 1.0)
    if eyes == 1.0:
        assert y[98] - y[146] > 0.008


def test_right_is_on_the_right_and_every_face_point_is_placed_once() -> None:
    ids, points = face_keypoints(look(), HEAD)
    assert sorted(ids.tolist()) == sorted({0, 1, 2, 3, 4, *range(70, 308)})
    names = keypoint_set("sapiens308").names
    x = dict(zip(ids.tolist(), points[:, 0].tolist(), strict=True))
    for number in ids.tolist():
        name = names[number]
        if name.startswith(("l_", "left_")) or "_of_l_" in name:
            assert x[number] > 0, name
        if name.startswith(("r_", "right_")) or "_of_r_" in name:
            assert x[number] < 0, name


def test_irises_and_pupils_are_circles_by_the_clock_as_seen() -> None:
    ids, points = face_keypoints(look(), HEAD)
    at = dict(zip(ids.tolist(), points, strict=True))
    for first in (272, 281, 290, 299):
        around = np.array([at[first + number] for number in range(1, 9)])
        distances = np.linalg.norm(around - at[first], axis=1)
        np.testing.assert_allclose(distances, distances[0])
        assert at[first + 1][0] > at[first][0] > at[first + 5][0]  # 3 and 9: seen at the right and the left
        assert at[first + 3][1] > at[first][1] > at[first + 7][1]  # 12 and 6
    assert IRIS > PUPIL


def test_midpoints_run_from_the_persons_right_to_the_left() -> None:
    ids, spots = front_layout(look())
    x = dict(zip(ids, spots[:, 0].tolist(), strict=True))
    for line in ([188, 196, 192, 197, 190, 198, 193, 199, 189], [96, 104, 100, 103, 98, 102, 99, 101, 97]):
        assert sorted(line, key=x.__getitem__) == line
