"""Joint angles of a body, drawn within what joints allow. Limits are rounded from clinical ranges of motion (AAOS)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Radians: (least, most). Positive: shoulder and hip forward and outward, elbow and knee bent, wrist to the palm.
LIMITS = {
    "spine_bend": (-0.4, 0.9),
    "spine_side": (-0.5, 0.5),
    "spine_twist": (-0.6, 0.6),
    "neck_bend": (-0.5, 0.6),
    "neck_side": (-0.5, 0.5),
    "neck_twist": (-1.1, 1.1),
    "shoulder_flex": (-0.8, 2.9),
    "shoulder_abduct": (-0.2, 2.6),
    "shoulder_twist": (-1.2, 1.2),
    "elbow_flex": (0.0, 2.5),
    "forearm_twist": (-1.4, 1.4),
    "wrist_flex": (-1.0, 1.1),
    "wrist_side": (-0.35, 0.5),
    "hip_flex": (-0.4, 2.0),
    "hip_abduct": (-0.15, 0.8),
    "hip_twist": (-0.5, 0.6),
    "knee_flex": (0.0, 2.4),
    "ankle_flex": (-0.7, 0.35),
}


@dataclass(frozen=True)
class Pose:
    """Angles in radians.

    Attributes:
        spine: bend to the front, to the left, twist to the left.
        neck: the same, of head against chest.
        arms: left and right: shoulder flex, abduct, twist, elbow, forearm twist, wrist flex, wrist side.
        legs: left and right: hip flex, abduct, twist, knee, ankle.
        curls: left and right: bend of every joint of thumb, index, middle, ring and little finger.
        spread: left and right: how far the fingers fan out.
    """

    spine: tuple[float, float, float]
    neck: tuple[float, float, float]
    arms: tuple[tuple[float, ...], tuple[float, ...]]
    legs: tuple[tuple[float, ...], tuple[float, ...]]
    curls: tuple[tuple[float, ...], tuple[float, ...]]
    spread: tuple[float, float]


def _within(name: str, value: float) -> float:
    low, high = LIMITS[name]
    return float(min(max(value, low), high))


_ARM = ("shoulder_flex", "shoulder_abduct", "shoulder_twist", "elbow_flex", "forearm_twist", "wrist_flex", "wrist_side")
_LEG = ("hip_flex", "hip_abduct", "hip_twist", "knee_flex", "ankle_flex")
# Means of the shoulder's flex, abduct, twist, the elbow's flex, the forearm's twist; their deviation.
_ARMS = {
    "down": ((0.0, 0.15, 0.0, 0.25, 0.0), 0.15),
    "swing": ((0.1, 0.15, 0.0, 0.5, 0.2), 0.35),
    "akimbo": ((-0.3, 0.75, -0.5, 1.7, 0.6), 0.15),
    "forward": ((1.2, 0.15, 0.0, 0.6, 0.5), 0.4),
    "wave": ((0.4, 1.5, 0.3, 1.7, 0.0), 0.35),
    "up": ((2.4, 0.5, 0.0, 0.4, 0.0), 0.35),
    "side": ((0.1, 1.3, 0.0, 0.3, 0.3), 0.35),
    "crossed": ((0.65, 0.0, -0.9, 1.8, 0.6), 0.15),
    "face": ((1.1, 0.1, -0.3, 2.2, 0.2), 0.2),
    "free": ((0.8, 0.7, 0.0, 1.0, 0.0), 0.8),
}
_ARM_SHARES = (0.2, 0.15, 0.1, 0.12, 0.1, 0.07, 0.06, 0.05, 0.07, 0.08)
# Means of the hip's flex, abduct, twist, the knee's flex; their deviation.
_LEGS = {
    "stand": ((0.0, 0.08, 0.1, 0.05), 0.08),
    "wide": ((0.05, 0.3, 0.15, 0.1), 0.12),
    "sit": ((1.45, 0.15, 0.1, 1.4), 0.15),
    "crouch": ((1.7, 0.3, 0.2, 2.1), 0.15),
    "free": ((0.5, 0.25, 0.1, 0.7), 0.45),
}
_LEG_SHARES = (0.4, 0.12, 0.2, 0.08, 0.2)


def sample_pose(rng: np.random.Generator) -> tuple[Pose, str]:
    """A pose, and what the legs do ("stand", "walk", "wide", "sit", "crouch", "free")."""
    kind = str(rng.choice(list(_LEGS), p=_LEG_SHARES))
    both = rng.random() < 0.5
    arms, legs, curls = [], [], []
    names = rng.choice(list(_ARMS), size=2, p=_ARM_SHARES)
    for side in (0, 1):
        mean, deviation = _ARMS[str(names[0 if both else side])]
        drawn = [value + deviation * rng.normal() for value in mean] + list(rng.normal(0, 0.25, 2))
        arms.append(tuple(_within(name, value) for name, value in zip(_ARM, drawn, strict=True)))
        hips, deviation = _LEGS[kind]
        drawn = [value + deviation * rng.normal() for value in hips] + [rng.normal(0, 0.1)]
        legs.append(tuple(_within(name, value) for name, value in zip(_LEG, drawn, strict=True)))
        grip = rng.choice([0.12, 0.3, 0.6, 1.2], p=[0.35, 0.3, 0.2, 0.15])
        curl = np.clip(grip + rng.normal(0, 0.15, 5), 0.0, 1.45)
        if rng.random() < 0.25:  # a pointing finger
            curl[1] = 0.05
        curl[0] = min(curl[0], 0.7)
        curls.append(tuple(float(value) for value in curl))
    if kind == "stand" and rng.random() < 0.45:  # a step: one leg forward, the other one behind
        kind, stride, front = "walk", rng.uniform(0.2, 0.55), int(rng.integers(2))
        for side in (0, 1):
            flex = stride if side == front else -0.6 * stride
            knee = rng.uniform(0.0, 0.35) if side == front else rng.uniform(0.1, 0.7)
            legs[side] = (_within("hip_flex", flex), *legs[side][1:3], _within("knee_flex", knee), legs[side][4])
    lean = 0.25 if kind in ("crouch", "sit") else 0.05
    spine = (
        _within("spine_bend", lean + 0.13 * rng.normal()),
        _within("spine_side", 0.1 * rng.normal()),
        _within("spine_twist", 0.2 * rng.normal()),
    )
    neck = (
        _within("neck_bend", -0.5 * lean + 0.2 * rng.normal()),
        _within("neck_side", 0.13 * rng.normal()),
        _within("neck_twist", 0.4 * rng.normal()),
    )
    spread = rng.uniform(0.0, 1.0, 2)
    return (
        Pose(spine, neck, (arms[0], arms[1]), (legs[0], legs[1]), (curls[0], curls[1]), (spread[0], spread[1])),
        kind,
    )
