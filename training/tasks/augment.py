"""What is done to the image alone in training: colours, blur, noise, holes. The numbers are the released recipes'.

Every operation happens by its own numbers, which are drawn in one block whatever the configuration: another probability
changes what it is about and nothing else. Geometry is `random_frames.py`'s. Fact 6.5 is the source of all figures.

The colours of the pretraining's views (`training/data/colour.py`) are others: there brightness is a factor and
saturation a distance to the luma; the released task recipes add to the brightness and scale the saturation of HSV.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from curation.config import Config

Image = npt.NDArray[np.uint8]

_DRAWS = 40  # uniform numbers for one image, more than are used
_RESAMPLERS = (cv2.INTER_NEAREST, cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_AREA)


class AugmentConfig(Config):
    """Probabilities and strengths, in this order of application. The defaults do nothing to the image.

    `RECIPES` holds the released ones by task.
    """

    photometric_probability: float = Field(0.0, ge=0, le=1, description="of distorted colours")
    brightness: float = Field(32.0, ge=0, le=255, description="added to all samples (0..255): -this .. this (released)")
    contrast: tuple[float, float] = Field((0.5, 1.5), description="factor on all samples (released)")
    saturation: tuple[float, float] = Field((0.5, 1.5), description="factor on the saturation of HSV (released)")
    hue: float = Field(36.0, ge=0, le=180, description="turn of the hue in degrees (released: 18 of OpenCV's 180)")
    resample_probability: float = Field(0.0, ge=0, le=1, description="of making it smaller and large again")
    resample: tuple[float, float] = Field((0.1, 0.7), description="scale of the smaller picture (released)")
    box_blur_probability: float = Field(0.0, ge=0, le=1, description="of a mean over a square of 3, 5 or 7 pixels")
    median_blur_probability: float = Field(0.0, ge=0, le=1, description="of a median over a square of 3, 5 or 7 pixels")
    gaussian_blur_probability: float = Field(0.0, ge=0, le=1, description="of a Gaussian blur over 3 x 3 pixels")
    gaussian_sigma: tuple[float, float] = Field((0.1, 2.0), description="of the Gaussian blur, pixels (released)")
    noise_probability: float = Field(0.0, ge=0, le=1, description="of Gaussian noise, each sample on its own")
    noise_variance: tuple[float, float] = Field((5.0, 20.0), description="of the noise, samples in 0..255 (released)")
    solarize_probability: float = Field(0.0, ge=0, le=1, description="of inverting bright samples")
    solarize_threshold: int = Field(128, ge=0, le=255, description="samples above this are inverted (released)")
    dropout_probability: float = Field(0.0, ge=0, le=1, description="of a black rectangle")
    dropout_side: tuple[float, float] = Field((0.2, 0.4), description="its sides, as shares of the image's (released)")

    @model_validator(mode="after")
    def _ranges(self) -> AugmentConfig:
        for name in ("contrast", "saturation", "resample", "gaussian_sigma", "noise_variance", "dropout_side"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} is {(low, high)}: give (low, high) with 0 < low <= high")
        for name in ("resample", "dropout_side"):
            if getattr(self, name)[1] > 1:
                raise ValueError(f"{name} is {getattr(self, name)}: a share is at most 1")
        return self


RECIPES = {
    "pose": AugmentConfig(
        photometric_probability=0.8, box_blur_probability=0.1, median_blur_probability=0.1, dropout_probability=1.0
    ),
    "seg": AugmentConfig(photometric_probability=1.0, gaussian_blur_probability=0.3, noise_probability=0.3),
    "normal": AugmentConfig(
        photometric_probability=1.0,
        resample_probability=0.2,
        gaussian_blur_probability=0.3,
        noise_probability=0.3,
        solarize_probability=0.3,
    ),
    "pointmap": AugmentConfig(photometric_probability=1.0),
    "albedo": AugmentConfig(noise_probability=0.2),
}
"""The released recipes by task; that of albedo leaves colours alone."""


def augment(image: Image, rng: np.random.Generator, config: AugmentConfig) -> Image:
    """One image, distorted.

    Args:
        image: uint8 [H, W, 3] RGB; it is left as it is.
        rng: of the sample, as `np.random.Generator(np.random.Philox(key=...))`.
        config: what may happen.

    Returns:
        uint8 [H, W, 3].
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"image is {image.shape} {image.dtype}: give uint8 [H, W, 3]")
    draws = rng.random(_DRAWS)
    (noise_seed,) = rng.integers(2**63, size=1)

    def between(limits: tuple[float, float], draw: float) -> float:
        return limits[0] + (limits[1] - limits[0]) * draw

    if draws[0] < config.photometric_probability:
        image = _photometric(image, draws[1:10], config)
    if draws[10] < config.resample_probability:
        image = _resample(image, between(config.resample, draws[11]), draws[12], draws[13])
    if draws[14] < config.box_blur_probability:
        side = 3 + 2 * int(draws[15] * 3)
        image = np.asarray(cv2.blur(image, (side, side)), np.uint8)
    if draws[16] < config.median_blur_probability:
        image = np.asarray(cv2.medianBlur(image, 3 + 2 * int(draws[17] * 3)), np.uint8)
    if draws[18] < config.gaussian_blur_probability:
        image = np.asarray(cv2.GaussianBlur(image, (3, 3), between(config.gaussian_sigma, draws[19])), np.uint8)
    if draws[20] < config.noise_probability:
        deviation = np.sqrt(between(config.noise_variance, draws[21]))
        noise = np.random.Generator(np.random.Philox(key=int(noise_seed))).standard_normal(image.shape, np.float32)
        image = _bytes(image + np.float32(deviation) * noise)
    if draws[22] < config.solarize_probability:
        image = np.where(image > config.solarize_threshold, 255 - image, image)
    if draws[23] < config.dropout_probability:
        image = _drop(image, draws[24:28], config.dropout_side)
    return np.ascontiguousarray(image, np.uint8)


