"""One picture of synthetic people with everything that is known of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.data.keys import generator
from training.data.labelled import Picture
from training.data.people.background import paint_background
from training.data.people.body import Painter, draw_body
from training.data.people.config import PeopleConfig
from training.data.people.dress import draw_clothes
from training.data.people.head import draw_face
from training.data.people.light import develop, sample_lights
from training.data.people.looks import sample_look
from training.data.people.materials import Materials
from training.data.people.points import KEYPOINTS, body_keypoints, seen
from training.data.people.poses import sample_pose
from training.data.people.quadrics import Quadrics, assemble, normals_at
from training.data.people.rays import first_hits, pixel_pairs
from training.data.people.shapes import Array, Shapes
from training.data.people.skeleton import Skeleton
from training.data.people.stage import Camera, add_props, sample_camera, sample_grounds, sample_yaw, stand
from training.data.people.wear import draw_glasses, draw_hair, draw_hat

_PEOPLE = 0x50454F504C45  # keeps these draws apart from the others of a seed


@dataclass(frozen=True)
class Rendering:
    """A picture and the light that made it: albedo * shading is the linear picture, exactly.

    Attributes:
        picture: what tasks see.
        shading: float32 [H, W, 3], irradiance over pi.
        linear: float32 [H, W, 3], before lens, transfer function and noise; 1 is white.
    """

    picture: Picture
    shading: npt.NDArray[np.float32]
    linear: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """Everything in space: shapes in camera coordinates, and the people's keypoints [n][308, 3] with their slack."""

    camera: Camera
    quadrics: Quadrics
    materials: Materials
    bodies: list[Skeleton]
    points: list[tuple[Array, Array]]


def build_scene(rng: np.random.Generator, config: PeopleConfig) -> Scene:
    """Draw people, props and a camera."""
    count = int(rng.integers(config.people[0], config.people[1] + 1))
    portrait = bool(rng.random() < config.portraits)
    shapes, materials = Shapes(), Materials()
    bodies, looks, points, seats = [], [], [], []
    for person, ground in enumerate(sample_grounds(rng, count, portrait) if count else []):
        pose, kind = sample_pose(rng)
        look = sample_look(rng, config, materials, kind)
        body = stand(look, pose, ground, sample_yaw(rng, config.facing))
        painter = Painter(shapes, person, look)
        draw_body(painter, body)
        draw_clothes(painter, body)
        draw_face(painter, body.head)
        draw_hair(painter, body.head)
        draw_hat(painter, body.head)
        draw_glasses(painter, body.head)
        bodies.append(body)
        looks.append(look)
        points.append(body_keypoints(look, body))
        if kind == "sit":
            seats.append(body)
    camera = sample_camera(rng, config, bodies, looks, portrait)
    paints = tuple(
        materials.add(rng.uniform(0.02, 0.7, 3), rng.uniform(0.02, 0.7, 3), int(rng.integers(0, 6)), 30.0, rng)
        for _ in range(4)
    )
    clutter = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0
    add_props(rng, shapes, seats, paints, clutter)
    return Scene(camera, assemble(shapes, camera.turn, camera.place), materials, bodies, points)


def render_linear(key: int, config: PeopleConfig) -> Rendering:
    """As `render`, with the linear picture and its shading."""
    rng = generator(config.seed, _PEOPLE, key)
    scene = build_scene(rng, config)
    height, width = config.size
    camera, quadrics = scene.camera, scene.quadrics
    target = camera.turn @ (scene.bodies[0].chest.place if scene.bodies else np.array([0.0, 1.0, 0.0])) + camera.place
    lights = sample_lights(rng, camera.turn @ np.array([0.0, 1.0, 0.0]), target)
    feet = np.array([side.foot.place[[0, 2]] for body in scene.bodies for side in body.sides]).reshape(-1, 2)
    albedo, shading = paint_background(rng, camera, lights, config.size, feet)

    k = camera.intrinsics
    lines, line, row, column = pixel_pairs(quadrics, k, config.size)
    across = (np.arange(width) - k[0, 2]) / k[0, 0]
    winner, nearest = first_hits(lines, line, row * width + column, across[column], height * width)
    hit = np.flatnonzero(winner >= 0)
    shape, z = winner[hit], nearest[hit]
    rows, columns = np.divmod(hit, width)
    at = np.stack([(columns - k[0, 2]) / k[0, 0] * z, (rows - k[1, 2]) / k[1, 1] * z, z], axis=1)
    facing = normals_at(quadrics, shape, at)
    frame, person, part, material = (tag[shape] for tag in quadrics.tags)
    local = np.einsum("nij,nj->ni", quadrics.inverse[frame], at - quadrics.origin[frame])
    albedo.reshape(-1, 3)[hit] = scene.materials.albedo(material, local)
    shading.reshape(-1, 3)[hit] = lights.shading(at, facing)
    linear = albedo * shading
    image = develop(linear, rng, config.blur, config.noise)

    owner = np.full(height * width, -1, np.int16)
    owner[hit] = person
    areas = np.bincount(owner[owner >= 0], minlength=len(scene.bodies))
    shown = np.flatnonzero(areas)  # who is hidden entirely or out of the picture is not listed
    human = person >= 0
    on, label = hit[human], part[human]
    parts, depth = np.zeros(height * width, np.uint8), np.zeros(height * width, np.float32)
    normals = np.zeros((height * width, 3), np.float32)
    parts[on], depth[on], normals[on] = label, z[human], facing[human]
    renumber = np.full(len(scene.bodies) + 1, -1, np.int16)  # the last entry serves -1, the background
    renumber[shown] = np.arange(len(shown))
    person_map = renumber[owner].reshape(height, width)
    keypoints = np.zeros((len(shown), KEYPOINTS, 3), np.float32)
    for index, number in enumerate(shown.tolist()):
        points, slack = scene.points[number]
        points = points @ camera.turn.T + camera.place
        keypoints[index] = seen(quadrics, points, slack, number, k, config.size)
    picture = Picture(
        image=image,
        mask=person_map >= 0,
        person=person_map,
        parts=parts.reshape(height, width),
        normals=normals.reshape(height, width, 3),
        depth=depth.reshape(height, width),
        albedo=albedo,
        intrinsics=k,
        keypoints=keypoints,
        boxes=_boxes(person_map, len(shown)),
        areas=areas[shown].astype(np.float32),
        id=f"people-{config.seed}-{key}",
    )
    return Rendering(picture, shading, linear)


def _boxes(owner: npt.NDArray[np.int16], count: int) -> npt.NDArray[np.float32]:
    """Boxes [count, 4] in pixel edges of the people of a picture [H, W]."""
    boxes = np.zeros((count, 4), np.float32)
    for person in range(count):
        mine = owner == person
        rows, columns = np.flatnonzero(mine.any(axis=1)), np.flatnonzero(mine.any(axis=0))
        boxes[person] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return boxes


def render(key: int, config: PeopleConfig) -> Picture:
    """A picture of synthetic people with exact labels.

    A pure function of its arguments: the same bytes in any process and any order.

    Args:
        key: which picture, 0 to 2**64 - 1; pictures of different keys are independent.
        config: what pictures hold.

    Returns:
        A `Picture` with every label. Props that stand before people are background. Albedo covers the background too;
        depth, normals and parts do not. People of whom no pixel shows are not listed.
    """
    return render_linear(key, config).picture
