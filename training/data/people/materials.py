"""Procedural textures: the albedo of a point from its local coordinates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from training.data.people.shapes import Array

PLAIN, ROWS, COLUMNS, CHECKS, DOTS, BLOTCHES, MOTTLED, STRANDS, EYE = range(9)
IRIS = 0.48  # radians at the eyeball's centre: an iris of 11.5 mm on an eyeball of 25 mm
PUPIL = 0.2


@dataclass
class Materials:
    """Rows of (colour, second colour, pattern, frequency, phases)."""

    colours: list[Array] = field(default_factory=list)
    patterns: list[int] = field(default_factory=list)
    frequencies: list[float] = field(default_factory=list)
    phases: list[Array] = field(default_factory=list)

    def add(self, first: Array, second: Array, pattern: int, frequency: float, rng: np.random.Generator) -> int:
        """A material: linear RGB [3] twice, a pattern, its frequency in radians per metre. Returns its index."""
        self.colours.append(np.stack([first, second]).clip(0.0, 1.0))
        self.patterns.append(pattern)
        self.frequencies.append(frequency)
        self.phases.append(rng.uniform(0, 2 * np.pi, 3))
        return len(self.patterns) - 1

    def albedo(self, material: npt.NDArray[np.int64], local: Array) -> Array:
        """Linear RGB [n, 3], 0..1, of points.

        Args:
            material: int64 [n].
            local: float64 [n, 3], in the frame of the shape, about metres.
        """
        colours = np.stack(self.colours)[material]
        pattern = np.array(self.patterns)[material]
        wave = local * np.array(self.frequencies)[material][:, None] + np.stack(self.phases)[material]
        blend = np.zeros(len(material))
        for kind in np.unique(pattern).tolist():
            if kind == PLAIN:
                continue
            rows = np.flatnonzero(pattern == kind)
            if kind == EYE:
                blend[rows] = 1.0
            else:
                blend[rows] = _blend(kind, wave[rows])
        albedo = colours[:, 0] + blend[:, None] * (colours[:, 1] - colours[:, 0])
        eyes = np.flatnonzero(pattern == EYE)
        if len(eyes):
            # The eye's frame looks along z; its sphere is about the origin.
            at = local[eyes]
            angle = np.arctan2(np.hypot(at[:, 0], at[:, 1]), at[:, 2])
            albedo[eyes[angle > IRIS]] = colours[eyes[angle > IRIS], 0]
            albedo[eyes[angle < PUPIL]] = 0.01
        return albedo


def _blend(kind: int, wave: Array) -> Array:
    """How much of the second colour, 0..1."""
    x, y, z = wave.T
    if kind == ROWS:
        return (np.sin(y) > 0.2).astype(np.float64)
    if kind == COLUMNS:
        return (np.sin(x) > 0.5).astype(np.float64)
    if kind == CHECKS:
        return 0.5 * (np.sin(x) > 0) + 0.5 * (np.sin(y) > 0)
    if kind == DOTS:
        return (np.sin(x) * np.sin(y) > 0.5).astype(np.float64)
    if kind == STRANDS:
        return 0.5 + 0.5 * np.sin(x + 0.3 * np.sin(0.21 * y)) * np.cos(0.4 * z)
    soft = np.sin(x + np.sin(0.7 * y)) + np.sin(0.8 * y + np.sin(0.6 * z)) + np.sin(0.9 * z + np.sin(1.1 * x))
    if kind == BLOTCHES:
        return 1 / (1 + np.exp(-6 * soft))
    return 0.5 + soft / 6
