"""What a head wears: hair, beard, hat, eyeglasses."""

from __future__ import annotations

import math

import numpy as np

from training.data.people.body import Painter, Part
from training.data.people.head import EYE, FACE, SKULL
from training.data.people.shapes import Brush, Frame


def _cap(brush: Brush, grow: float, back: float, height: float) -> None:
    """The part of a grown skull behind and over a plane that leans back by `back` radians through y = `height`."""
    centre, radii = SKULL
    normal = np.array([0.0, math.cos(back), -math.sin(back)])
    level = float(normal @ np.array([0.0, height, 0.078]))
    brush.ellipsoid(centre, np.asarray(radii) + grow, slab=(*normal, level, level + 1.0))


def draw_hair(painter: Painter, head: Frame) -> None:
    """Hair in its style; a beard."""
    look = painter.look
    hair = painter.on(head, Part.HAIR, "hair")
    low = 0.0 if look.hat else 1.0  # a hat presses hair down
    if look.hair == "crop":
        _cap(hair, 0.004, 0.75, 0.075)
    elif look.hair == "short":
        _cap(hair, 0.008 + 0.006 * low, 0.8, 0.068)
        for x in (-0.03, 0.0, 0.03):
            hair.ellipsoid((x, 0.11, 0.035), (0.034, 0.022 * (0.6 + 0.4 * low), 0.042))
    elif look.hair in ("long", "bob", "bun"):
        _cap(hair, 0.008 + 0.004 * low, 0.62, 0.07)
        if look.hair == "bun":
            hair.sphere((0.0, 0.1, -0.105), 0.036)
        else:
            length = 0.32 if look.hair == "long" else 0.15
            for x, z in ((-0.045, -0.075), (0.0, -0.09), (0.045, -0.075)):
                hair.chain([(x, 0.02, z), (x * 1.1, -0.15 * length / 0.15 * 0.7, z - 0.01)], [0.05, 0.042])
            for side in (-1.0, 1.0):
                points = [(side * 0.052, 0.085, 0.02), (side * 0.078, 0.0, -0.005), (side * 0.08, -0.6 * length, -0.01)]
                hair.chain(points, [0.032, 0.021, 0.022])
    elif look.hair == "afro":
        if low:
            hair.ellipsoid((0, 0.068, -0.04), (0.118, 0.105, 0.112))
        _cap(hair, 0.016, 0.6, 0.066)
    if look.beard:
        centre, radii = FACE
        grown = np.asarray(radii) + 0.0035
        hair.ellipsoid(centre, grown, slab=(0.0, 1.0, -0.25, -1.0, -0.103))
        hair.ellipsoid((0, -0.103, 0.058), (0.0295, 0.0245, 0.028), slab=(0.0, 1.0, 0.0, -1.0, -0.091))


def draw_hat(painter: Painter, head: Frame) -> None:
    """A cap with its peak, or a beanie."""
    look = painter.look
    if not look.hat:
        return
    hat = painter.on(head, Part.APPAREL, "hat")
    if look.hat == "beanie":
        _cap(hat, 0.017, 0.25, 0.062)
        centre, radii = SKULL
        hat.ellipsoid((0, centre[1] + radii[1] + 0.022, centre[2] - 0.02), (0.03, 0.024, 0.03))
        return
    _cap(hat, 0.017, 0.15, 0.062)
    hat.ellipsoid((0, 0.066, 0.1), (0.066, 0.0055, 0.068))


def draw_glasses(painter: Painter, head: Frame) -> None:
    """Frames as open rings with bridge and temples; shades have dark lenses."""
    look = painter.look
    if not look.glasses:
        return
    front = EYE[2] + 0.03
    brush = painter.on(head, Part.EYEGLASS, "frame")
    brush.chain([(-0.012, 0.012, front + 0.001), (0.012, 0.012, front + 0.001)], [0.0018, 0.0018])
    for side in (-1.0, 1.0):
        brush.chain([(side * 0.053, 0.012, front - 0.004), (side * 0.083, 0.012, -0.005)], [0.0019, 0.0019])
        centre = np.array([side * (EYE[0] + 0.0015), EYE[1] - 0.001, front])
        squash = painter.on(head.child(centre, np.diag([1.0, 0.82, 1.0])), Part.EYEGLASS, "frame")
        squash.band((0, 0, 0), (0, 0, -0.0025), 0.0195, 0.0235)
        if look.glasses == "shades":
            lens = painter.on(head, Part.EYEGLASS, "lens")
            lens.ellipsoid(centre, (0.0215, 0.0175, 0.003))
