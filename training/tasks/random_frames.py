"""Frames drawn for training: the geometric augmentations of the released recipes (fact 6.5), each as one affine map.

Every function takes a `numpy.random.Generator`; give `np.random.Generator(np.random.Philox(key=...))` with the key of
the sample, and the frame is a function of that key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from scipy.special import ndtr, ndtri

from curation.config import Config
from training.tasks.frames import PADDING, Frame, Size, crop, crop_around, identity, letterbox, mirror, rotate, stretch


class DenseFrameConfig(Config):
    """Geometry of pictures for the dense tasks. The defaults are those of normals, pointmap and albedo (fact 6.5).

    The released recipe also rescales the picture by 0.5-2 before it is cropped; the letterbox undoes that, so that
    only sharpness is lost, which `AugmentConfig.resample_probability` does on purpose.
    """

    crop_probability: float = Field(0.3, ge=0, le=1, description="share of pictures that are cropped (released)")
    crop_area: tuple[float, float] = Field((0.4, 1.0), description="share of the picture's area in a crop (released)")
    crop_aspect: tuple[float, float] = Field(
        (0.5, 2.0), description="width / height of a crop, log-uniform (released range)"
    )
    crop_tries: int = Field(8, ge=1, le=100, description="draws until a crop fits into the picture (released)")
    rotation_probability: float = Field(0.0, ge=0, le=1, description="share that are rotated (released: parts 0.5)")
    rotation: float = Field(60.0, ge=0, le=180, description="degrees, uniform within -this .. this (released: parts)")
    zoom_probability: float = Field(
        0.0, ge=0, le=1, description="share cropped to a window of the frame's size after a zoom (released: parts 0.3)"
    )
    zoom: tuple[float, float] = Field(
        (0.4, 2.0), description="zoom, relative to the picture fitted into the frame (released: parts)"
    )
    flip_probability: float = Field(0.3, ge=0, le=1, description="share that are mirrored (released; parts 0.5)")
    fit: Literal["letterbox", "stretch"] = Field("letterbox", description="to the frame (released: parts stretch)")

    @model_validator(mode="after")
    def _ranges(self) -> DenseFrameConfig:
        for name, (low, high) in (
            ("crop_area", self.crop_area),
            ("crop_aspect", self.crop_aspect),
            ("zoom", self.zoom),
        ):
            if not 0 < low <= high:
                raise ValueError(f"{name} is {(low, high)}: give (low, high) with 0 < low <= high")
        if self.crop_area[1] > 1:
            raise ValueError(f"crop_area is {self.crop_area}: a share of the picture is at most 1")
        return self


PARTS_FRAMES = DenseFrameConfig(
    crop_probability=0,
    rotation_probability=0.5,
    zoom_probability=0.3,
    flip_probability=0.5,
    fit="stretch",
)
"""The released recipe of body-part segmentation."""


ZOOM_TRIES = 10
"""Windows that are drawn until one is accepted (released); the last one is taken."""


class DenseFrame(NamedTuple):
    """The frame of an image for a dense task.

    Attributes:
        frame: image -> what the model sees.
        window: image -> what was left of it after zoom and crop; rotation, mirror and fit come after it. Pixels of the
            frame that lie outside of the window are there because of the rotation.
    """

    frame: Frame
    window: Frame


def draw_dense_frame(
    rng: np.random.Generator,
    source: Size,
    size: Size,
    config: DenseFrameConfig,
    accept: Callable[[Frame], bool] | None = None,
) -> DenseFrame:
    """Draw the frame of one image for a dense task.

    Args:
        rng: of the sample.
        source: (height, width) of the image.
        size: of the frame.
        config: what may happen.
        accept: whether the window of a zoom will do (released parts: no class above 75 % of it), else another place is
            drawn at the same zoom, up to `ZOOM_TRIES` in all; None: any.
    """
    fit = letterbox if config.fit == "letterbox" else stretch
    frame = identity(source)
    if rng.random() < config.zoom_probability:
        frame = _draw_zoom(rng, source, size, config.zoom, accept)
    if rng.random() < config.crop_probability:
        frame = frame.then(_draw_crop(rng, frame.size, config))
    window = frame
    if rng.random() < config.rotation_probability:
        frame = frame.then(rotate(frame.size, config.rotation * (2 * rng.random() - 1)))
    if rng.random() < config.flip_probability:
        frame = frame.then(mirror(frame.size))
    return DenseFrame(frame.then(fit(frame.size, size)), window)


def _draw_crop(rng: np.random.Generator, source: Size, config: DenseFrameConfig) -> Frame:
    height, width = source
    for _ in range(config.crop_tries):
        area = height * width * rng.uniform(*config.crop_area)
        aspect = np.exp(rng.uniform(*np.log(config.crop_aspect)))
        wide, high = max(1, round(np.sqrt(area * aspect))), max(1, round(np.sqrt(area / aspect)))
        if wide <= width and high <= height:
            left, top = rng.integers(width - wide + 1), rng.integers(height - high + 1)
            return crop(source, (int(left), int(top), wide, high))
    return identity(source)


def _draw_zoom(
    rng: np.random.Generator,
    source: Size,
    size: Size,
    zoom: tuple[float, float],
    accept: Callable[[Frame], bool] | None,
) -> Frame:
    """The picture fitted into the frame, times the zoom, cut or padded to the frame's size."""
    factor = min(size[0] / source[0], size[1] / source[1]) * rng.uniform(*zoom)
    resized = (max(1, round(source[0] * factor)), max(1, round(source[1] * factor)))
    # Where the picture is the smaller one the padding goes right and below, as padding before a crop does.
    for _ in range(ZOOM_TRIES):
        top, left = (int(rng.integers(max(0, length - side) + 1)) for length, side in zip(resized, size, strict=True))
        frame = stretch(source, resized).then(crop(resized, (left, top, size[1], size[0])))
        if accept is None or accept(frame):
            break
    return frame


