"""What is behind the people: rooms of a floor and a wall, gradients, noise, and clutter in colours of people."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from training.data.people.light import Lights
from training.data.people.looks import skin_colour
from training.data.people.shapes import Array
from training.data.people.stage import Camera


def _noise(rng: np.random.Generator, size: tuple[int, int], scales: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Smooth noise [H, W], about -1..1, of several scales."""
    height, width = size
    total = np.zeros(size, np.float32)
    for number, cells in enumerate(scales):
        grid = rng.random((cells + 2, cells + 2), np.float32) - 0.5
        total += cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC) * np.float32(1.6 * 0.65**number)
    return total


def _paint(rng: np.random.Generator) -> Array:
    """A wall's or thing's linear RGB."""
    value = rng.uniform(0.05, 0.8)
    if rng.random() < 0.15:
        return skin_colour(rng)
    return np.clip(value * (1 + rng.normal(0, rng.choice([0.05, 0.4]), 3)), 0.02, 0.9)


def _surface(rng: np.random.Generator, across: Any, along: Any) -> Any:
    """How much of a second colour a plane has at coordinates in metres, 0..1."""
    kind = rng.integers(5)
    pitch = rng.uniform(0.15, 0.8)
    if kind == 0:
        return ((np.floor(across / pitch) + np.floor(along / pitch)) % 2).astype(np.float32)
    if kind == 1:
        return (np.abs((across / pitch) % 1 - 0.5) < 0.06).astype(np.float32)
    if kind == 2:
        rows = np.floor(along / (0.4 * pitch))
        edge = np.abs((across / pitch + 0.5 * (rows % 2)) % 1 - 0.5) > 0.47
        return (edge | (np.abs((along / (0.4 * pitch)) % 1 - 0.5) > 0.45)).astype(np.float32)
    if kind == 3:
        return 0.5 + 0.5 * np.sin(across * 6 / pitch + np.sin(along * 4 / pitch))
    return np.zeros_like(across)


def _room(
    rng: np.random.Generator, camera: Camera, lights: Lights, size: tuple[int, int], feet: Array
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """A floor and a wall behind everyone, textured and lit; soft shadows under the feet [n, 2] (x, z)."""
    height, width = size
    (fx, _, cx), (_, fy, cy), _ = camera.intrinsics.tolist()
    v, u = np.mgrid[0:height, 0:width].astype(np.float32)
    rays = np.stack([(u - cx) / fx, (v - cy) / fy, np.ones_like(u)], -1)
    world = rays @ camera.turn.astype(np.float32)
    eye = (-camera.turn.T @ camera.place).astype(np.float32)
    back = np.float32(-rng.uniform(1.2, 5.0) + (min(feet[:, 1].min(), 0.0) if len(feet) else 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        to_floor = np.where(world[..., 1] < 0, -eye[1] / world[..., 1], np.float32(np.inf))
        to_wall = np.where(world[..., 2] < 0, (back - eye[2]) / world[..., 2], np.float32(np.inf))
    floor = (to_floor < to_wall) & (to_floor > 0)
    reach = np.clip(np.where(floor, to_floor, to_wall), 0, 60)
    at = world * reach[..., None] + eye
    albedo = np.empty((height, width, 3), np.float32)
    shading = np.empty_like(albedo)
    for chosen, across, along, normal in (
        (floor, at[..., 0], at[..., 2], np.array([0.0, 1.0, 0.0])),
        (~floor, at[..., 0], at[..., 1], np.array([0.0, 0.0, 1.0])),
    ):
        first, second = _paint(rng).astype(np.float32), _paint(rng).astype(np.float32)
        blend = (_surface(rng, across[chosen], along[chosen]) * np.float32(rng.uniform(0.2, 1.0)))[:, None]
        albedo[chosen] = first + blend * (second - first)
        points = at[chosen] @ camera.turn.T.astype(np.float32) + camera.place.astype(np.float32)
        shading[chosen] = lights.shading(points, (camera.turn @ normal)[None])
    ground = at[floor]
    dim = np.ones(len(ground), np.float32)
    for x, z in feet.astype(np.float32):
        near = (ground[:, 0] - x) ** 2 + (ground[:, 2] - z) ** 2
        dim *= 1 - np.float32(0.65) * np.exp(near * np.float32(-11.0))
    shading[floor] *= dim[:, None]
    grain = np.clip(1 + 0.12 * _noise(rng, size, (9, 40)), 0.6, 1.4)
    return np.clip(albedo * grain[..., None], 0.0, 1.0).astype(np.float32), shading


def _flat(
    rng: np.random.Generator, lights: Lights, size: tuple[int, int]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Two colours blended by a gradient or noise, some with shapes over it; light that falls off across."""
    height, width = size
    v, u = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
    angle = rng.uniform(0, 2 * np.pi)
    ramp = np.float32(np.cos(angle)) * u + np.float32(np.sin(angle)) * v
    kind = rng.integers(3)
    blend = 0.5 + 0.4 * ramp if kind == 0 else 0.5 + _noise(rng, size, (3, 8, 24) if kind == 1 else (5, 40, 90))
    first, second = (_paint(rng).astype(np.float32) for _ in range(2))
    albedo = first + np.clip(blend, 0, 1)[..., None] * (second - first)
    albedo = np.ascontiguousarray(albedo, np.float32)
    for _ in range(int(rng.integers(0, 9))):
        colour = [float(value) for value in _paint(rng)]
        x, y = (int(value) for value in rng.random(2) * (width, height))
        wide, tall = (int(value) for value in 2 + rng.random(2) * (0.3 * width, 0.3 * height))
        shape = rng.integers(3)
        if shape == 0:
            cv2.rectangle(albedo, (x, y), (x + wide, y + tall), colour, -1)
        elif shape == 1:
            cv2.ellipse(albedo, (x, y), (wide, tall), float(rng.uniform(0, 180)), 0, 360, colour, -1)
        else:
            end = (x + int(rng.normal(0, 0.2) * height), y + int(rng.normal(0, 0.3) * height))
            cv2.line(albedo, (x, y), end, colour, 1 + wide // 4)
    angle = rng.uniform(0, 2 * np.pi)
    fall = 1 + rng.uniform(0, 0.5) * (np.cos(angle) * u + np.sin(angle) * v)
    light = lights.ambient + 0.6 * lights.colours.sum(axis=0)
    return np.clip(albedo, 0, 1), (fall[..., None] * light).astype(np.float32)


def paint_background(
    rng: np.random.Generator, camera: Camera, lights: Lights, size: tuple[int, int], feet: Array
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Albedo and shading of a picture without people, float32 [H, W, 3] each.

    Args:
        rng: the picture's generator.
        camera: where rooms are seen from.
        lights: of the scene.
        size: height and width.
        feet: [n, 2], x and z of the people on the floor.
    """
    if rng.random() < 0.55:
        return _room(rng, camera, lights, size, feet)
    return _flat(rng, lights, size)
