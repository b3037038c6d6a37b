"""Lambert light, and the sensor that makes an sRGB picture of linear light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from training.data.people.shapes import Array


@dataclass(frozen=True)
class Lights:
    """Light in camera coordinates.

    Attributes:
        ambient: RGB [3].
        up: unit vector [3]; a surface that faces down gets `sky` of the ambient light less.
        sky: 0..1.
        colours: RGB [n, 3].
        places: [n, 3]; of a directional light, the unit vector to it; of a point light, its place in metres.
        reach: [n]; 0 = directional; else the distance at which a point light has its colour's strength.
    """

    ambient: Array
    up: Array
    sky: float
    colours: Array
    places: Array
    reach: Array

    def shading(self, points: Any, normals: Array) -> Any:
        """Irradiance over pi, RGB [n, 3], of points [n, 3] with normals [n, 3] or [1, 3]; the points' dtype."""
        dtype = points.dtype
        down = 0.5 - 0.5 * (normals @ self.up)
        total = (self.ambient * (1 - self.sky * down)[:, None]).astype(dtype)
        for colour, place, reach in zip(
            self.colours.astype(dtype), self.places.astype(dtype), self.reach.tolist(), strict=True
        ):
            if reach == 0:
                facing = normals @ place
            else:
                away = place - points
                square = np.einsum("ni,ni->n", away, away)
                facing = np.einsum("ni,ni->n", away, np.broadcast_to(normals, away.shape)) / np.sqrt(square)
                facing *= np.minimum(reach**2 / square, 4.0)
            total = total + np.maximum(facing, 0)[:, None].astype(dtype) * colour
        return np.broadcast_to(total, points.shape)


def _tint(rng: np.random.Generator) -> Array:
    """RGB [3] of mean 1: warm to cool white."""
    warm = rng.normal(0, 0.12)
    tint = np.clip(np.array([1 + warm, 1.0, 1 - warm]) + rng.normal(0, 0.03, 3), 0.5, 1.6)
    return np.asarray(tint / tint.mean())


def sample_lights(rng: np.random.Generator, up: Array, target: Array) -> Lights:
    """One to three lights, mostly from above and the camera's side, and ambient light.

    Args:
        rng: the picture's generator.
        up: unit vector [3], camera coordinates.
        target: [3], the scene's middle, camera coordinates, metres.
    """
    count = int(rng.integers(1, 4))
    strength = rng.dirichlet(np.full(count, 1.5)) * rng.uniform(0.5, 1.0)
    places, reach = [], []
    for _ in range(count):
        towards = rng.normal(0, 1, 3)
        towards[2] = -abs(towards[2]) if rng.random() < 0.85 else towards[2]
        towards = towards / np.linalg.norm(towards) + 0.6 * up
        towards /= np.linalg.norm(towards)
        if rng.random() < 0.3:
            distance = rng.uniform(1.5, 4.0)
            places.append(target + distance * towards)
            reach.append(distance)
        else:
            places.append(towards)
            reach.append(0.0)
    colours = np.stack([_tint(rng) * value for value in strength])
    return Lights(
        _tint(rng) * rng.uniform(0.15, 0.5), up, float(rng.uniform(0, 0.6)), colours, np.stack(places), np.array(reach)
    )


def develop(
    linear: npt.NDArray[np.float32], rng: np.random.Generator, blur: float, noise: float
) -> npt.NDArray[np.uint8]:
    """A camera's picture of linear light [H, W, 3]: lens blur, sRGB's transfer function, sensor noise, 8 bits.

    Args:
        linear: 1 is the sensor's white.
        rng: the picture's generator.
        blur: standard deviation in pixels, at most; 0 = none.
        noise: standard deviation in sRGB 0..1, at most; 0 = none.
    """
    sigma = float(rng.uniform(0.3, 1.0)) * blur
    strength = float(rng.uniform(0.1, 1.0)) * noise
    if sigma > 0.05:
        linear = cv2.GaussianBlur(linear, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE).astype(np.float32)
    encoded = srgb(linear)
    if strength > 0:
        encoded += np.float32(strength) * rng.standard_normal(encoded.shape, np.float32)
    return np.clip(np.rint(encoded * 255), 0, 255).astype(np.uint8)


def srgb(linear: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """sRGB's transfer function (IEC 61966-2-1), float32 in 0..1; light beyond 0..1 is clipped."""
    clipped = np.clip(linear, 0.0, 1.0).astype(np.float32)
    curve = np.float32(1.055) * np.power(clipped, np.float32(1 / 2.4)) - np.float32(0.055)
    return np.where(clipped <= 0.0031308, np.float32(12.92) * clipped, curve).astype(np.float32)