class PoseFrameConfig(Config):
    """Geometry of top-down crops. The defaults are the released recipe (fact 6.5)."""

    padding: float = Field(PADDING, gt=0, description="factor on the person's box (released)")
    flip_probability: float = Field(0.5, ge=0, le=1, description="share of crops that are mirrored (released)")
    half_body_probability: float = Field(
        0.3, ge=0, le=1, description="share of people with enough keypoints cropped to one half of the body (released)"
    )
    half_body_keypoints: int = Field(9, ge=1, description="labelled keypoints needed for half a body (released)")
    half_body_upper: float = Field(0.7, ge=0, le=1, description="share of upper halves where both can be (released)")
    half_body_padding: float = Field(1.5, gt=0, description="factor on the extent of the half's keypoints (released)")
    shift_probability: float = Field(0.3, ge=0, le=1, description="share of crops that are shifted (released)")
    shift: float = Field(0.16, ge=0, description="largest shift, as a share of the padded box (released)")
    scale_probability: float = Field(1.0, ge=0, le=1, description="share of crops that are scaled (released)")
    scale: tuple[float, float] = Field((0.5, 1.5), description="factor on the padded box (released)")
    rotation_probability: float = Field(0.6, ge=0, le=1, description="share of crops that are rotated (released)")
    rotation: float = Field(80.0, ge=0, le=180, description="largest rotation in degrees (released)")

    @model_validator(mode="after")
    def _ranges(self) -> PoseFrameConfig:
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(f"scale is {self.scale}: give (low, high) with 0 < low <= high")
        return self


def draw_pose_frame(
    rng: np.random.Generator,
    box: npt.ArrayLike,
    keypoints: npt.NDArray[np.floating],
    halves: tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]],
    size: Size,
    source: Size,
    config: PoseFrameConfig,
) -> Frame:
    """Draw the crop of one person.

    Shift, scale and rotation are normal numbers cut to -1..1, times their ranges (released).

    Args:
        rng: of the sample.
        box: [4], x0, y0, x1, y1, edges of picture pixels.
        keypoints: [K, 3], in picture pixels.
        halves: indices of the upper and of the lower body's keypoints.
        size: (height, width) of the frame.
        source: of the picture.
        config: what may happen.
    """
    padding = config.padding
    flip = rng.random() < config.flip_probability
    if rng.random() < config.half_body_probability:
        half = _draw_half_body(rng, keypoints, halves, config)
        if half is not None:
            box, padding = half, config.half_body_padding
    wanted = rng.random(3) < (config.shift_probability, config.scale_probability, config.rotation_probability)
    low, high = ndtr(-1.0), ndtr(1.0)
    normal = ndtri(low + (high - low) * rng.random(4))
    middle, half_range = sum(config.scale) / 2, (config.scale[1] - config.scale[0]) / 2
    return crop_around(
        box,
        size,
        source,
        padding=padding,
        shift=(normal[0] * config.shift * wanted[0], normal[1] * config.shift * wanted[0]),
        scale=middle + half_range * normal[2] if wanted[1] else 1.0,
        rotation=config.rotation * normal[3] * wanted[2],
        flip=bool(flip),
    )


def _draw_half_body(
    rng: np.random.Generator,
    keypoints: npt.NDArray[np.floating],
    halves: tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]],
    config: PoseFrameConfig,
) -> npt.NDArray[np.float64] | None:
    """The box of half a body, centred on the mean of its keypoints; None where there are too few."""
    labelled = keypoints[:, 2] > 0
    upper, lower = (half[labelled[half]] for half in halves)
    prefer_upper = rng.random() < config.half_body_upper
    if labelled.sum() < config.half_body_keypoints:
        return None
    enough_upper, enough_lower = len(upper) >= 2, len(lower) >= 3  # released
    if not (enough_upper or enough_lower):
        return None
    chosen = upper if enough_upper and (prefer_upper or not enough_lower) else lower
    points = keypoints[chosen, :2].astype(np.float64)
    extent, centre = np.ptp(points, axis=0), points.mean(0) + 0.5  # edges of pixels
    if min(extent) < 1:
        return None
    return np.concatenate((centre - extent / 2, centre + extent / 2))
