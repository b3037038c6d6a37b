import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.people.frames import MIRROR, rot_x, rot_y, rot_z
from training.data.people.quadrics import Quadrics, assemble, normals_at
from training.data.people.rays import first_hits, pixel_pairs, ray_hits
from training.data.people.shapes import Array, Brush, Frame, Shapes

SQUASHED = Frame(rot_y(0.7) @ MIRROR @ rot_z(0.4) @ np.diag([1.0, 1.2, 0.6]), np.array([0.1, -0.05, 0.2]))
CAMERA = rot_x(0.2) @ rot_z(-0.1), np.array([0.02, 0.03, 2.0])
K = np.array([[60.0, 0, 31.0], [0, 66.0, 24.0], [0, 0, 1]])
SIZE = (48, 64)


def brush(frame: Frame) -> tuple[Shapes, Brush]:
    shapes = Shapes()
    return shapes, Brush(shapes, shapes.frame(frame), 0, 1, 0)


def local_ray(frame: Frame, u: float, v: float) -> tuple[Array, Array]:
    """The camera ray z (u, v, 1) in local coordinates: a point and a direction per unit of z."""
    turn, place = CAMERA
    back = np.linalg.inv(turn @ frame.turn)
    return back @ (np.zeros(3) - turn @ frame.place - place), back @ np.array([u, v, 1.0])


def sphere_hit(start: Array, along: Array, centre: Array, radius: float) -> float:
    """Smallest positive z at which a ray meets a sphere."""
    offset = start - centre
    a, b, c = along @ along, offset @ along, offset @ offset - radius**2
    inside = b * b - a * c
    if inside < 0:
        return math.inf
    z = float((-b - math.sqrt(inside)) / a)
    return z if z > 0 else math.inf


@pytest.mark.parametrize("frame", [Frame(np.eye(3), np.zeros(3)), SQUASHED])
@pytest.mark.parametrize("radii", [(0.2, 0.2), (0.25, 0.1), (0.05, 0.2), (0.3, 0.01)])
def test_a_tapered_capsule_is_the_union_of_its_spheres(frame: Frame, radii: tuple[float, float]) -> None:
    a, b = np.array([-0.2, 0.1, 0.05]), np.array([0.25, -0.1, -0.2])
    shapes, paint = brush(frame)
    paint.chain([a, b], radii)
    quadrics = assemble(shapes, *CAMERA)
    u, v = (grid.ravel() for grid in np.meshgrid(np.linspace(-0.3, 0.3, 7), np.linspace(-0.25, 0.25, 7)))
    _, depth = ray_hits(quadrics, u, v)
    assert np.isfinite(depth).sum() > 3
    for index in range(len(u)):
        start, along = local_ray(frame, u[index], v[index])
        expected = min(
            sphere_hit(start, along, a + s * (b - a), radii[0] + s * (radii[1] - radii[0]))
            for s in np.linspace(0, 1, 401)
        )
        if math.isfinite(expected):  # the reference has gaps of up to 1/400 of the capsule
            assert depth[index] <= expected + 1e-12
            assert depth[index] == pytest.approx(expected, abs=2e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.floats(0.05, 0.4)] * 3),
    st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda n: sum(x * x for x in n) > 0.1),
    st.floats(-0.2, 0.2),
    st.floats(-0.2, 0.2),
    st.floats(-0.2, 0.2),
)
def test_an_ellipsoid_is_met_at_its_first_root_within_the_slab(
    radii: tuple[float, ...], normal: tuple[float, ...], level: float, u: float, v: float
) -> None:
    centre = np.array([0.05, 0.0, -0.02])
    shapes, paint = brush(SQUASHED)
    paint.ellipsoid(centre, radii, slab=(*normal, level, level + 0.3))
    quadrics = assemble(shapes, *CAMERA)
    _, depth = ray_hits(quadrics, np.array([u]), np.array([v]))
    start, along = local_ray(SQUASHED, u, v)
    from_centre, scale = (start - centre) / np.array(radii), along / np.array(radii)
    roots = np.roots([scale @ scale, 2 * from_centre @ scale, from_centre @ from_centre - 1])
    expected = math.inf
    for z in sorted(roots.real) if np.isreal(roots).all() else []:
        height = float(np.array(normal) @ (start + z * along))
        if abs(height - level) < 1e-6 or abs(height - level - 0.3) < 1e-6:
            return  # on the rim: rounding decides
        if level < height < level + 0.3:
            expected = min(expected, z)
    if len(set(roots.real.tolist())) == 2 and abs(roots[0] - roots[1]) < 1e-5:
        return  # grazes the silhouette
    assert depth[0] == pytest.approx(expected, abs=1e-7)


