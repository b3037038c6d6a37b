"""A head: skull, jaw, nose, eyes with lids, brows, lips, ears, an open mouth with teeth and tongue.

Head coordinates, metres of an average head before its scale: x to the person's left, y up, z to the front, origin in
the middle of the head; the chin is at y = -0.12, the crown at 0.125.
"""

from __future__ import annotations

import math

import numpy as np

from training.data.people.body import Painter, Part
from training.data.people.frames import MIRROR, rot_x, rot_y
from training.data.people.looks import Look
from training.data.people.shapes import Array, Frame

SKULL = ((0.0, 0.032, -0.018), (0.075, 0.093, 0.095))
FACE = ((0.0, -0.035, 0.022), (0.0625, 0.082, 0.068))
EYE = np.array([0.0315, 0.008, 0.0655])  # the left one
EYEBALL, LID = 0.0125, 0.0138
EAR = ((0.0745, -0.005, -0.012), (0.011, 0.032, 0.0195))
MOUTH_Y, MOUTH_Z, MOUTH_WIDTH = -0.072, 0.0865, 0.0245
NOSE_TIP = (0.0, -0.0335, 0.1015)
BROW = ((0.0135, 0.0375, 0.0835), (0.031, 0.0415, 0.076), (0.049, 0.0335, 0.058))  # left: inner end, arch, outer end
LOWEST_LID, HIGHEST_LID = -0.36, 0.5  # radians of an open eye's lid edges under and over the gaze's level


def lid_angles(look: Look) -> tuple[float, float]:
    """Elevation of the edges of lower and upper lid at the eyeball's centre, radians."""
    return LOWEST_LID + 0.2 * (1 - look.eyes_open), LOWEST_LID + 0.22 + (
        HIGHEST_LID - LOWEST_LID - 0.22
    ) * look.eyes_open


def mouth_gap(look: Look) -> float:
    """Half of the distance between the lips' inner edges, metres."""
    return 0.009 * look.mouth


def eye_frame(head: Frame, look: Look, side: int) -> Frame:
    """The frame of an eyeball: its z looks along the gaze. Both eyes look the same way."""
    flip = np.eye(3) if side == 0 else MIRROR
    left = look.gaze[0] if side == 0 else -look.gaze[0]
    return head.child(EYE if side == 0 else MIRROR @ EYE, flip @ rot_y(left) @ rot_x(-look.gaze[1]))


def draw_face(painter: Painter, head: Frame) -> None:
    """Everything that face and ear keypoints lie on."""
    look = painter.look
    skin = painter.on(head, Part.FACE_NECK, "skin")
    skin.ellipsoid(*SKULL)
    skin.ellipsoid(*FACE)
    skin.ellipsoid((0, -0.1, 0.06), (0.027, 0.023, 0.025))  # chin
    skin.chain([(0, 0.012, 0.078), (0, -0.012, 0.088), NOSE_TIP], [0.0085, 0.0085, 0.0115])
    skin.ellipsoid((0, 0.03, 0.062), (0.05, 0.02, 0.022))  # brow ridge
    if look.mouth > 0:
        _open_mouth(painter, head)
    _lips(painter, head)
    for side in (0, 1):
        half = head if side == 0 else head.child((0, 0, 0), MIRROR)
        skin = painter.on(half, Part.FACE_NECK, "skin")
        skin.ellipsoid((0.012, -0.0385, 0.0895), (0.0085, 0.0075, 0.011))  # wing of the nose
        painter.on(half, Part.FACE_NECK, "nostril").ellipsoid((0.0062, -0.0448, 0.0945), (0.0033, 0.0022, 0.0042))
        skin.ellipsoid((0.032, -0.032, 0.05), (0.029, 0.034, 0.0285))  # cheek
        skin.ellipsoid(*EAR)
        skin.chain([(0.078, 0.018, -0.022), (0.083, 0.022, -0.012), (0.081, 0.01, 0.0)], [0.006, 0.0055, 0.004])
        skin.sphere((0.076, -0.031, -0.006), 0.0085)
        painter.on(half, Part.FACE_NECK, "nostril").ellipsoid((0.0795, -0.008, -0.007), (0.0072, 0.009, 0.006))
        skin.sphere((0.0775, -0.01, 0.0025), 0.006)  # tragus
        painter.on(half, Part.FACE_NECK, "brow").chain(BROW, [0.0042, 0.004, 0.0022])
        low, high = lid_angles(look)
        for angle, sign in ((high, 1.0), (low, -1.0)):
            # The half of the lid's sphere beyond the plane through the eye's corners at this elevation.
            normal = sign * np.array([0.0, math.cos(angle), -math.sin(angle)])
            skin.sphere(EYE, LID, slab=(*normal, float(normal @ EYE), float(normal @ EYE) + 1.0))
        painter.on(eye_frame(head, look, side), Part.FACE_NECK, "eye").sphere((0, 0, 0), EYEBALL)


def lip_line(share: Array, upper: bool, look: Look, edge: float) -> Array:
    """Points [n, 2] (x, y) of a lip, from the right corner (share 0) to the left one (1).

    `edge` is 0 at the seam or inner edge, 1 at the outer edge.
    """
    across = 2 * np.asarray(share) - 1
    arch = np.sqrt(np.maximum(1 - across**2, 0))
    gap = mouth_gap(look)
    if upper:
        inner, thick = 0.6 * gap * arch, 0.0068 * arch - 0.0011 * np.exp(-((across / 0.12) ** 2))
    else:
        inner, thick = -1.4 * gap * arch, -0.0085 * arch
    return np.stack([MOUTH_WIDTH * across, MOUTH_Y + inner + edge * thick], axis=-1)


def _lips(painter: Painter, head: Frame) -> None:
    look = painter.look
    share = np.linspace(0.0, 1.0, 7)
    depth = MOUTH_Z - 0.012 * (2 * share - 1) ** 2 + 0.0015
    radii = [0.0016, 0.0027, 0.0035, 0.0036, 0.0035, 0.0027, 0.0016]
    for upper, part, grow in ((True, Part.UPPER_LIP, 1.0), (False, Part.LOWER_LIP, 1.22)):
        middle = lip_line(share, upper, look, 0.5)
        points = np.concatenate([middle, depth[:, None]], axis=1)
        painter.on(head, part, "lips").chain(points, [grow * radius for radius in radii])


def _open_mouth(painter: Painter, head: Frame) -> None:
    """A dark hollow drawn on the face, with rows of teeth and a tongue before it."""
    look = painter.look
    gap = mouth_gap(look)
    centre = MOUTH_Y - 0.4 * gap
    flat = (0.021, gap + 0.001, 0.006)
    painter.on(head, Part.FACE_NECK, "mouth").ellipsoid((0, centre, MOUTH_Z - 0.0035), flat)
    share = np.linspace(0.2, 0.8, 5)
    depth = MOUTH_Z + 0.0005 - 0.012 * (2 * share - 1) ** 2
    for upper, part in ((True, Part.UPPER_TEETH), (False, Part.LOWER_TEETH)):
        line = lip_line(share, upper, look, 0.0)
        line[:, 1] += -0.0012 if upper else 0.0005
        radius = 0.0012 + 0.0022 * look.mouth
        painter.on(head, part, "teeth").chain(
            np.concatenate([line, depth[:, None]], axis=1), [radius if upper else 0.8 * radius] * 5
        )
    if look.tongue and look.mouth > 0.4:
        tongue = painter.on(head, Part.TONGUE, "tongue")
        tongue.ellipsoid((0, centre - 0.45 * gap, MOUTH_Z), (0.013, 0.5 * gap, 0.0065))
