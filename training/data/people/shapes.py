"""Shapes in affine frames: ellipsoids, tapered capsules, open rings.

A frame maps local coordinates to the world: x = T y + p with any invertible T, so that one frame holds scale, squash
and mirror. A round shape in a squashed frame is an elliptic one, and the right half of a body is the left one in a
mirrored frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_ALL = (0.0, 0.0, 0.0, -1.0, 1.0)  # a slab that clips nothing: -1 <= 0 . y <= 1


@dataclass(frozen=True)
class Frame:
    """x = `turn` y + `place`.

    Attributes:
        turn: float64 [3, 3], invertible.
        place: float64 [3], metres.
    """

    turn: Array
    place: Array

    def at(self, local: Any) -> Array:
        """Local points [..., 3] in the world."""
        return np.asarray(local, np.float64) @ self.turn.T + self.place

    def child(self, offset: Any, turn: Array | None = None) -> Frame:
        """A frame whose origin is the local point `offset`, turned by `turn` [3, 3]."""
        place = self.at(offset)
        return Frame(self.turn if turn is None else self.turn @ turn, place)


@dataclass
class Shapes:
    """Collects shapes; every shape belongs to a frame, a person, a part and a material."""

    frames: list[Frame] = field(default_factory=list)
    # centre, radii, slab; start, end, both radii, tangent to spheres or not; each with (frame, person, part, material)
    ellipsoids: list[tuple[Any, Any, Any, tuple[int, int, int, int]]] = field(default_factory=list)
    cones: list[tuple[Any, Any, float, float, bool, tuple[int, int, int, int]]] = field(default_factory=list)

    def frame(self, frame: Frame) -> int:
        """Register a frame."""
        self.frames.append(frame)
        return len(self.frames) - 1


@dataclass
class Brush:
    """Adds shapes of one person, in one frame, of one part and material.

    Attributes:
        shapes: where they go.
        frame: index of the frame.
        person, part, material: what the pixels will be.
    """

    shapes: Shapes
    frame: int
    person: int
    part: int
    material: int

    @property
    def _tags(self) -> tuple[int, int, int, int]:
        return (self.frame, self.person, self.part, self.material)

    def ellipsoid(self, centre: Any, radii: Any, slab: Any = _ALL) -> None:
        """An ellipsoid along the frame's axes, of which only lo <= n . y <= hi where slab = (n_x, n_y, n_z, lo, hi)."""
        self.shapes.ellipsoids.append((centre, radii, slab, self._tags))

    def sphere(self, centre: Any, radius: float, slab: Any = _ALL) -> None:
        """A sphere."""
        self.ellipsoid(centre, (radius, radius, radius), slab=slab)

    def chain(self, points: Any, radii: Any) -> None:
        """Tapered capsules from joint to joint: spheres, and the cones that touch both neighbours."""
        for point, radius in zip(points, radii, strict=True):
            self.sphere(point, radius)
        for i in range(len(points) - 1):
            self.shapes.cones.append((points[i], points[i + 1], radii[i], radii[i + 1], True, self._tags))

    def band(self, start: Any, end: Any, start_radius: float, end_radius: float) -> None:
        """An open cone between two circles: a ring, a skirt, a sleeve's end."""
        self.shapes.cones.append((start, end, start_radius, end_radius, False, self._tags))
