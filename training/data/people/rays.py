"""Exact first hits of camera rays z (u, v, 1) with clipped quadrics.

On one row of a picture v is constant, so that a shape's quadratic has few coefficients, and its roots are real on one
run of columns: a ray meets only the shapes that it may hit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.data.people.quadrics import NEAR, Quadrics
from training.data.people.shapes import Array

_CHUNK = 1 << 14  # pairs at a time: their arrays stay in a core's cache


@dataclass(frozen=True)
class Lines:
    """Shapes on picture rows: a ray (u, v, 1) of constant v meets z^2 (a0 u^2 + a1 u + a2) + 2 z (b1 u + b0) + k = 0.

    All arrays are float64 [n] but `shape` and `open`; the slab is lo <= z (n1 u + n0) <= hi.
    """

    shape: npt.NDArray[np.int64]
    a0: Array
    a1: Array
    a2: Array
    b1: Array
    b0: Array
    k: Array
    n1: Array
    n0: Array
    lo: Array
    hi: Array
    clipped: npt.NDArray[np.bool_]


def lines_of(quadrics: Quadrics, shape: npt.NDArray[np.int64], v: Array) -> Lines:
    """The shapes [n] on rows v [n]."""
    a00, a11, a22, a01, a02, a12, q0, q1, q2, k = (row[shape] for row in quadrics.coefficients)
    n0, n1, n2, lo, hi = (row[shape] for row in quadrics.slabs)
    clipped = (n0 != 0) | (n1 != 0) | (n2 != 0)
    return Lines(
        shape, a00, a01 * v + a02, (a11 * v + a12) * v + a22, q0, q1 * v + q2, k, n0, n1 * v + n2, lo, hi, clipped
    )


def cast(lines: Lines, line: npt.NDArray[np.int64], u: Array) -> tuple[npt.NDArray[np.int64], Array]:
    """Hits of pairs of a line and a ray on it.

    Args:
        lines: shapes on rows.
        line: int64 [n], indices of lines.
        u: float64 [n].

    Returns:
        int64 [m], which pairs hit, ascending; float64 [m], their depths.
    """
    a = (lines.a0[line] * u + lines.a1[line]) * u + lines.a2[line]
    b = lines.b1[line] * u + lines.b0[line]
    k = lines.k[line]
    inside = b * b - a * k
    pairs = np.flatnonzero(inside > 0)
    if len(pairs) < len(line):
        a, b, k, inside, line, u = a[pairs], b[pairs], k[pairs], inside[pairs], line[pairs], u[pairs]
    # The root of larger size without cancellation, the other one from the product of both.
    large = -(b + np.copysign(np.sqrt(inside), b))
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = large / a, k / large
    near = np.minimum(first, second)
    fine = near > NEAR
    cut = np.flatnonzero(lines.clipped[line])
    if len(cut):
        far = np.maximum(first[cut], second[cut])
        row = line[cut]
        slope, lo, hi = lines.n1[row] * u[cut] + lines.n0[row], lines.lo[row], lines.hi[row]
        height, behind = near[cut] * slope, far * slope
        near_in = fine[cut] & (height >= lo) & (height <= hi)
        far_in = (far > NEAR) & (behind >= lo) & (behind <= hi)
        near[cut] = np.where(near_in, near[cut], far)
        fine[cut] = near_in | far_in
    hit = np.flatnonzero(fine)
    return pairs[hit], near[hit]


def pixel_pairs(
    quadrics: Quadrics, intrinsics: Array, size: tuple[int, int]
) -> tuple[Lines, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs of a shape and a pixel whose ray may hit it.

    They lie in the box of the shape's silhouette and, row by row, where the ray's quadratic has real roots.

    Returns:
        Lines; int64 [n] each: which line (shapes ascend), pixel row, pixel column.
    """
    height, width = size
    ends = []
    for axis, length in ((0, width), (1, height)):
        focal, middle = intrinsics[axis, axis], intrinsics[axis, 2]
        low = np.ceil(np.clip(quadrics.bounds[2 * axis] * focal + middle, 0, length)).astype(np.int64)
        high = np.floor(np.clip(quadrics.bounds[2 * axis + 1] * focal + middle, -1, length - 1)).astype(np.int64)
        ends.append((low, high))
    (left, right), (top, bottom) = ends
    tall = np.where(right >= left, np.maximum(bottom - top + 1, 0), 0)
    shape, place = _runs(tall)
    row = top[shape] + place
    lines = lines_of(quadrics, shape, (row - intrinsics[1, 2]) / intrinsics[1, 1])
    # b^2 - a k as a polynomial of u; where it opens downward, hits lie between its roots.
    square = lines.b1**2 - lines.k * lines.a0
    half = lines.b1 * lines.b0 - lines.k * lines.a1 / 2
    inside = half * half - square * (lines.b0**2 - lines.k * lines.a2)
    closed = square < 0
    with np.errstate(divide="ignore", invalid="ignore"):
        middle, reach = -half / square, np.sqrt(np.maximum(inside, 0)) / -square
        low_u = np.where(closed, middle - reach, -np.inf) * intrinsics[0, 0] + intrinsics[0, 2]
        high_u = np.where(closed, middle + reach, np.inf) * intrinsics[0, 0] + intrinsics[0, 2]
    slack = 1e-6  # pixels, for rounding; `cast` decides
    start = np.ceil(np.clip(low_u - slack, left[shape], right[shape] + 1)).astype(np.int64)
    stop = np.floor(np.clip(high_u + slack, left[shape] - 1, right[shape])).astype(np.int64)
    wide = np.where(closed & (inside < 0), 0, np.maximum(stop - start + 1, 0))
    line, place = _runs(wide)
    return lines, line, row[line], start[line] + place


