"""Pictures of what masked reconstruction has learnt, and how pictures of a run are laid out and named."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from pipeline.storage import Storage
from training.data.colour import IMAGENET_MEAN, IMAGENET_STD
from training.objectives.reconstruction import denormalise, patchify, unpatchify

FOLDER = "pictures"
_GAP = 4
_WHITE, _GREY = 1.0, 0.5


@torch.no_grad()
def reconstruction_picture(
    images: Tensor,
    keep: Tensor,
    predicted: Tensor,
    grid: tuple[int, int],
    pixels: int,
    *,
    normalised: bool = True,
    eps: float = 1e-6,
    panel_height: int = 512,
) -> npt.NDArray[np.uint8]:
    """One row for each image: the image | what the student saw | reconstruction pasted into that | reconstruction.

    Everything is shown at the decoder's resolution: that of the image where `pixels` is the side of a token in it, half
    of it for 4K models (a token covers 64 pixels and is decoded to 32). Predictions of normalised patches get the mean
    and deviation of the true patch back, as MAE shows them: so even a flat prediction has the right average colour.

    Args:
        images: floating [n, 3, H, W], normalised with ImageNet's mean and deviation, as the encoder gets them.
        keep: int64 [n, K], row-major positions of the visible tokens.
        predicted: the decoder's output, any floating dtype: [n, N, pixels * pixels * 3] for all N tokens, or
            [n, N - K, ...] for the masked ones in ascending order (`masked_only=True`); the last column then has grey
            squares for the visible ones.
        grid: (height, width) in tokens, N = height * width.
        pixels: side of the square decoded for a token.
        normalised: the decoder was trained on per-patch normalised pixels.
        eps: of that normalisation.
        panel_height: at most; larger panels are averaged down by a whole number.

    Returns:
        uint8 [height, width, 3]: n rows of four panels with white lines between them.

    Raises:
        TypeError: images are not floating.
        ValueError: shapes that do not fit together.
    """
    images, keep, predicted = images.detach().cpu().float(), keep.detach().cpu(), predicted.detach().cpu().float()
    tokens = grid[0] * grid[1]
    hidden = torch.ones(len(keep), tokens, dtype=torch.bool).scatter_(1, keep, False)
    true = patchify(images, grid, pixels)
    masked_only = predicted.ndim == 3 and predicted.shape[1] != tokens
    if masked_only:
        masked = tokens - keep.shape[1]
        if predicted.shape != (len(images), masked, true.shape[2]):
            raise ValueError(
                f"predicted has shape {tuple(predicted.shape)}; for {len(images)} images of {tokens} tokens of which "
                f"{keep.shape[1]} are visible give [{len(images)}, {tokens}, {true.shape[2]}] or, for the masked "
                f"tokens only, [{len(images)}, {masked}, {true.shape[2]}]"
            )
        everything = torch.zeros_like(true)
        everything[hidden] = predicted.flatten(0, 1)
        predicted = everything
    if normalised:
        predicted = denormalise(predicted, images, grid, pixels, eps=eps)

    true, predicted = _shown(true, grid, pixels), _shown(predicted, grid, pixels)
    square = hidden[:, :, None].expand(-1, -1, pixels * pixels * 3).float()
    mask = unpatchify(square, grid, pixels)
    seen = true * (1 - mask) + _GREY * mask
    pasted = true * (1 - mask) + predicted * mask
    last = predicted * mask + _GREY * (1 - mask) if masked_only else predicted
    panels = [_smaller(panel, panel_height) for panel in (true, seen, pasted, last)]
    return tiled(panels)


def picture_name(step: int) -> str:
    """Name of the picture of a step, inside the run's folder."""
    return f"{FOLDER}/step-{step:08d}.png"


def write_picture(storage: Storage, step: int, picture: npt.NDArray[np.uint8]) -> str:
    """Publish a picture, uint8 [H, W, 3], as `pictures/step-00001000.png` of the run; returns its full path."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=6)
    storage.write_bytes(picture_name(step), buffer.getvalue())
    return storage.path(picture_name(step))


def _shown(patches: Tensor, grid: tuple[int, int], pixels: int) -> Tensor:
    """Patches in the encoder's units -> pictures [n, 3, h, w] from 0 to 1; what is not finite becomes black."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (unpatchify(patches, grid, pixels) * std + mean).nan_to_num(0.0, 0.0, 0.0).clamp(0.0, 1.0)


def _smaller(pictures: Tensor, height: int) -> Tensor:
    """Averaged down by the smallest whole number that divides both sides and brings them to `height` or less."""
    common = math.gcd(*pictures.shape[2:])
    factors = [factor for factor in range(1, common + 1) if common % factor == 0]
    wanted = math.ceil(pictures.shape[2] / height)
    factor = next((factor for factor in factors if factor >= wanted), common)
    return F.avg_pool2d(pictures, factor) if factor > 1 else pictures


def tiled(panels: Sequence[Tensor]) -> npt.NDArray[np.uint8]:
    """Pictures side by side with white lines between them.

    Args:
        panels: of each column, floating [n, 3, h, w] in 0..1, all of one shape.

    Returns:
        uint8 [height, width, 3]: n rows.
    """
    count, _, height, width = panels[0].shape
    canvas = torch.full((3, count * (height + _GAP) - _GAP, len(panels) * (width + _GAP) - _GAP), _WHITE)
    for column, panel in enumerate(panels):
        for row, picture in enumerate(panel):
            top, left = row * (height + _GAP), column * (width + _GAP)
            canvas[:, top : top + height, left : left + width] = picture
    pixels: npt.NDArray[np.uint8] = (canvas * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return pixels
