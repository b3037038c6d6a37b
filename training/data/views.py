"""The views of a picture: random resized crops, mirrored or not, some of them with distorted colours.

Drawing is apart from applying: `draw_views` needs the size of the picture alone. A fixed number of uniform numbers is
drawn, in a fixed order, whatever the picture and the switches: the views are a function of the generator's key, and an
ablation of one switch changes nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from curation.config import Config
from curation.records import Pixels
from training.data.batch import Batch, Views
from training.data.colour import ColourConfig, apply_colour_bytes, draw_colour, identity

Interpolation = Literal["bicubic", "bilinear", "fast"]
ATTEMPTS = 10  # torchvision's RandomResizedCrop, which MAE and DINOv3 use


class ViewsConfig(Config):
    """How many views are taken of a picture, of what size and part of it, and with what colours."""

    global_count: int = Field(2, ge=1, description="global views V of a picture (paper, A.1.1)")
    local_count: int = Field(4, ge=0, description="local views L of a picture (paper, A.1.1)")
    global_size: tuple[int, int] = Field((1024, 768), description="height and width of global views (paper, 6.1)")
    local_size: tuple[int, int] = Field(
        (448, 336),
        description="height and width of local views; the paper does not say: DINOv3's ratio to global ones (0.43), at "
        "multiples of 16 (our choice)",
    )
    global_scale: tuple[float, float] = Field(
        (0.5, 1.0), description="share of the picture's area that a global view shows (paper, A.1.1; area as in DINOv3)"
    )
    local_scale: tuple[float, float] = Field(
        (0.2, 0.7), description="share of the picture's area that a local view shows (paper, A.1.1; area as in DINOv3)"
    )
    aspect: tuple[float, float] = Field(
        (3 / 4, 4 / 3),
        description="range of a crop's width / height, as a multiple of its view's: how far it may be stretched. "
        "Log-uniform in torchvision's range, but around the view's shape (our choice)",
    )
    fallback: Literal["centre", "random"] = Field(
        "random",
        description=f"where the largest crop of an allowed shape is taken when {ATTEMPTS} tries gave none that fits: "
        "in the centre (torchvision), or anywhere (our choice, so that two such views of a picture differ). Upright "
        "views of half of a wide picture often do not fit: with centre, both global views are the same central crop in "
        "3 % of 4:3 pictures, 19 % of 3:2 and 75 % of 16:9",
    )
    flip_probability: float = Field(0.5, ge=0, le=1, description="share of views mirrored left to right (DINOv3)")
    interpolation: Interpolation = Field(
        "bicubic",
        description="how crops are resized: bicubic (MAE, DINOv3) or bilinear, both antialiased, or fast: OpenCV's, "
        "which takes half the time and lets fine detail alias",
    )
    colour: ColourConfig = Field(ColourConfig(), description="colour augmentation of local views")
    colour_on_globals: bool = Field(
        False,
        description="distort the colours of global views too, as those of local ones. The paper (A.1.1) does not, "
        "for they are what is reconstructed; for ablations",
    )
    apply_colour: Literal["workers", "device"] = Field(
        "workers", description="who distorts colours: loader workers, view by view, or the device, in batches"
    )

    @model_validator(mode="after")
    def _check(self) -> ViewsConfig:
        for name in ("global_size", "local_size"):
            size = getattr(self, name)
            if min(size) < 1:
                raise ValueError(f"{name} is {size}: give (height, width) of 1 or more, in pixels")
            coloured = self.local_count if name == "local_size" else self.colour_on_globals
            if coloured and self.colour.blur_probability and min(size) <= self.colour.blur_kernel // 2:
                raise ValueError(
                    f"{name} is {size}, too small for a blur kernel of {self.colour.blur_kernel} pixels: give sides "
                    f"above {self.colour.blur_kernel // 2}, a smaller blur_kernel, or blur_probability 0"
                )
        for name in ("global_scale", "local_scale"):
            low, high = getattr(self, name)
            if not 0 < low <= high <= 1:
                raise ValueError(f"{name} is {(low, high)}: give shares (low, high) with 0 < low <= high <= 1")
        if not 0 < self.aspect[0] <= self.aspect[1]:
            raise ValueError(f"aspect is {self.aspect}: give factors (low, high) with 0 < low <= high")
        return self

    def check_stride(self, stride: int) -> None:
        """Raise unless the views divide into tokens.

        Args:
            stride: pixels of a view per token along an axis, as `training.models.config` has it.

        Raises:
            ValueError: a side of a view that is not a multiple of the stride, with the nearest sizes that are.
        """
        for name in ("global_size", "local_size") if self.local_count else ("global_size",):
            size = getattr(self, name)
            if any(side % stride for side in size):
                fitting = tuple(max(1, round(side / stride)) * stride for side in size)
                raise ValueError(
                    f"{name} is {size}, but the model turns {stride} x {stride} pixels into a token: both sides "
                    f"must be multiples of {stride}, for example {fitting}"
                )


@dataclass(frozen=True)
class ViewParameters:
    """What `draw_views` drew for the V + L views of a picture, global ones first.

    Attributes:
        boxes: int64 [V + L, 4], left, top, width, height in pixels of the picture.
        flipped: bool [V + L].
        colour: float32 [V + L, C] (`training.data.colour.COLUMNS`).
    """

    boxes: npt.NDArray[np.int64]
    flipped: npt.NDArray[np.bool_]
    colour: npt.NDArray[np.float32]


def draw_views(rng: np.random.Generator, size: tuple[int, int], config: ViewsConfig) -> ViewParameters:
    """Draw the views of a picture.

    Args:
        rng: keyed by the sample; uniform numbers are drawn for the crops, then the flips, then the colours.
        size: height and width of the picture, 1 or more.

    Raises:
        ValueError: an empty picture.
    """
    if min(size) < 1:
        raise ValueError(f"the picture is {size[0]} x {size[1]} pixels: both sides must be 1 or more")
    globals_, count = config.global_count, config.global_count + config.local_count
    crops = rng.random((count, ATTEMPTS, 4))
    flipped = rng.random(count) < config.flip_probability
    colour = draw_colour(rng, count, config.colour)
    if not config.colour_on_globals:
        colour[:globals_] = identity(globals_)
    boxes = np.empty((count, 4), np.int64)
    boxes[:globals_] = _crops(crops[:globals_], size, config.global_size, config.global_scale, config)
    boxes[globals_:] = _crops(crops[globals_:], size, config.local_size, config.local_scale, config)
    return ViewParameters(boxes, flipped, colour)


def apply_views(picture: Pixels, parameters: ViewParameters, config: ViewsConfig) -> Views:
    """Cut the views that were drawn out of a picture of the size that they were drawn for.

    Args:
        picture: uint8 [H0, W0, 3], RGB.

    Raises:
        ValueError: not a picture, or one that a box reaches out of.
    """
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or not picture.size:
        raise ValueError(f"the picture is {picture.shape} {picture.dtype}: give uint8 [height, width, 3], not empty")
    boxes = parameters.boxes
    reach = boxes[:, :2] + boxes[:, 2:]
    if boxes[:, :2].min() < 0 or (reach > picture.shape[1::-1]).any():
        raise ValueError(f"a view reaches out of the picture of {picture.shape[0]} x {picture.shape[1]} pixels")
    first = config.global_count
    global_views = _cut(picture, parameters, slice(0, first), config.global_size, config)
    local_views = _cut(picture, parameters, slice(first, None), config.local_size, config)
    left = torch.from_numpy(parameters.colour) if config.apply_colour == "device" else None
    return Views(global_views, local_views, torch.from_numpy(boxes), torch.from_numpy(parameters.flipped), left)


def make_views(picture: Pixels, rng: np.random.Generator, config: ViewsConfig) -> Views:
    """Draw the views of a picture, uint8 RGB [H0, W0, 3], and cut them out of it."""
    return apply_views(picture, draw_views(rng, picture.shape[:2], config), config)


def finish_on_device(batch: Batch, config: ViewsConfig) -> Batch:
    """Apply the colours that the workers have left to the device, if any: a batch with `colour` None."""
    if batch.colour is None:
        return batch
    first, kernel = config.global_count, config.colour.blur_kernel
    global_views, local_views = batch.global_views, batch.local_views
    if config.colour_on_globals:
        global_views = apply_colour_bytes(global_views, batch.colour[:, :first], blur_kernel=kernel)
    if config.local_count:
        local_views = apply_colour_bytes(local_views, batch.colour[:, first:], blur_kernel=kernel)
    return replace(batch, global_views=global_views, local_views=local_views, colour=None)


def resize(crop: Pixels, size: tuple[int, int], interpolation: Interpolation = "bicubic") -> Tensor:
    """Resize uint8 [h, w, 3] to uint8 [3, height, width], by any factor.

    `bicubic` and `bilinear` are torch's antialiased filters on bytes; `fast` is OpenCV's cubic filter, which is not,
    after halving while that is possible. Distance to Pillow's bicubic filter in units of 1/255 and time on one core:

    | | bicubic | bilinear | fast | `cv2.INTER_AREA` | Pillow |
    |---|---|---|---|---|---|
    | photographs, smaller by 1.5 or 2.9: mean | 0.001-0.005 | 0.6-1.6 | 1.3-2.2 | 0.5-1.0 | |
    | the same: maximum | 2 | 32 | 88 | 25 | |
    | photographs, larger by 2.4: mean | 0.004 | 0.6-1.0 | 0.3-0.5 | 0.9-1.6 | |
    | zone plate (the finest detail), smaller by 1.5: mean | 0.004 | 9.8 | 29 | 7.5 | |
    | 1500 x 1100 to 1024 x 768: ms | 3.6 | 3.4 | 2.0 | 10.6 | 21 |
    """
    height, width = size
    if interpolation != "fast":
        planes = torch.from_numpy(crop).permute(2, 0, 1)[None]
        return F.interpolate(planes, size, mode=interpolation, antialias=True)[0]
    while crop.shape[0] >= 2 * height and crop.shape[1] >= 2 * width:
        half = (crop.shape[1] // 2, crop.shape[0] // 2)
        crop = np.asarray(cv2.resize(crop[: 2 * half[1], : 2 * half[0]], half, interpolation=cv2.INTER_AREA), np.uint8)
    resized = cv2.resize(crop, (width, height), interpolation=cv2.INTER_CUBIC)
    return torch.from_numpy(np.stack(cv2.split(resized)))


def _cut(
    picture: Pixels, parameters: ViewParameters, which: slice, size: tuple[int, int], config: ViewsConfig
) -> Tensor:
    """Some of the views, uint8 [n, 3, height, width], with colours distorted where the worker is to."""
    boxes, flipped, colour = parameters.boxes[which], parameters.flipped[which], parameters.colour[which]
    views = torch.empty((len(boxes), 3, *size), dtype=torch.uint8)
    for view, (left, top, width, height), flip in zip(views, boxes, flipped, strict=True):
        resized = resize(picture[top : top + height, left : left + width], size, config.interpolation)
        view.copy_(resized.flip(2) if flip else resized)
    if config.apply_colour == "workers":
        changed = torch.from_numpy((colour != identity(1)).any(1))
        if changed.any():
            rows = torch.from_numpy(colour)[changed]
            views[changed] = apply_colour_bytes(views[changed], rows, blur_kernel=config.colour.blur_kernel)
    return views


def _crops(
    draws: npt.NDArray[np.float64],
    picture: tuple[int, int],
    view: tuple[int, int],
    scale: tuple[float, float],
    config: ViewsConfig,
) -> npt.NDArray[np.int64]:
    """Boxes int64 [n, 4] from uniform numbers [n, ATTEMPTS, 4]: for area, shape, left, top; the first try that fits."""
    height, width = picture
    narrowest, widest = (factor * view[1] / view[0] for factor in config.aspect)
    area = (scale[0] + (scale[1] - scale[0]) * draws[..., 0]) * height * width
    aspect = np.exp(math.log(narrowest) + math.log(widest / narrowest) * draws[..., 1])
    sizes = np.rint(np.sqrt(np.stack((area * aspect, area / aspect), axis=-1))).astype(np.int64)
    fits: npt.NDArray[np.bool_] = np.all((sizes > 0) & (sizes <= (width, height)), axis=-1)
    rows, chosen = np.arange(len(draws)), fits.argmax(1)
    failed = np.flatnonzero(~fits[rows, chosen])
    sizes = sizes[rows, chosen]
    shape = min(max(width / height, narrowest), widest)  # the shape allowed that is nearest to the picture's
    sizes[failed] = min(width, max(1, round(height * shape))), min(height, max(1, round(width / shape)))
    room = np.array((width, height)) - sizes
    corners = np.minimum((draws[rows, chosen, 2:] * (room + 1)).astype(np.int64), room)
    if config.fallback == "centre":
        corners[failed] = room[failed] // 2
    return np.concatenate((corners, sizes), axis=1)
