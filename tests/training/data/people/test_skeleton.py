import numpy as np
import pytest

from training.data.keys import generator
from training.data.people.config import PeopleConfig
from training.data.people.looks import Look, sample_look
from training.data.people.materials import Materials
from training.data.people.poses import LIMITS, Pose, sample_pose
from training.data.people.shapes import Frame
from training.data.people.skeleton import FOREARM, SHIN, THIGH, UPPER_ARM, finger_joints, skeleton

ROOT = Frame(np.eye(3), np.zeros(3))
STRAIGHT = (0.0,) * 5


def look() -> Look:
    return sample_look(generator(3), PeopleConfig(), Materials(), "stand")


def pose(**changes: tuple[float, ...]) -> Pose:
    arm, leg = changes.get("arm", (0.0,) * 7), changes.get("leg", (0.0,) * 5)
    return Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (arm, arm), (leg, leg), (STRAIGHT, STRAIGHT), (0.5, 0.5))


def test_left_is_left_of_who_looks_ahead() -> None:
    """World y is up and the person looks along +z: up x ahead is the left hand's side."""
    body = skeleton(look(), pose(), ROOT)
    left = np.cross([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    for name in ("arm", "forearm", "hand", "thigh", "shin", "foot"):
        places = [getattr(side, name).place @ left for side in body.sides]
        assert places[0] > 0.05
        assert places[1] == pytest.approx(-places[0])


def test_bones_keep_their_lengths_in_every_pose() -> None:
    for number in range(20):
        drawn, _ = sample_pose(generator(5, number))
        for side in skeleton(look(), drawn, ROOT).sides:
            for start, end, length in (
                (side.arm, side.forearm, UPPER_ARM),
                (side.forearm, side.hand, FOREARM),
                (side.thigh, side.shin, THIGH),
                (side.shin, side.foot, SHIN),
            ):
                assert np.linalg.norm(end.place - start.place) == pytest.approx(length)


def test_joints_bend_the_way_that_bodies_do() -> None:
    body = skeleton(look(), pose(arm=(0, 0, 0, 1.2, 0, 0, 0), leg=(0, 0, 0, 1.2, 0)), ROOT)
    for side in body.sides:
        assert side.hand.place[2] > side.forearm.place[2] + 0.1  # the elbow brings the hand to the front
        assert side.foot.place[2] < side.shin.place[2] - 0.1  # the knee brings the foot to the back
        assert side.foot.at((0, 0, 1))[1] < side.foot.place[1]  # whose toes then point down
    raised = skeleton(look(), pose(arm=(0, 1.4, 0, 0, 0, 0, 0), leg=(1.2, 0.3, 0, 0, 0)), ROOT)
    left, right = raised.sides
    assert left.hand.place[0] > 0.5
    assert right.hand.place[0] < -0.5
    assert left.shin.place[2] > 0.2
    assert left.shin.place[0] > right.shin.place[0]


def test_thumbs_point_ahead_and_palms_inward_at_rest() -> None:
    left, right = skeleton(look(), pose(), ROOT).sides
    for side, inward in ((left, -1.0), (right, 1.0)):
        thumb, index, little = (side.hand.at(side.fingers[finger, 3]) for finger in (0, 1, 4))
        assert thumb[2] > index[2] > little[2]
        curled = finger_joints((1.2,) * 5, 0.0)
        moved = side.hand.at(curled[2, 3]) - side.hand.at(side.fingers[2, 3])
        assert moved[0] * inward > 0  # fingers curl to the palm


def test_poses_stay_within_limits_and_vary() -> None:
    poses = [sample_pose(generator(1, number)) for number in range(300)]
    assert {kind for _, kind in poses} == {"stand", "walk", "wide", "sit", "crouch", "free"}
    elbows = np.array([arm[3] for drawn, _ in poses for arm in drawn.arms])
    assert elbows.min() >= LIMITS["elbow_flex"][0]
    assert elbows.max() <= LIMITS["elbow_flex"][1]
    assert elbows.std() > 0.4
    knees = np.array([leg[3] for drawn, _ in poses for leg in drawn.legs])
    assert knees.min() >= LIMITS["knee_flex"][0]
    assert knees.max() <= LIMITS["knee_flex"][1]
    assert knees.std() > 0.4
    necks = np.array([drawn.neck for drawn, _ in poses])
    for column, name in enumerate(("neck_bend", "neck_side", "neck_twist")):
        low, high = LIMITS[name]
        assert low <= necks[:, column].min() < necks[:, column].max() <= high
