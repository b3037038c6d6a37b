"""The skin of one person but for hands' fingers and head: torso, arms, legs, feet. And the parts' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from training.data.people.looks import Look
from training.data.people.shapes import Brush, Frame, Shapes
from training.data.people.skeleton import FINGERS, FOREARM, SHIN, THIGH, THUMB, UPPER_ARM, Skeleton


class Part(IntEnum):
    """The 29 classes of the released body-part segmentation. The renderer reaches all of them.

    Eyes, brows, ears, nostrils and the hollow of an open mouth are FACE_NECK, as in the released mapping of finer
    classes; clear lenses show what is behind them. Ours: a beard is HAIR; hats, scarves and watches are APPAREL; the
    covered waist is of whatever covers it.
    """

    BACKGROUND = 0
    APPAREL = 1
    EYEGLASS = 2
    FACE_NECK = 3
    HAIR = 4
    LEFT_FOOT = 5
    LEFT_HAND = 6
    LEFT_LOWER_ARM = 7
    LEFT_LOWER_LEG = 8
    LEFT_SHOE = 9
    LEFT_SOCK = 10
    LEFT_UPPER_ARM = 11
    LEFT_UPPER_LEG = 12
    LOWER_CLOTHING = 13
    RIGHT_FOOT = 14
    RIGHT_HAND = 15
    RIGHT_LOWER_ARM = 16
    RIGHT_LOWER_LEG = 17
    RIGHT_SHOE = 18
    RIGHT_SOCK = 19
    RIGHT_UPPER_ARM = 20
    RIGHT_UPPER_LEG = 21
    TORSO = 22
    UPPER_CLOTHING = 23
    LOWER_LIP = 24
    UPPER_LIP = 25
    LOWER_TEETH = 26
    UPPER_TEETH = 27
    TONGUE = 28


def sided(left: Part, side: int) -> Part:
    """The part of the left (0) or right (1) half: the released numbers of the two halves differ by 9."""
    return Part(int(left) + 9 * side)


class Painter:
    """Makes brushes for one person."""

    def __init__(self, shapes: Shapes, person: int, look: Look) -> None:
        self.shapes, self.person, self.look = shapes, person, look
        self._known: dict[int, tuple[Frame, int]] = {}

    def on(self, frame: Frame, part: Part, material: str) -> Brush:
        """A brush on a frame; a frame is registered once."""
        known = self._known.get(id(frame))
        if known is None:
            known = self._known[id(frame)] = (frame, self.shapes.frame(frame))  # kept alive, so that ids stay unique
        return Brush(self.shapes, known[1], self.person, int(part), self.look.materials[material])


UPPER_ARM_PROFILE = ((0.0, 0.052), (0.4, 0.047), (1.0, 0.036))  # (share of the length, radius in metres)
FOREARM_PROFILE = ((0.0, 0.037), (0.28, 0.04), (1.0, 0.026))
THIGH_PROFILE = ((0.0, 0.088), (0.45, 0.075), (1.0, 0.054))
SHIN_PROFILE = ((0.0, 0.053), (0.3, 0.055), (1.0, 0.035))


def limb(brush: Brush, profile: Sequence[tuple[float, float]], length: float, girth: float, end: float = 1.0) -> None:
    """A limb along -y, up to the share `end` of its length."""
    shares, radii = (np.array(column) for column in zip(*profile, strict=True))
    kept = [share for share in shares.tolist() if share < end - 1e-6] + [end]
    widths = np.interp(kept, shares, radii) * girth
    brush.chain([(0.0, -share * length, 0.0) for share in kept], widths.tolist())


def trunk(chest: Brush, look: Look, grow: float, straps: bool = False) -> None:
    """Chest and belly in the chest's squashed frame; `grow` metres larger than the skin.

    `straps` leaves the shoulders out but for a strap over each.
    """
    girth, wide = look.girth, look.shoulders
    waist = 0.128 * girth * look.waist + grow
    rib = 0.112 * girth + grow
    chest.chain([(-0.075 * wide, 0.24, 0), (0.075 * wide, 0.24, 0)], [rib + 0.005, rib + 0.005])
    chest.chain([(-0.03, 0.03, 0), (-0.068 * wide, 0.2, 0)], [waist - 0.018, rib])
    chest.chain([(0.03, 0.03, 0), (0.068 * wide, 0.2, 0)], [waist - 0.018, rib])
    chest.ellipsoid((0, 0.29, 0.0), np.array([0.148 * wide, 0.135, 0.118 * girth]) + grow)
    for side in (-1.0, 1.0):  # from the neck's root over the shoulder
        if straps:
            chest.chain([(side * 0.085, 0.24, 0), (side * 0.095, 0.385, -0.005)], [rib, 0.06 + grow])
        else:
            chest.chain(
                [(side * 0.02, 0.395, -0.005), (side * 0.155 * wide, 0.365, -0.01)],
                [0.068 + grow, 0.058 * girth + grow],
            )
        if look.chest > 0:
            chest.ellipsoid(
                (side * 0.07, 0.225, 0.037 + 0.036 * look.chest), np.array([0.074, 0.088, 0.074]) * girth + grow
            )


def hips(pelvis: Brush, look: Look, grow: float, low: float = -0.02) -> None:
    """The pelvis in its squashed frame, from the belly to `low`."""
    wide = 0.155 * look.hips * (0.6 + 0.4 * look.girth)
    waist = 0.128 * look.girth * look.waist + grow
    pelvis.chain([(-0.03, 0.11, 0), (-(wide - 0.1), low + 0.02, -0.01)], [waist - 0.018, 0.104 * look.girth + grow])
    pelvis.chain([(0.03, 0.11, 0), (wide - 0.1, low + 0.02, -0.01)], [waist - 0.018, 0.104 * look.girth + grow])
    for side in (-1.0, 1.0):
        pelvis.sphere((side * 0.062, low - 0.005, -0.055), 0.092 * look.girth + grow)


def squashed(frame: Frame, depth: float) -> Frame:
    """The frame with its z scaled: round shapes become elliptic."""
    return frame.child((0, 0, 0), np.diag([1.0, 1.0, depth]))


CHEST_DEPTH, PELVIS_DEPTH = 0.7, 0.78


def draw_body(painter: Painter, body: Skeleton) -> None:
    """Skin that clothes may cover; what long sleeves or trousers hide entirely is left out."""
    look = painter.look
    girth = look.girth
    neck = painter.on(body.neck, Part.FACE_NECK, "skin")
    neck.chain([(0, -0.02, 0), (0, 0.1, 0.012)], [0.056 * (0.5 + 0.5 * girth), 0.052 * (0.5 + 0.5 * girth)])
    if look.top in ("bare", "tank"):
        trunk(painter.on(squashed(body.chest, CHEST_DEPTH), Part.TORSO, "skin"), look, 0.0)
    if look.top == "bare":
        hips(painter.on(squashed(body.pelvis, PELVIS_DEPTH), Part.TORSO, "skin"), look, 0.0)
    for number, side in enumerate(body.sides):
        if look.top != "long":
            upper = painter.on(side.arm, sided(Part.LEFT_UPPER_ARM, number), "skin")
            limb(upper, UPPER_ARM_PROFILE, UPPER_ARM, girth)
        lower = painter.on(side.forearm, sided(Part.LEFT_LOWER_ARM, number), "skin")
        limb(lower, FOREARM_PROFILE, FOREARM, girth)
        draw_hand(painter.on(side.hand, sided(Part.LEFT_HAND, number), "skin"), side.fingers)
        if look.bottom != "trousers":
            limb(painter.on(side.thigh, sided(Part.LEFT_UPPER_LEG, number), "skin"), THIGH_PROFILE, THIGH, girth)
        limb(painter.on(side.shin, sided(Part.LEFT_LOWER_LEG, number), "skin"), SHIN_PROFILE, SHIN, girth)
        if not look.shoes:
            sock = look.socks > 0
            part = sided(Part.LEFT_SOCK if sock else Part.LEFT_FOOT, number)
            draw_foot(painter.on(side.foot, part, "socks" if sock else "skin"), 0.0, toes=not sock)


def draw_hand(brush: Brush, fingers: np.ndarray) -> None:
    """A left hand: an elliptic palm, metacarpals, fingers of three phalanges, a thumb of two."""
    brush.ellipsoid((-0.002, -0.052, 0.0), (0.0165, 0.053, 0.041))
    brush.chain(fingers[0], THUMB[3])
    for finger, (_, _, radii, _) in zip(fingers[1:], FINGERS, strict=True):
        brush.chain(finger, radii)


def draw_foot(brush: Brush, grow: float, toes: bool) -> None:
    """A left foot: heel, instep and ball; with five toes if asked for. The big toe is inward, at -x."""
    brush.chain([(0, 0.0, 0.0), (0, -0.04, -0.035)], [0.034 + grow, 0.034 + grow])
    brush.chain([(0, -0.042, -0.03), (0, -0.05, 0.08)], [0.033 + grow, 0.026 + grow])
    brush.chain([(0, -0.012, 0.01), (-0.01, -0.045, 0.1)], [0.033 + grow, 0.022 + grow])
    brush.chain([(-0.02, -0.056, 0.11), (0.024, -0.057, 0.09)], [0.02 + grow, 0.018 + grow])
    if not toes:
        brush.chain([(-0.016, -0.056, 0.145), (0.018, -0.059, 0.118)], [0.02 + grow, 0.0165 + grow])
        return
    brush.chain([(-0.024, -0.058, 0.12), (-0.022, -0.062, 0.158)], [0.015, 0.0125])
    for number in range(4):
        x, z = -0.003 + 0.0125 * number, 0.153 - 0.0105 * number
        brush.chain([(x, -0.06, z - 0.035), (x, -0.065, z)], [0.0105, 0.0085])
