"""Colour augmentation of views: jitter, grayscale, blur and solarizing, in this order, from drawn parameters.

What is drawn is one row of numbers per view, so that a worker or, for whole batches, the device can apply it later.

| column | name | meaning | does nothing |
|---|---|---|---|
| 0 | brightness | factor | 1 |
| 1 | contrast | factor on the distance to the mean luma of the view | 1 |
| 2 | saturation | factor on the distance to the pixel's luma | 1 |
| 3 | hue | turn of the hue, in circles: -0.5..0.5 | 0 |
| 4-7 | places | place 0..3 of columns 0-3 in the order of application | |
| 8 | grayscale | 1: replaced by its luma | 0 |
| 9 | sigma | of the Gaussian blur, in pixels of the view | 0 |
| 10 | threshold | samples of at least this (0..1) are inverted | above 1 |

The operations are those of `torchvision.transforms.v2` on float images, to rounding; those have one set of parameters
for a batch, these one for each image.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from curation.config import Config

COLUMNS = (
    *("brightness", "contrast", "saturation", "hue"),
    *("brightness_place", "contrast_place", "saturation_place", "hue_place"),
    *("grayscale", "sigma", "threshold"),
)
NO_THRESHOLD = 2.0
IDENTITY = (1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, NO_THRESHOLD)
LUMA = (0.2989, 0.587, 0.114)  # ITU-R BT.601, with torchvision's digits
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_HUE, _PLACES, _GRAYSCALE, _SIGMA, _THRESHOLD = 3, slice(4, 8), 8, 9, 10


class ColourConfig(Config):
    """How strongly colours are distorted. The paper (A.1.1) names the augmentations; the numbers are DINOv3's."""

    jitter_probability: float = Field(0.8, ge=0, le=1, description="share of views whose colours are jittered (DINOv3)")
    brightness: float = Field(0.4, ge=0, le=1, description="factor in 1 - this .. 1 + this (DINOv3)")
    contrast: float = Field(0.4, ge=0, le=1, description="factor in 1 - this .. 1 + this (DINOv3)")
    saturation: float = Field(0.2, ge=0, le=1, description="factor in 1 - this .. 1 + this (DINOv3)")
    hue: float = Field(0.1, ge=0, le=0.5, description="turn in -this .. this, in circles (DINOv3)")
    grayscale_probability: float = Field(0.2, ge=0, le=1, description="share of views made grey (DINOv3)")
    blur_probability: float = Field(
        0.5, ge=0, le=1, description="share of views that are blurred (DINOv3: local views)"
    )
    blur_sigma: tuple[float, float] = Field(
        (0.1, 2.0),
        description="standard deviation of the blur in pixels of the view, uniform in this range (DINOv3). It does not "
        "grow with the view, as DINOv3's does not: on views of 448 x 336 it is weaker than on DINOv3's of 96 x 96",
    )
    blur_kernel: int = Field(
        9, ge=3, le=99, description="width of the blur's kernel in pixels, odd; it cuts the Gaussian off (DINOv3)"
    )
    solarize_probability: float = Field(
        0.2,
        ge=0,
        le=1,
        description="share of views that are solarized. DINOv3 does so to its second global view alone; the paper "
        "lists the augmentation and keeps global views clean, so here it is for local views (our reading)",
    )
    solarize_threshold: int = Field(128, ge=0, le=255, description="bytes of at least this are inverted (DINOv3)")

    @model_validator(mode="after")
    def _ranges(self) -> ColourConfig:
        low, high = self.blur_sigma
        if not 0 < low <= high:
            raise ValueError(f"blur_sigma is {self.blur_sigma}: give (low, high) with 0 < low <= high, in pixels")
        if self.blur_kernel % 2 == 0:
            raise ValueError(f"blur_kernel is {self.blur_kernel}: it must be odd to have a centre")
        return self


def draw_colour(rng: np.random.Generator, count: int, config: ColourConfig) -> npt.NDArray[np.float32]:
    """Draw the colour parameters of some views.

    13 uniform numbers a view are drawn whatever the configuration, so that another probability or strength changes
    what it is about and nothing else.

    Returns:
        float32 [count, C], columns as `COLUMNS`.
    """
    draws = rng.random((count, 13))
    rows = identity(count)
    jittered = draws[:, 0] < config.jitter_probability
    strengths = np.array((config.brightness, config.contrast, config.saturation, config.hue))
    factors = np.array((1.0, 1.0, 1.0, 0.0)) + strengths * (2 * draws[:, 1:5] - 1)
    rows[jittered, :4] = factors[jittered]
    rows[jittered, _PLACES] = np.argsort(draws[jittered, 5:9], axis=1)  # of independent uniforms: every order alike
    rows[:, _GRAYSCALE] = draws[:, 9] < config.grayscale_probability
    low, high = config.blur_sigma
    rows[:, _SIGMA] = np.where(draws[:, 10] < config.blur_probability, low + (high - low) * draws[:, 11], 0)
    solarized = draws[:, 12] < config.solarize_probability
    rows[solarized, _THRESHOLD] = config.solarize_threshold / 255
    return rows


