"""Where the 238 face keypoints lie: lines drawn in the head's front view (x, y) or an ear's side view (z, y).

The numbers are those of the released 308-point set. Midpoints of a line are numbered 1: 1/4, 2: 3/4, 3 to 6: odd
eighths, from the person's right to the left, as the set's flip pairs imply. Every list below is of the left half; the
right half mirrors it.
"""

from __future__ import annotations

import math

import numpy as np

from training.data.people.head import (
    BROW,
    EYE,
    EYEBALL,
    LID,
    MOUTH_WIDTH,
    MOUTH_Y,
    NOSE_TIP,
    lid_angles,
    lip_line,
)
from training.data.people.looks import Look
from training.data.people.materials import IRIS, PUPIL
from training.data.people.shapes import Array

# Order of the lash, lid and crease lines: inner end, outer end, centre, midpoints 2, 1, 6, 5, 4, 3.
_LASH = (0.0, 1.0, 0.5, 0.75, 0.25, 0.875, 0.625, 0.375, 0.125)
_LIDLINE = (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125)  # outer end, midpoints 6, 2, 5, centre, 4, 1, 3
_CREASE = _LIDLINE[1:]
# Left block, right block, the line's elevation relative to a lid's edge, radians, whether it is the upper lid.
_EYE_LINES: tuple[tuple[range, range, tuple[float, ...], float, bool], ...] = (
    (range(96, 105), range(120, 129), _LASH, 0.0, True),
    (range(105, 113), range(129, 137), _LIDLINE, 0.12, True),
    (range(113, 120), range(137, 144), _CREASE, 0.45, True),
    (range(144, 153), range(161, 170), _LASH, 0.0, False),
    (range(153, 161), range(170, 178), _LIDLINE, -0.15, False),
)
_CORNER = 0.35  # radians from a lid's pole where the eye's corners show

# (left id, right id, x, y)
_SIDED = (
    (87, 78, BROW[0][0], BROW[0][1] + 0.004),
    (88, 79, BROW[0][0], BROW[0][1] - 0.004),
    (89, 80, BROW[2][0], BROW[2][1]),
    (90, 81, BROW[1][0], BROW[1][1] + 0.0038),
    (91, 82, BROW[1][0], BROW[1][1] - 0.0038),
    (92, 84, 0.0225, 0.0433),
    (93, 83, 0.040, 0.0405),
    (94, 86, 0.0225, 0.0358),
    (95, 85, 0.040, 0.0345),
    (181, 180, 0.0195, -0.0385),
    (185, 182, 0.0035, -0.0448),
    (186, 183, 0.0092, -0.0446),
    (187, 184, 0.0065, -0.0432),
    (189, 188, MOUTH_WIDTH, MOUTH_Y),
)
_MIDDLE = (
    (70, 0.0335),
    (71, 0.0155),
    (72, NOSE_TIP[1] + 0.008),
    (73, 0.004),
    (74, -0.008),
    (75, -0.017),
    (76, -0.0905),
    (77, -0.116),
    (178, NOSE_TIP[1]),
    (179, NOSE_TIP[1] - 0.0105),
)
# (shares from the right corner to the left one, ids, upper lip, edge)
_LIPS = (
    ((0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875), (190, 192, 193, 196, 197, 198, 199), True, 1.0),
    ((0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875), (191, 194, 195, 200, 201, 202, 203), False, 1.0),
    ((0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875), (206, 208, 209, 212, 213, 214, 215), True, 0.1),
    ((0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875), (207, 210, 211, 216, 217, 218, 219), False, 0.1),
    ((0.03, 0.97), (204, 205), True, 0.0),
)
# Left ear, ids 220 to 245, side view: (z, y) as shares of the ear's half axes, z to the front.
EAR_FIRST, EAR_OFFSET = 220, 26
EAR_LAYOUT = (
    (0.30, 0.45),  # ends of the lower and the upper crus
    (0.05, 0.62),
    (-0.15, -0.42),  # antihelix: start, end, then its midpoints with the crus's
    (-0.10, 0.30),
    (-0.36, -0.20),
    (0.10, 0.38),
    (-0.42, 0.02),
    (-0.30, 0.20),
    (0.52, 0.42),  # inner helix 1 to 7, from the front over the top down the back
    (0.35, 0.68),
    (0.08, 0.80),
    (-0.25, 0.76),
    (-0.50, 0.52),
    (-0.62, 0.22),
    (-0.60, -0.10),
    (0.02, -0.50),  # antitragus, tragus (bottom, middle, top)
    (0.48, -0.32),
    (0.52, -0.15),
    (0.50, 0.02),
    (0.25, 0.10),  # crus of the helix, concha
    (0.10, -0.08),
    (0.05, -0.90),  # lobe's tip, a midpoint, the lobe's and the helix's ends at the head
    (-0.35, -0.70),
    (0.45, -0.70),
    (0.60, 0.20),
    (-0.48, -0.38),  # inner helix 8
)
# Left iris and its right twins: centre, 3, between 3 and 12, 12, between, 9, between, 6, between, by the clock as seen.
_CLOCK = (None, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75)  # times pi, counter-clockwise as seen
_ROUNDS = (((272, 281), IRIS), ((290, 299), PUPIL))


def front_layout(look: Look) -> tuple[list[int], Array]:
    """Keypoints that lie on the face as seen from the front: their ids, and (x, y) [n, 2] in the head's frame."""
    ids: list[int] = []
    spots: list[tuple[float, float]] = []

    def put(number: int, x: float, y: float) -> None:
        ids.append(number)
        spots.append((float(x), float(y)))

    for number, y in _MIDDLE:
        put(number, 0.0, y)
    for left, right, x, y in _SIDED:
        put(left, x, y)
        put(right, -x, y)
    for across, numbers, rim, edge in _LIPS:
        for number, (x, y) in zip(numbers, lip_line(np.array(across), rim, look, edge), strict=True):
            put(number, x, y)
    low, high = lid_angles(look)
    for left_ids, right_ids, shares, rise, upper in _EYE_LINES:
        elevation = (high if upper else low) + rise
        for left, right, share in zip(left_ids, right_ids, shares, strict=True):
            angle = math.pi - _CORNER - share * (math.pi - 2 * _CORNER)  # inner corner at -x of the left eye
            x = EYE[0] + LID * math.cos(angle)
            y = EYE[1] + LID * math.sin(angle) * math.sin(elevation)
            put(left, x, y)
            put(right, -x, y)
    return ids, np.array(spots)


def eye_points(side: int) -> tuple[list[int], Array]:
    """Iris and pupil of one eye: their ids, and points [18, 3] on the eyeball in the eye's frame.

    The right eye's frame is mirrored, the clock is not: what is at 3 as seen is to the person's left in both eyes.
    """
    ids, points = [], []
    for firsts, radius in _ROUNDS:
        for number, turn in enumerate(_CLOCK):
            angle = 0.0 if turn is None else radius
            across = math.cos(math.pi * (turn or 0.0)) * (1.0 if side == 0 else -1.0)
            up = math.sin(math.pi * (turn or 0.0))
            ids.append(firsts[side] + number)
            points.append((math.sin(angle) * across, math.sin(angle) * up, math.cos(angle)))
    return ids, EYEBALL * np.array(points)
