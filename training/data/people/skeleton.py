"""The joints of one person: frames from a root, a look and a pose.

Lengths are those of an average body of 1.7 m, from common segment shares of the height (Drillis and Contini), rounded;
the root's frame scales them. Limbs hang along -y at rest, palms face the thighs, thumbs point to the front. Both halves
are written as the left one; the right one hangs in a mirrored frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from training.data.people.frames import MIRROR, rot_x, rot_y, rot_z
from training.data.people.looks import Look
from training.data.people.poses import Pose
from training.data.people.shapes import Array, Frame

UPPER_ARM, FOREARM, THIGH, SHIN, ANKLE = 0.285, 0.25, 0.42, 0.40, 0.075
HIPS = 0.888  # height of the hip joints over the floor at rest
_UP = math.pi / 2

# Left hand, along -y, thumb at +z, palm to -x: base joint, lengths of the phalanges, radii of base to tip, fan angle.
FINGERS = (
    ((-0.004, -0.092, 0.028), (0.042, 0.026, 0.02), (0.0105, 0.0092, 0.0083, 0.007), 0.10),
    ((-0.002, -0.096, 0.008), (0.047, 0.03, 0.021), (0.0105, 0.0095, 0.0085, 0.0072), 0.02),
    ((-0.002, -0.092, -0.012), (0.043, 0.027, 0.021), (0.01, 0.009, 0.008, 0.007), -0.06),
    ((-0.004, -0.084, -0.029), (0.034, 0.021, 0.018), (0.009, 0.008, 0.0072, 0.0062), -0.15),
)
THUMB = ((-0.008, -0.022, 0.026), (-0.02, -0.058, 0.046), (0.034, 0.027), (0.017, 0.0125, 0.0105, 0.0085))


@dataclass(frozen=True)
class Side:
    """One half: frames at the joints, and the finger joints.

    Attributes:
        arm, forearm, hand, thigh, shin, foot: frames at shoulder, elbow, wrist, hip, knee and ankle.
        fingers: float64 [5, 4, 3], in the hand's frame: thumb to little finger, base joint to tip.
    """

    arm: Frame
    forearm: Frame
    hand: Frame
    thigh: Frame
    shin: Frame
    foot: Frame
    fingers: Array


@dataclass(frozen=True)
class Skeleton:
    """Frames of one person: trunk, and left and right half."""

    pelvis: Frame
    chest: Frame
    neck: Frame
    head: Frame
    sides: tuple[Side, Side]


def finger_joints(curls: tuple[float, ...], spread: float) -> Array:
    """Joints [5, 4, 3] of a left hand in its frame; `curls` in radians of every joint, `spread` 0..1."""
    joints = np.zeros((5, 4, 3))
    base, knuckle, lengths, _ = THUMB
    joints[0, 0], joints[0, 1] = base, knuckle
    along = joints[0, 1] - joints[0, 0]
    along /= np.linalg.norm(along)
    for number, length in enumerate(lengths):
        along = rot_x(0.35 * curls[0]) @ rot_z(-0.6 * curls[0]) @ along
        joints[0, 2 + number] = joints[0, 1 + number] + length * along
    for finger, (start, lengths3, _, fan) in enumerate(FINGERS, start=1):
        turn = rot_x(-fan * (0.4 + 1.2 * spread))
        joints[finger, 0] = start
        for number, length in enumerate(lengths3):
            turn = turn @ rot_z(-curls[finger])
            joints[finger, number + 1] = joints[finger, number] + turn @ np.array([0.0, -length, 0.0])
    return joints


def skeleton(look: Look, pose: Pose, root: Frame) -> Skeleton:
    """The frames of a person whose pelvis has the frame `root`, x to the person's left, y up, z to the front."""
    bend, side, twist = pose.spine
    half = rot_x(bend / 2) @ rot_z(-side / 2) @ rot_y(twist / 2)
    chest = root.child((0, 0.11, -0.005), half @ half)
    bend, side, twist = pose.neck
    half = rot_x(bend / 2) @ rot_z(-side / 2) @ rot_y(twist / 2)
    neck = chest.child((0, 0.425, -0.012), half @ rot_x(0.12))
    head = neck.child((0, 0.085, 0.008), half @ rot_x(-0.12))
    head = head.child((0, 0.075, 0.025), np.diag(0.93 * look.head))
    halves = []
    for number in (0, 1):
        flip = np.eye(3) if number == 0 else MIRROR
        sign = 1.0 if number == 0 else -1.0
        flex, abduct, twist, elbow, forearm_twist, wrist, deviation = pose.arms[number]
        lift = 0.03 * max(0.0, abduct - 0.5) + 0.02 * max(0.0, flex - 1.0)  # the shoulder blade follows the arm
        place = (sign * 0.172 * look.shoulders, 0.375 + lift, -0.012)
        arm = chest.child(place, flip @ rot_x(-flex) @ rot_z(abduct) @ rot_y(-twist))
        forearm = arm.child((0, -UPPER_ARM, 0), rot_x(-elbow))
        hand = forearm.child((0, -FOREARM, 0), rot_y(-forearm_twist) @ rot_z(-wrist) @ rot_x(deviation))
        flex, abduct, twist, knee, ankle = pose.legs[number]
        hip = (sign * 0.088 * look.hips, 0.0, 0.0)
        thigh = root.child(hip, flip @ rot_x(-flex) @ rot_z(abduct) @ rot_y(twist))
        shin = thigh.child((0, -THIGH, 0), rot_x(knee))
        foot = shin.child((0, -SHIN, 0), rot_x(-ankle))
        halves.append(
            Side(arm, forearm, hand, thigh, shin, foot, finger_joints(pose.curls[number], pose.spread[number]))
        )
    return Skeleton(root, chest, neck, head, (halves[0], halves[1]))