def _photometric(image: Image, draws: npt.NDArray[np.float64], config: AugmentConfig) -> Image:
    """Brightness, contrast, saturation, hue, each by a coin; the contrast before or after the other two, by another."""
    wanted = draws[:4] < 0.5
    values = image.astype(np.float32)
    contrast = config.contrast[0] + (config.contrast[1] - config.contrast[0]) * draws[5] if wanted[1] else 1.0
    contrast_first = draws[8] < 0.5
    if wanted[0]:
        values += np.float32(config.brightness * (2 * draws[4] - 1))
    if contrast_first:
        values *= np.float32(contrast)
    values = np.clip(values, 0, 255)
    if wanted[2] or wanted[3]:
        hsv = cv2.cvtColor(values / np.float32(255), cv2.COLOR_RGB2HSV)
        if wanted[2]:
            low, high = config.saturation
            hsv[..., 1] = np.clip(hsv[..., 1] * np.float32(low + (high - low) * draws[6]), 0, 1)
        if wanted[3]:
            hsv[..., 0] = (hsv[..., 0] + np.float32(config.hue * (2 * draws[7] - 1))) % 360
        values = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * np.float32(255)
    if not contrast_first:
        values = values * np.float32(contrast)
    return _bytes(values)


def _resample(image: Image, scale: float, down: float, up: float) -> Image:
    height, width = image.shape[:2]
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    shrunk = cv2.resize(image, small, interpolation=_RESAMPLERS[int(down * 4)])
    return np.asarray(cv2.resize(shrunk, (width, height), interpolation=_RESAMPLERS[int(up * 4)]), np.uint8)


def _drop(image: Image, draws: npt.NDArray[np.float64], sides: tuple[float, float]) -> Image:
    height, width = image.shape[:2]
    low, high = sides
    high_px = max(1, round(height * (low + (high - low) * draws[0])))
    wide_px = max(1, round(width * (low + (high - low) * draws[1])))
    top, left = int(draws[2] * (height - high_px + 1)), int(draws[3] * (width - wide_px + 1))
    result = image.copy()
    result[top : top + high_px, left : left + wide_px] = 0
    return result


def _bytes(values: npt.NDArray[np.float32]) -> Image:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