def _runs(lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Runs of these lengths, one after the other: of each element, which run it is in and its place there."""
    index = np.repeat(np.arange(len(lengths)), lengths)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def first_hits(
    lines: Lines, line: npt.NDArray[np.int64], ray: npt.NDArray[np.int64], u: Array, rays: int
) -> tuple[npt.NDArray[np.int64], Array]:
    """The nearest hit of every ray; of equal depths, the shape that was added first.

    Args:
        lines: shapes on rows.
        line, ray: int64 [n], the pairs to try; the lines' shapes ascend.
        u: float64 [n], the rays' directions.
        rays: their number, R.

    Returns:
        int64 [R], the shape hit or -1; float64 [R], depth in metres or infinity.
    """
    nearest, winner = np.full(rays, np.inf), np.full(rays, -1, np.int64)
    for start in range(0, len(line), _CHUNK):
        some, at = line[start : start + _CHUNK], ray[start : start + _CHUNK]
        pairs, depth = cast(lines, some, u[start : start + _CHUNK])
        at = at[pairs]
        nearer = np.flatnonzero(depth < nearest[at])
        pairs, at, depth = pairs[nearer], at[nearer], depth[nearer]
        np.minimum.at(nearest, at, depth)
        best = np.flatnonzero(depth == nearest[at])[::-1]  # backwards, so that the first shape is written last
        winner[at[best]] = lines.shape[some[pairs[best]]]
    return winner, nearest


def ray_hits(quadrics: Quadrics, u: Array, v: Array) -> tuple[npt.NDArray[np.int64], Array]:
    """First hits of any camera rays (u, v) [n]: shapes int64 [n], -1 where none, and depths."""
    low_u, high_u, low_v, high_v = (row[:, None] for row in quadrics.bounds)
    shape, ray = np.nonzero((u >= low_u) & (u <= high_u) & (v >= low_v) & (v <= high_v))
    return first_hits(lines_of(quadrics, shape, v[ray]), np.arange(len(shape)), ray, u[ray], len(u))