def identity(count: int) -> npt.NDArray[np.float32]:
    """float32 [count, C], the parameters that change nothing."""
    return np.tile(np.array(IDENTITY, np.float32), (count, 1))


def apply_colour(images: Tensor, parameters: Tensor, *, blur_kernel: int = 9, one_by_one: bool | None = None) -> Tensor:
    """Distort the colours of each image by its own parameters.

    Args:
        images: float [B, 3, h, w], RGB in 0..1; h and w above blur_kernel // 2. It is left as it is.
        parameters: float [B, C], columns as `COLUMNS`, on the same device.
        blur_kernel: odd width of the blur's kernel.
        one_by_one: whether each image goes through the operations that it needs alone, which is quicker on a CPU, and
            needs the values of the parameters; otherwise the batch goes through all of them, which are chosen for each
            image without a look at the values. Both give the same to float rounding. None: on a CPU.

    Returns:
        float [B, 3, h, w], in 0..1.

    Raises:
        ValueError: a shape or dtype other than above, or views no larger than the blur reaches.
    """
    _check(images, parameters, blur_kernel)
    if one_by_one is None:
        one_by_one = images.device.type == "cpu"
    if not one_by_one:
        return _apply_batch(images, parameters.to(images.dtype), blur_kernel // 2)
    result = torch.empty_like(images)
    for image, row, out in zip(images, parameters.tolist(), result, strict=True):
        out.copy_(_apply_row(image[None], row, blur_kernel // 2)[0])
    return result


def apply_colour_bytes(images: Tensor, parameters: Tensor, *, blur_kernel: int = 9) -> Tensor:
    """`apply_colour` on uint8 [..., 3, h, w] with parameters [..., C], to uint8: alike to 1 in 255 on any device."""
    if images.dtype != torch.uint8 or images.shape[:-3] != parameters.shape[:-1]:
        raise ValueError(
            f"images {tuple(images.shape)} {images.dtype} and parameters {tuple(parameters.shape)}: give uint8 "
            "[..., 3, h, w] and a row of parameters for each"
        )
    flat = images.reshape(-1, *images.shape[-3:])
    rows = parameters.reshape(-1, parameters.shape[-1])
    changed = apply_colour(flat.float().div_(255), rows, blur_kernel=blur_kernel)
    return changed.mul_(255).round_().to(torch.uint8).reshape(images.shape)


def normalise(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Images as the backbone takes them: less ImageNet's mean, by its standard deviation (paper, A.1.1).

    Args:
        images: uint8 [..., 3, H, W], or float in 0..1, RGB.
        dtype: of the result; the arithmetic is in float32.

    Returns:
        [..., 3, H, W], about -2.1..2.7.
    """
    if images.ndim < 3 or images.shape[-3] != 3 or not (images.dtype == torch.uint8 or images.is_floating_point()):
        raise ValueError(f"images is {tuple(images.shape)} {images.dtype}: give [..., 3, H, W], uint8 or float in 0..1")
    scale = 1 / 255 if images.dtype == torch.uint8 else 1.0
    mean = torch.tensor(IMAGENET_MEAN, device=images.device)[:, None, None]
    std = torch.tensor(IMAGENET_STD, device=images.device)[:, None, None]
    return torch.addcmul(-mean / std, images.float(), scale / std).to(dtype)


def _check(images: Tensor, parameters: Tensor, blur_kernel: int) -> None:
    if images.ndim != 4 or images.shape[1] != 3 or not images.is_floating_point():
        raise ValueError(f"images is {tuple(images.shape)} {images.dtype}: give float [B, 3, h, w] in 0..1")
    if parameters.shape != (len(images), len(COLUMNS)):
        raise ValueError(
            f"parameters is {tuple(parameters.shape)}: give [{len(images)}, {len(COLUMNS)}], a row for each image"
        )
    if blur_kernel < 1 or blur_kernel % 2 == 0:
        raise ValueError(f"blur_kernel is {blur_kernel}: give a positive odd number")
    if min(images.shape[2:]) <= blur_kernel // 2:
        raise ValueError(
            f"views of {images.shape[2]} x {images.shape[3]} are too small for a blur kernel of {blur_kernel} pixels: "
            f"both sides must be above {blur_kernel // 2}"
        )


def _apply_row(image: Tensor, row: list[float], radius: int) -> Tensor:
    """One image [1, 3, h, w], only what its parameters ask for."""
    for operation in sorted(range(4), key=lambda column: row[_PLACES][column]):
        value = row[operation]
        if value != IDENTITY[operation]:
            image = _turn_hue(image, value) if operation == _HUE else _BLENDS[operation](image, value)
    if row[_GRAYSCALE]:
        image = _luma(image).expand_as(image)
    if row[_SIGMA]:
        image = _blur(image, torch.tensor([row[_SIGMA]], dtype=image.dtype), radius)
    if row[_THRESHOLD] <= 1:
        # As a tensor, for a scalar would be compared in double precision.
        image = _solarize(image, torch.tensor(row[_THRESHOLD], dtype=image.dtype))
    return image


def _apply_batch(images: Tensor, parameters: Tensor, radius: int) -> Tensor:
    """All images through all operations, with the parameters that do nothing where one is not wanted.

    The hue is turned once in every image, so that one turn is enough, between the blends that come before it and
    those that come after it: 6 places for blends, of which each image uses 3.
    """
    columns = parameters[:, :, None, None, None]
    order = parameters[:, _PLACES].argsort(dim=1)
    hue_place = parameters[:, _PLACES][:, _HUE]
    factors = parameters[:, :4].gather(1, order)

    def blend(images: Tensor, place: int, wanted: Tensor) -> Tensor:
        operation = order[:, place, None, None, None]
        factor = torch.where(wanted, factors[:, place], 1)[:, None, None, None]
        luma = _luma(images)
        towards = torch.where(operation == 0, 0, torch.where(operation == 1, _mean(luma), luma))
        return torch.lerp(towards, images, factor).clamp_(0, 1)

    for place in (0, 1, 2):
        images = blend(images, place, hue_place > place)
    images = torch.where(columns[:, _HUE] != 0, _turn_hue(images, columns[:, _HUE, 0]), images)
    for place in (1, 2, 3):
        images = blend(images, place, hue_place < place)
    images = torch.where(columns[:, _GRAYSCALE] > 0, _luma(images), images)
    sigma = parameters[:, _SIGMA]
    images = torch.where(columns[:, _SIGMA] > 0, _blur(images, sigma.clamp(min=1e-3), radius), images)
    return _solarize(images, columns[:, _THRESHOLD])


def _luma(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, dim=1)
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def _mean(luma: Tensor) -> Tensor:
    # Row by row: one sum over everything is split among threads, so that their number would change its rounding.
    return luma.mean(dim=3, keepdim=True).mean(dim=2, keepdim=True)


_BLENDS: tuple[Callable[[Tensor, float], Tensor], ...] = (
    lambda images, factor: (images * factor).clamp_(0, 1),
    lambda images, factor: torch.lerp(_mean(_luma(images)), images, factor).clamp_(0, 1),
    lambda images, factor: torch.lerp(_luma(images).expand_as(images), images, factor).clamp_(0, 1),
)


def _turn_hue(images: Tensor, turn: Tensor | float) -> Tensor:
    """Turn the hue, keeping value and saturation of HSV.

    Args:
        images: [B, 3, h, w].
        turn: [B, 1, 1], or one for all, in circles.

    The way back is not by sextants: with k = (n + 6 * hue) mod 6 and n = 5, 3, 1 for red, green and blue, a channel is
    value - chroma * clamp(min(k, 4 - k), 0, 1).
    """
    red, green, blue = images.unbind(1)
    high, low = images.amax(1), images.amin(1)
    chroma = high - low
    scale = chroma.where(chroma > 0, 1).reciprocal_()
    # Where two channels are the highest both formulas agree; a grey pixel has no hue, and its chroma of 0 hides it.
    sextant = torch.where(high == green, (blue - red) * scale + 2, (red - green) * scale + 4)
    sextant = torch.where(high == red, (green - blue) * scale, sextant).add_(turn * 6)
    result = torch.empty_like(images)
    for channel, n in enumerate((5.0, 3.0, 1.0)):
        k = (sextant + n).remainder_(6)
        share = torch.minimum(k, 4 - k).clamp_(0, 1)
        result[:, channel] = high - chroma * share
    return result


def _blur(images: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Gaussian blur by sigma [B] of images [B, 3, h, w], the border mirrored; rows, then columns.

    Shifted copies are added up: on a CPU, a fifth of the time of a convolution with groups.
    """
    offsets = torch.arange(radius + 1, device=images.device, dtype=images.dtype)
    weights = torch.exp(-0.5 * (offsets / sigma[:, None]).square())
    weights = weights / (2 * weights.sum(dim=1, keepdim=True) - weights[:, :1])
    weights = weights[:, :, None, None, None]
    for axis, padding in ((3, (radius, radius, 0, 0)), (2, (0, 0, radius, radius))):
        length = images.shape[axis]
        padded = F.pad(images, padding, mode="reflect")
        images = images * weights[:, 0]
        for offset in range(1, radius + 1):
            pair = padded.narrow(axis, radius - offset, length) + padded.narrow(axis, radius + offset, length)
            images.addcmul_(pair, weights[:, offset])
    return images


def _solarize(images: Tensor, threshold: Tensor) -> Tensor:
    return torch.where(images >= threshold, 1 - images, images)