def scene() -> Quadrics:
    shapes, paint = brush(SQUASHED)
    paint.chain([(-0.4, 0.2, 0), (0.1, 0.1, 0.1), (0.5, -0.5, 0)], [0.08, 0.12, 0.1])
    paint.ellipsoid((0.3, 0.3, 0), (0.3, 0.1, 0.2), slab=(0, 1, 0, 0.28, 2))
    paint.band((-0.2, 0, -0.1), (-0.2, -0.3, -0.1), 0.1, 0.2)
    return assemble(shapes, *CAMERA)


def test_pixels_meet_every_shape_that_they_would_meet_without_boxes() -> None:
    quadrics = scene()
    height, width = SIZE
    lines, line, row, column = pixel_pairs(quadrics, K, SIZE)
    u = (column - K[0, 2]) / K[0, 0]
    winner, depth = first_hits(lines, line, row * width + column, u, height * width)
    wide = Quadrics(
        quadrics.coefficients,
        quadrics.slabs,
        np.array([[-9.0], [9.0], [-9.0], [9.0]]).repeat(quadrics.count, axis=1),
        quadrics.tags,
        quadrics.inverse,
        quadrics.origin,
    )
    v, u = (np.indices(SIZE).reshape(2, -1) - [[K[1, 2]], [K[0, 2]]]) / [[K[1, 1]], [K[0, 0]]]
    expected_winner, expected = ray_hits(wide, u, v)
    np.testing.assert_array_equal(winner, expected_winner)
    np.testing.assert_allclose(depth, expected, rtol=1e-12)
    assert set(np.unique(winner)) == set(range(-1, quadrics.count))  # every shape shows somewhere
    assert len(line) < quadrics.count * height * width / 4  # and few pairs were tried


def test_normals_are_perpendicular_to_the_surface_and_face_the_camera() -> None:
    quadrics = scene()
    u, v = np.random.default_rng(1).uniform(-0.3, 0.3, (2, 2000))
    shape, z = ray_hits(quadrics, u, v)
    step = 1e-5
    side, z_side = ray_hits(quadrics, u + step, v)
    below, z_below = ray_hits(quadrics, u, v + step)
    kept = (shape >= 0) & (side == shape) & (below == shape)
    kept[kept] = (abs(z_side[kept] - z[kept]) < 1e-3) & (abs(z_below[kept] - z[kept]) < 1e-3)
    assert kept.sum() > 100
    at = np.stack([u * z, v * z, z], 1)[kept]
    across = np.stack([(u + step) * z_side, v * z_side, z_side], 1)[kept] - at
    down = np.stack([u * z_below, (v + step) * z_below, z_below], 1)[kept] - at
    normal = normals_at(quadrics, shape[kept], at)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1, rtol=1e-12)
    assert (np.einsum("ni,ni->n", normal, at) <= 0).all()
    for tangent in (across, down):
        unit = tangent / np.linalg.norm(tangent, axis=1, keepdims=True)
        assert np.quantile(abs(np.einsum("ni,ni->n", normal, unit)), 0.95) < 2e-3


def test_shapes_that_reach_the_camera_are_left_out() -> None:
    shapes, paint = brush(Frame(np.eye(3), np.zeros(3)))
    paint.sphere((0, 0, 0), 1.0)
    assert assemble(shapes, np.eye(3), np.array([0, 0, 1.5])).count == 1
    assert assemble(shapes, np.eye(3), np.array([0, 0, 1.05])).count == 0
    assert assemble(shapes, np.eye(3), np.array([0, 0, -3.0])).count == 0
    assert assemble(Shapes(), np.eye(3), np.zeros(3)).count == 0
