"""Clothes: shells a little larger than the body over ranges of its limbs."""

from __future__ import annotations

import numpy as np

from training.data.people.body import (
    CHEST_DEPTH,
    FOREARM_PROFILE,
    PELVIS_DEPTH,
    SHIN_PROFILE,
    THIGH_PROFILE,
    UPPER_ARM_PROFILE,
    Painter,
    Part,
    draw_foot,
    hips,
    limb,
    sided,
    squashed,
    trunk,
)
from training.data.people.shapes import Brush
from training.data.people.skeleton import FOREARM, SHIN, THIGH, UPPER_ARM, Skeleton


def _grown(profile: tuple[tuple[float, float], ...], grow: float) -> list[tuple[float, float]]:
    return [(share, radius + grow) for share, radius in profile]


def _cuff(brush: Brush, profile: list[tuple[float, float]], length: float, girth: float, end: float) -> None:
    """A sleeve or trouser leg, with an open, wider rim."""
    limb(brush, profile, length, girth, end)
    last = profile[-1][1] * girth
    brush.band((0, -(end - 0.12) * length, 0), (0, -end * length, 0), last + 0.006, last + 0.016)


def draw_clothes(painter: Painter, body: Skeleton) -> None:
    """Top, bottom, socks, shoes, scarf and watch."""
    look = painter.look
    _top(painter, body)
    _bottom(painter, body)
    for number, side in enumerate(body.sides):
        if look.socks > 0:
            socks = painter.on(side.shin, sided(Part.LEFT_SOCK, number), "socks")
            start = 1.0 - look.socks
            shares, radii = zip(*SHIN_PROFILE, strict=True)
            kept = [start, *(share for share in shares if share > start)]
            widths = np.interp(kept, shares, radii) * look.girth + 0.004
            socks.chain([(0, -share * SHIN, 0) for share in kept], widths.tolist())
        if look.shoes:
            shoe = painter.on(side.foot, sided(Part.LEFT_SHOE, number), "shoes")
            draw_foot(shoe, 0.008, toes=False)
            sole = painter.on(side.foot, sided(Part.LEFT_SHOE, number), "sole")
            sole.ellipsoid((0.0, -0.07, 0.05), (0.046, 0.017, 0.135))
            if look.shoes == "boots":
                boot = painter.on(side.shin, sided(Part.LEFT_SHOE, number), "shoes")
                boot.chain([(0, -0.62 * SHIN, 0), (0, -SHIN, 0)], [0.058 * look.girth, 0.046 * look.girth])
    if look.scarf:
        scarf = painter.on(body.chest, Part.APPAREL, "scarf")
        scarf.ellipsoid((0, 0.435, 0.0), (0.092, 0.045, 0.088))
        scarf.chain([(0.045, 0.41, 0.085), (0.05, 0.2, 0.125)], [0.026, 0.034])
    if look.watch:
        watch = painter.on(body.sides[0].forearm, Part.APPAREL, "frame")
        radius = 0.031 * look.girth + 0.002
        watch.band((0, -0.225, 0), (0, -0.205, 0), radius, radius)
        watch.ellipsoid((0.03 * look.girth, -0.215, 0), (0.007, 0.017, 0.017))


def _top(painter: Painter, body: Skeleton) -> None:
    look = painter.look
    if look.top == "bare":
        return
    grow = 0.012
    chest = painter.on(squashed(body.chest, CHEST_DEPTH), Part.UPPER_CLOTHING, "top")
    if look.top == "tank":  # chest and belly only, the shoulders stay skin
        trunk(chest, look, grow, straps=True)
    else:
        trunk(chest, look, grow)
        for side in body.sides:
            arm = painter.on(side.arm, Part.UPPER_CLOTHING, "top")
            if look.top == "short":
                _cuff(arm, _grown(UPPER_ARM_PROFILE, 0.009), UPPER_ARM, look.girth, 0.6)
            else:
                limb(arm, _grown(UPPER_ARM_PROFILE, 0.009), UPPER_ARM, look.girth)
                fore = painter.on(side.forearm, Part.UPPER_CLOTHING, "top")
                limb(fore, _grown(FOREARM_PROFILE, 0.009), FOREARM, look.girth, 0.9)
    pelvis = painter.on(squashed(body.pelvis, PELVIS_DEPTH), Part.UPPER_CLOTHING, "top")
    if look.tucked:
        waist = 0.128 * look.girth * look.waist + grow
        pelvis.chain([(-0.03, 0.11, 0), (0.03, 0.11, 0)], [waist - 0.016, waist - 0.016])
    else:
        hips(pelvis, look, 0.018, low=0.0)


def _bottom(painter: Painter, body: Skeleton) -> None:
    look = painter.look
    flat = squashed(body.pelvis, PELVIS_DEPTH)
    pelvis = painter.on(flat, Part.LOWER_CLOTHING, "bottom")
    hips(pelvis, look, 0.01)
    if look.bottom == "skirt":
        top = 0.128 * look.girth * look.waist + 0.035
        pelvis.band((0, 0.06, 0), (0, -0.12, 0), top, 0.2 * look.hips * look.girth)
        pelvis.band((0, -0.12, 0), (0, -0.44, 0), 0.2 * look.hips * look.girth, 0.29 * look.hips)
        return
    for side in body.sides:
        thigh = painter.on(side.thigh, Part.LOWER_CLOTHING, "bottom")
        if look.bottom == "shorts":
            _cuff(thigh, _grown(THIGH_PROFILE, 0.01), THIGH, look.girth, 0.62)
        else:
            limb(thigh, _grown(THIGH_PROFILE, 0.009), THIGH, look.girth)
            shin = painter.on(side.shin, Part.LOWER_CLOTHING, "bottom")
            limb(shin, _grown(SHIN_PROFILE, 0.011), SHIN, look.girth, 0.93)
