"""Shapes as clipped quadrics in camera coordinates: coefficients, boxes of silhouettes, normals.

A quadric is x^T M x + 2 q . x + k = 0. A camera ray is x = z (u, v, 1), so its root z is the metric depth itself. Every
surface is clipped to a slab lo <= n . x <= hi; the nearer root inside of the slab is the hit. A silhouette's bounding
box comes from the dual conic, so that a ray meets only the shapes whose box holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.data.people.shapes import Array, Shapes

NEAR = 0.08  # metres; shapes that reach nearer to the camera plane are left out, from pictures and labels alike


@dataclass(frozen=True)
class Quadrics:
    """S shapes.

    Attributes:
        coefficients: float64 [10, S]: M00, M11, M22, 2 M01, 2 M02, 2 M12, q0, q1, q2, k.
        slabs: float64 [5, S]: n (3), lo, hi.
        bounds: float64 [4, S]: smallest and largest u, then v, of the silhouette (normalised: x / z, y / z).
        tags: int64 [4, S]: frame, person, part, material.
        inverse: float64 [F, 3, 3], and origin [F, 3]: local y = inverse (x - origin), for textures.
    """

    coefficients: Array
    slabs: Array
    bounds: Array
    tags: npt.NDArray[np.int64]
    inverse: Array
    origin: Array

    @property
    def count(self) -> int:
        """S."""
        return self.coefficients.shape[1]


def _cone_locals(a: Array, b: Array, ra: Array, rb: Array, tangent: npt.NDArray[np.bool_]) -> tuple[Array, ...]:
    """M, q, k and slab of the cones [n] in local coordinates, and which of them exist."""
    axis = b - a
    length = np.linalg.norm(axis, axis=1)
    exists = (length > 1e-9) & (~tangent | (np.abs(ra - rb) < length - 1e-9))
    length = np.where(length > 1e-9, length, 1.0)
    axis /= length[:, None]
    # Tangent to both spheres: rho cos + s sin = ra along the axis s, and the circles of contact bound it.
    # Otherwise through the two given circles: rho = ra + (rb - ra) s / length.
    sine = np.where(tangent & exists, (ra - rb) / length, 0.0)
    cosine = np.sqrt(1 - sine**2)
    base = np.where(tangent, ra / cosine, ra)
    slope = np.where(tangent, -sine / cosine, (rb - ra) / length)
    lo = np.where(tangent, ra * sine, 0.0)
    hi = np.where(tangent, length + rb * sine, length)
    # rho^2 - (base + slope s)^2 with rho^2 = |y|^2 - s^2
    m = np.eye(3) - (1 + slope**2)[:, None, None] * axis[:, :, None] * axis[:, None, :]
    q = -(base * slope)[:, None] * axis
    k = -(base**2)
    k = k - 2 * np.einsum("ni,ni->n", q, a) + np.einsum("ni,nij,nj->n", a, m, a)
    q = q - np.einsum("nij,nj->ni", m, a)
    along = np.einsum("ni,ni->n", axis, a)
    slab = np.concatenate([axis, (lo + along)[:, None], (hi + along)[:, None]], axis=1)
    return m, q, k, slab, exists


def _silhouette(spread: Array, centre: Array) -> Array:
    """Bounds [n, 4] of projected ellipsoids of spread matrix A A^T [n, 3, 3] round a centre [n, 3]."""
    dual = spread - centre[:, :, None] * centre[:, None, :]
    last = dual[:, 2, 2]
    bounds = []
    for axis in (0, 1):
        middle = dual[:, axis, 2]
        root = np.sqrt(np.maximum(middle**2 - dual[:, axis, axis] * last, 0))
        bounds += [(middle + root) / last, (middle - root) / last]  # `last` is negative in front of the camera
    return np.stack(bounds, axis=1)


def assemble(shapes: Shapes, turn: Array, place: Array) -> Quadrics:
    """Shapes of the world, seen by a camera at which x_camera = turn x + place.

    Args:
        shapes: what was collected.
        turn: float64 [3, 3], a rotation.
        place: float64 [3].
    """
    if not shapes.frames or not (shapes.ellipsoids or shapes.cones):
        none = np.zeros((0, 3, 3)), np.zeros((0, 3))
        return Quadrics(np.zeros((10, 0)), np.zeros((5, 0)), np.zeros((4, 0)), np.zeros((4, 0), np.int64), *none)
    turns = turn @ np.stack([frame.turn for frame in shapes.frames])
    origin = np.stack([frame.place for frame in shapes.frames]) @ turn.T + place
    inverse = np.linalg.inv(turns)
    parts = []
    if shapes.ellipsoids:
        centres = np.array([row[0] for row in shapes.ellipsoids], np.float64)
        radii = np.array([row[1] for row in shapes.ellipsoids], np.float64)
        slab = np.array([row[2] for row in shapes.ellipsoids], np.float64)
        tags = np.array([row[3] for row in shapes.ellipsoids], np.int64)
        m = np.eye(3) * (1 / radii**2)[:, None, :]
        q = -centres / radii**2
        k = ((centres / radii) ** 2).sum(axis=1) - 1
        frame = tags[:, 0]
        grown = turns[frame] * radii[:, None, :]
        centre = np.einsum("nij,nj->ni", turns[frame], centres) + origin[frame]
        spread = grown @ np.swapaxes(grown, 1, 2)
        fine = centre[:, 2] - np.sqrt(spread[:, 2, 2]) > NEAR
        parts.append((m, q, k, slab, tags, _silhouette(spread, centre), fine))
    if shapes.cones:
        a = np.array([row[0] for row in shapes.cones], np.float64)
        b = np.array([row[1] for row in shapes.cones], np.float64)
        radii = np.array([row[2:4] for row in shapes.cones], np.float64)
        tangent = np.array([row[4] for row in shapes.cones])
        tags = np.array([row[5] for row in shapes.cones], np.int64)
        m, q, k, slab, fine = _cone_locals(a, b, radii[:, 0], radii[:, 1], tangent)
        frame = tags[:, 0]
        square = turns[frame] @ np.swapaxes(turns[frame], 1, 2)
        ends = []
        for end, radius in ((a, radii[:, 0]), (b, radii[:, 1])):
            centre = np.einsum("nij,nj->ni", turns[frame], end) + origin[frame]
            spread = square * (radius**2)[:, None, None]
            fine = fine & (centre[:, 2] - np.sqrt(spread[:, 2, 2]) > NEAR)
            ends.append(_silhouette(spread, centre))
        low, high = np.minimum(*ends), np.maximum(*ends)
        parts.append((m, q, k, slab, tags, np.stack([low[:, 0], high[:, 1], low[:, 2], high[:, 3]], 1), fine))
    m, q, k, slab, tags, bounds, fine = (np.concatenate(column) for column in zip(*parts, strict=True))
    m, q, k, slab, tags, bounds = m[fine], q[fine], k[fine], slab[fine], tags[fine], bounds[fine]
    # y = B x + c turns y^T m y + 2 q . y + k into the camera's coordinates.
    b_matrix, shift = inverse[tags[:, 0]], -np.einsum("nij,nj->ni", inverse[tags[:, 0]], origin[tags[:, 0]])
    moved = np.einsum("nij,nj->ni", m, shift) + q
    k = np.einsum("ni,ni->n", shift, moved + q) + k
    q = np.einsum("nji,nj->ni", b_matrix, moved)
    m = np.swapaxes(b_matrix, 1, 2) @ m @ b_matrix
    along = np.einsum("ni,ni->n", slab[:, :3], shift)
    normal = np.einsum("nji,nj->ni", b_matrix, slab[:, :3])
    coefficients = np.stack(
        [m[:, 0, 0], m[:, 1, 1], m[:, 2, 2], 2 * m[:, 0, 1], 2 * m[:, 0, 2], 2 * m[:, 1, 2], *q.T, k]
    )
    return Quadrics(
        coefficients,
        np.concatenate([normal.T, slab[:, 3:].T - along]),
        np.ascontiguousarray(bounds.T),
        np.ascontiguousarray(tags.T),
        inverse.astype(np.float64, copy=False),
        origin,
    )


def normals_at(quadrics: Quadrics, shape: npt.NDArray[np.int64], points: Array) -> Array:
    """Unit normals [n, 3] of the shapes at points on them, turned to the camera."""
    a00, a11, a22, a01, a02, a12, q0, q1, q2, _ = (row[shape] for row in quadrics.coefficients)
    x, y, z = points.T
    normal = np.stack(
        [
            a00 * x + (a01 * y + a02 * z) / 2 + q0,
            a11 * y + (a01 * x + a12 * z) / 2 + q1,
            a22 * z + (a02 * x + a12 * y) / 2 + q2,
        ],
        axis=1,
    )
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    away = np.einsum("ni,ni->n", normal, points) > 0
    normal[away] *= -1
    return normal
