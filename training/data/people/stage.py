"""Where people stand and how the camera looks at them. World: y up, the floor at y = 0, the camera looks along -z."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from training.data.people.config import PeopleConfig
from training.data.people.frames import rot_x, rot_y, rot_z
from training.data.people.looks import Look
from training.data.people.poses import Pose
from training.data.people.shapes import Array, Brush, Frame, Shapes
from training.data.people.skeleton import Skeleton, skeleton

_TURN_ROUND = np.diag([1.0, -1.0, -1.0])  # from world axes to camera axes of a level camera


@dataclass(frozen=True)
class Camera:
    """x_camera = `turn` x_world + `place`; pixels by `intrinsics`."""

    turn: Array
    place: Array
    intrinsics: Array


def stand(look: Look, pose: Pose, ground: tuple[float, float], yaw: float) -> Skeleton:
    """A person whose lowest foot touches the floor at `ground` (x, z), turned to its left by `yaw` radians."""
    turn = rot_y(yaw) * (look.height / 1.7)
    body = skeleton(look, pose, Frame(turn, np.array([ground[0], 0.0, ground[1]])))
    soles = [side.foot.at([(0, -0.085, -0.05), (0, -0.085, 0.14)])[:, 1].min() for side in body.sides]
    return skeleton(look, pose, Frame(turn, np.array([ground[0], -min(soles), ground[1]])))


def sample_grounds(rng: np.random.Generator, count: int, portrait: bool) -> list[tuple[float, float]]:
    """Places (x, z) on the floor, metres: the first is near the origin, the others beside, behind or before it."""
    places = [(0.0, 0.0)]
    side = rng.choice([-1.0, 1.0])
    for number in range(1, count):
        step = rng.uniform(0.3, 0.6) if portrait else rng.uniform(0.25, 1.0)
        reach = side * step * ((number + 1) // 2)
        depth = rng.uniform(-0.8, 0.05) if portrait else rng.uniform(-1.8, 0.6)
        places.append((float(reach), float(depth)))
        side = -side
    return places


def sample_yaw(rng: np.random.Generator, facing: float) -> float:
    """A turn round the vertical, radians; 0 faces the camera."""
    if rng.random() < facing:
        return float(np.clip(rng.normal(0, 0.5), -1.22, 1.22))
    return float(rng.uniform(-math.pi, math.pi))


def sample_camera(
    rng: np.random.Generator, config: PeopleConfig, bodies: list[Skeleton], looks: list[Look], portrait: bool
) -> Camera:
    """A camera framed on the first person (or on an empty floor)."""
    height, width = config.size
    focal = height * math.exp(rng.uniform(math.log(config.focal[0]), math.log(config.focal[1])))
    pitch = float(np.clip(rng.normal(0.05, 0.13), -0.35, 0.6))  # downward
    roll = float(rng.normal(0, 0.04))
    if not bodies:
        target, span = np.array([0.0, 1.0, 0.0]), 2.0
    elif portrait:
        target = bodies[0].head.at((0.0, -0.06 - 0.12 * rng.random(), 0.0))
        span = rng.uniform(0.32, 0.75)
    else:
        top, low = bodies[0].head.place[1] + 0.15, 0.0
        share = rng.uniform(0.0, 1.0)
        if share < 0.35:  # cropped: from above the knees, the waist ...
            low = top * rng.uniform(0.1, 0.55)
        target = np.array([bodies[0].pelvis.place[0], (top + low) / 2, bodies[0].pelvis.place[2]])
        span = (top - low) * rng.uniform(1.0, 1.7)
        span = max(span, 0.9 * looks[0].height * height / width * 0.4)
    distance = focal * span / height
    if distance < 0.9:  # nobody is photographed from nearer: a longer lens instead
        focal, distance = focal * 0.9 / distance, 0.9
    turn = rot_z(roll) @ rot_x(pitch) @ _TURN_ROUND
    # The target lies on the optical axis, shifted by some pixels.
    shift = rng.uniform(-1, 1, 2) * (0.12 * width, 0.05 * height)
    aim = np.array([shift[0] * distance / focal, shift[1] * distance / focal, distance])
    centre = ((width - 1) / 2 + rng.normal(0, 0.01) * width, (height - 1) / 2 + rng.normal(0, 0.01) * height)
    intrinsics = np.array([[focal, 0.0, centre[0]], [0.0, focal, centre[1]], [0.0, 0.0, 1.0]])
    return Camera(turn, aim - turn @ target, intrinsics)


def add_props(
    rng: np.random.Generator, shapes: Shapes, seats: list[Skeleton], materials: tuple[int, ...], clutter: int
) -> None:
    """Stools under who sits, and things that stand about; they count as background, also where they hide people."""
    for body in seats:
        place = body.pelvis.place
        scale = abs(float(np.linalg.det(body.pelvis.turn))) ** (1 / 3)
        frame = shapes.frame(Frame(body.pelvis.turn, place - body.pelvis.turn @ np.array([0.0, 0.0, 0.03])))
        brush = Brush(shapes, frame, -1, 0, materials[0])
        deep = place[1] / scale
        brush.ellipsoid((0, -0.15, 0), (0.2, 0.035, 0.2))
        for x in (-0.13, 0.13):
            for z in (-0.13, 0.13):
                brush.chain([(x, -0.15, z), (x * 1.15, -deep, z * 1.15)], [0.022, 0.018])
    plain = shapes.frame(Frame(np.eye(3), np.zeros(3)))
    for number in range(clutter):
        brush = Brush(shapes, plain, -1, 0, materials[1 + number % (len(materials) - 1)])
        x, z = rng.uniform(-1.2, 1.2), rng.uniform(-1.8, 0.7)
        kind = rng.integers(3)
        if kind == 0:
            radius = rng.uniform(0.08, 0.3)
            brush.sphere((x, radius, z), radius)
        elif kind == 1:
            radius = rng.uniform(0.015, 0.07)
            brush.chain([(x, 0, z), (x, rng.uniform(0.5, 2.6), z)], [radius, radius])
        else:
            brush.ellipsoid((x, rng.uniform(0.2, 1.6), z), rng.uniform(0.05, 0.28, 3))
