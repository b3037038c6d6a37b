"""Rotations about the axes of a frame: x to the person's left, y up, z forward. Angles in radians, right-handed."""

from __future__ import annotations

import math

import numpy as np

from training.data.people.shapes import Array

MIRROR = np.diag([-1.0, 1.0, 1.0])  # the right half of a body is its left half in a mirrored frame


def rot_x(angle: float) -> Array:
    """About x: positive tips what is up to the front."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def rot_y(angle: float) -> Array:
    """About y: positive turns what is in front to the left."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def rot_z(angle: float) -> Array:
    """About z: positive swings what hangs down to the left."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
