"""Articulated people over textured backgrounds, with the body part of every pixel: for studies at toy scale.

A person is capsules and ellipses on a skeleton with random joint angles, clothes and light. The background holds a
texture and shapes in colours of the same kind, so that colour alone does not tell a part. A picture is a function of
its number and seed. Not a renderer to train real models on.
"""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from eval.probe.labelled import Labelled
from training.data.keys import generator

PARTS = ("background", "head", "torso", "arm", "leg")
HEAD, TORSO, ARM, LEG = 1, 2, 3, 4
Picture = npt.NDArray[np.uint8]
Point = tuple[float, float]
_SCALE = 2  # drawn larger, then averaged down: soft edges as a camera's


def _texture(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.float32]:
    """Two colours blended by noise of several scales, and shapes over it."""
    blend = np.zeros((height, width), np.float32)
    for cells, strength in ((3, 1.0), (8, 0.6), (24, 0.4)):
        noise = rng.random((cells, cells), np.float32) - 0.5
        blend += strength * cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    first, second = rng.uniform(0, 255, (2, 3)).astype(np.float32)
    canvas = first + np.clip(blend + 0.5, 0, 1)[..., None] * (second - first)
    for _ in range(int(rng.integers(2, 7))):
        start = rng.random(2) * (width, height)
        _limb(
            canvas, None, start, start + rng.normal(0, height / 5, 2), height * rng.uniform(0.02, 0.1), _colour(rng), 0
        )
    return canvas


def _colour(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    return rng.uniform(10, 245, 3).astype(np.float32)


def _limb(canvas: Any, labels: Any, start: Any, end: Any, thick: float, colour: Any, part: int) -> None:
    """A capsule between two points, `thick` wide."""
    first, last = ((round(float(x)), round(float(y))) for x, y in (start, end))
    width = max(1, round(thick))
    cv2.line(canvas, first, last, [float(value) for value in colour], width)
    if labels is not None:
        cv2.line(labels, first, last, part, width)


def _ellipse(canvas: Any, labels: Any, centre: Any, axes: Point, angle: float, colour: Any, part: int) -> None:
    place = (round(float(centre[0])), round(float(centre[1])))
    size = (max(1, round(axes[0])), max(1, round(axes[1])))
    cv2.ellipse(canvas, place, size, math.degrees(angle), 0, 360, [float(value) for value in colour], -1)
    cv2.ellipse(labels, place, size, math.degrees(angle), 0, 360, part, -1)


def _person(rng: np.random.Generator, canvas: Any, labels: Any) -> None:
    """Draw one: far arm and leg, torso, head, near leg and arm, in this order."""
    height, width = labels.shape
    size = height * rng.uniform(0.8, 1.2)
    lean = rng.normal(0, 0.2)

    def along(point: Any, angle: float, length: float) -> npt.NDArray[np.float64]:
        """`length` of the body's size from a point; 0 is down, positive to the right."""
        return np.asarray(point) + size * length * np.array([math.sin(angle), math.cos(angle)])

    neck = np.array([width * rng.uniform(0.3, 0.7), height / 2 - size * rng.uniform(0.2, 0.35)])
    hip = along(neck, lean, 0.33)
    skin = np.array([rng.uniform(90, 240)] * 3) * (1.0, rng.uniform(0.7, 0.85), rng.uniform(0.5, 0.75))
    shirt, trousers, hair = _colour(rng), _colour(rng), _colour(rng) * 0.5
    sleeve = shirt if rng.random() < 0.6 else skin
    build = rng.uniform(0.9, 1.4)

    def arm(side: float) -> None:
        shoulder = neck + size * build * np.array([side * 0.085, 0.03])
        bend = rng.normal(0, 0.9)
        elbow = along(shoulder, lean + side * abs(rng.normal(0.3, 0.7)), 0.17)
        hand = along(elbow, math.atan2(*(elbow - shoulder)) + bend, 0.16)
        _limb(canvas, labels, shoulder, elbow, size * 0.08 * build, sleeve, ARM)
        _limb(canvas, labels, elbow, hand, size * 0.07 * build, skin, ARM)

    def leg(side: float) -> None:
        top = hip + size * build * np.array([side * 0.05, 0])
        angle = rng.normal(side * 0.2, 0.35)
        knee = along(top, angle, 0.22)
        foot = along(knee, angle + rng.normal(0, 0.4), 0.22)
        _limb(canvas, labels, top, knee, size * 0.1 * build, trousers, LEG)
        _limb(canvas, labels, knee, foot, size * 0.08 * build, trousers, LEG)

    near = 1.0 if rng.random() < 0.5 else -1.0
    arm(-near)
    leg(-near)
    _ellipse(canvas, labels, (neck + hip) / 2, (size * 0.105 * build, size * 0.19), -lean, shirt, TORSO)
    head = along(neck, lean + rng.normal(0, 0.15) + math.pi, 0.1)
    _ellipse(canvas, labels, head, (size * 0.075, size * 0.095), -lean, skin, HEAD)
    _ellipse(canvas, labels, head - (0, size * 0.05), (size * 0.072, size * 0.05), -lean, hair, HEAD)
    leg(near)
    arm(near)


def draw(number: int, size: tuple[int, int], seed: int) -> tuple[Picture, Picture]:
    """A picture of one person.

    Args:
        number: 0 or more; pictures of different numbers are independent.
        size: height and width in pixels.
        seed: 0 or more.

    Returns:
        uint8 RGB [H, W, 3], and uint8 [H, W], index into `PARTS` of each pixel's centre.
    """
    rng = generator(seed, number)
    height, width = size[0] * _SCALE, size[1] * _SCALE
    canvas, labels = _texture(rng, height, width), np.zeros((height, width), np.uint8)
    _person(rng, canvas, labels)
    # Light: a ramp across the picture, with a colour of its own; then the camera's noise.
    angle, depth = rng.uniform(0, 2 * math.pi), rng.uniform(0, 0.6)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
    light = (1 + depth * (math.cos(angle) * x + math.sin(angle) * y))[..., None] * rng.uniform(0.75, 1.1, 3)
    small = cv2.resize((canvas * light).astype(np.float32), size[::-1], interpolation=cv2.INTER_AREA)
    small += rng.normal(0, rng.uniform(1, 6), small.shape)
    return np.clip(small, 0, 255).astype(np.uint8), labels[_SCALE // 2 :: _SCALE, _SCALE // 2 :: _SCALE].copy()


def jpeg(picture: Picture, quality: int = 92) -> bytes:
    """The picture as a JPEG file."""
    file = BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=quality, subsampling=0)
    return file.getvalue()


def labelled_people(numbers: range, size: tuple[int, int], seed: int) -> Labelled:
    """Pictures with their parts, for probes."""
    drawn = [draw(number, size, seed) for number in numbers]
    images = torch.from_numpy(np.stack([picture for picture, _ in drawn])).permute(0, 3, 1, 2).contiguous()
    return Labelled(images, torch.from_numpy(np.stack([labels for _, labels in drawn])), PARTS)
