"""Masked reconstruction: the pixels of hidden tokens, normalised patch by patch, as the target of the decoder.

With x_i the pixels of token i (all its rows, columns and channels together), of mean m_i and variance v_i, M the hidden
tokens and f the decoder's prediction::

    t_i = (x_i - m_i) / sqrt(v_i + eps)          L = mean over i in M of mean((f_i - t_i)^2)

Sapiens2 reconstructs per-patch normalised pixels on hidden tokens of the global views, following MAE (paper, 3.2); its
text says mean squared error, its formula lacks the square. eps = 1e-6 is MAE's. The variance is the mean of squares
(MAE's divides by one value less: 0.07 % in length for 768 values), so that a prediction of 0 has a loss of 1 on
pictures without flat patches: the value that a run starts near.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from curation.config import Config

_EPS = 1e-6


class ReconstructionConfig(Config):
    """The masked reconstruction term."""

    weight: float = Field(1.0, ge=0, description="weight in the loss, 0 = off (Sapiens2 paper, A.1.1)")
    normalise: bool = Field(True, description="targets of mean 0 and variance 1 in each patch (paper, 3.2; MAE)")
    eps: float = Field(_EPS, gt=0, description="added to a patch's variance (MAE's default)")


def patchify(images: Tensor, grid: tuple[int, int], pixels: int) -> Tensor:
    """Cut images into the squares that tokens stand for, at the resolution of the decoder.

    Args:
        images: floating [B, 3, H, W] (any number of channels C).
        grid: (height, width) in tokens; a token covers a square of H / height = W / width image pixels.
        pixels: side of the square that is decoded for a token. Where a token covers a larger square (4K models: 64
            image pixels, decoded to 32), the image is averaged over areas first.

    Returns:
        float32 [B, height * width, pixels * pixels * C], tokens in row-major order; values with rows outermost, then
        columns, then channels: the order of `PretrainDecoder`'s outputs.

    Raises:
        TypeError: images are not floating.
        ValueError: sizes that do not fit together.
    """
    if not images.is_floating_point():
        raise TypeError(f"images are {images.dtype}; give floating ones, normalised as the encoder gets them")
    height, width = grid
    if min(height, width, pixels) < 1:
        raise ValueError(f"a grid of {height}x{width} tokens of {pixels} pixels: give at least 1 of each")
    side = images.shape[-2] // height if images.ndim == 4 else 0
    if side < 1 or tuple(images.shape[2:]) != (side * height, side * width) or side % pixels:
        raise ValueError(
            f"images have shape {tuple(images.shape)} for a grid of {height}x{width} tokens, decoded to "
            f"{pixels}x{pixels} pixels each; give [batch, channels, H, W] with H / {height} = W / {width}, a multiple "
            f"of {pixels}"
        )
    images = images.float()
    if side != pixels:
        images = F.avg_pool2d(images, side // pixels)
    cut = images.unflatten(3, (width, pixels)).unflatten(2, (height, pixels))
    return cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2).flatten(2)


def unpatchify(patches: Tensor, grid: tuple[int, int], pixels: int) -> Tensor:
    """The inverse of `patchify`: [B, height * width, pixels * pixels * C] -> [B, C, height * pixels, width * pixels].

    Raises:
        ValueError: sizes that do not fit together.
    """
    height, width = grid
    square = pixels * pixels
    if patches.ndim != 3 or patches.shape[1] != height * width or patches.shape[2] % square:
        raise ValueError(
            f"patches have shape {tuple(patches.shape)}; a grid of {height}x{width} tokens of {pixels}x{pixels} pixels "
            f"takes [batch, {height * width}, {square} * channels]"
        )
    cut = patches.reshape(len(patches), height, width, pixels, pixels, -1)
    return cut.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


@torch.no_grad()
def target_patches(
    images: Tensor, grid: tuple[int, int], pixels: int, *, normalise: bool = True, eps: float = _EPS
) -> Tensor:
    """What the decoder should predict for every token.

    Args:
        images: floating [B, 3, H, W], as the encoder gets them.
        grid: (height, width) in tokens.
        pixels: side of the square decoded for a token, `DecoderConfig.pixels`.
        normalise: bring every patch to mean 0 and variance 1 over all its pixels and channels.
        eps: added to the variance; a flat patch becomes 0.

    Returns:
        float32 [B, height * width, pixels * pixels * 3], ordered as `patchify` says. Without gradient.

    Raises:
        TypeError, ValueError: as `patchify`.
    """
    patches = patchify(images, grid, pixels)
    if not normalise:
        return patches
    mean, std = _statistics(patches, eps)
    return (patches - mean) / std


@torch.no_grad()
def denormalise(predicted: Tensor, images: Tensor, grid: tuple[int, int], pixels: int, *, eps: float = _EPS) -> Tensor:
    """Undo the normalisation of `target_patches` with the mean and deviation of the true patches, for pictures.

    Args:
        predicted: [B, height * width, pixels * pixels * 3], predictions for normalised targets, any floating dtype.
        images: floating [B, 3, H, W], the originals.
        grid: (height, width) in tokens.
        pixels: side of the square decoded for a token.
        eps: as given to `target_patches`.

    Returns:
        float32, the shape of `predicted`, in units of `images`; `unpatchify` makes a picture of it.

    Raises:
        TypeError, ValueError: as `patchify`, or predictions of another shape.
    """
    mean, std = _statistics(patches := patchify(images, grid, pixels), eps)
    _check_shapes(predicted, patches)
    return predicted.float() * std + mean


def reconstruction_loss(predicted: Tensor, target: Tensor) -> Tensor:
    """The mean of squared errors over all values, each token counting the same.

    Args:
        predicted: [B, M, outputs], the decoder's predictions for the M hidden tokens, any floating dtype.
        target: [B, M, outputs], their targets.

    Returns:
        float32 scalar; the squares are taken and averaged in float32.

    Raises:
        ValueError: shapes that differ, or nothing to average.
    """
    _check_shapes(predicted, target)
    if not predicted.numel():
        raise ValueError(
            f"predictions have shape {tuple(predicted.shape)}: no token is hidden; raise the mask's ratio, or set the "
            "weight of reconstruction to 0"
        )
    with torch.autocast(predicted.device.type, enabled=False):
        return F.mse_loss(predicted.float(), target.float())


def _statistics(patches: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and sqrt(variance + eps) of each patch, [B, N, 1]."""
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True, correction=0)
    return mean, (variance + eps).sqrt()


def _check_shapes(predicted: Tensor, target: Tensor) -> None:
    # mse_loss would broadcast, and give a number that means nothing.
    if predicted.shape != target.shape:
        raise ValueError(f"predictions have shape {tuple(predicted.shape)} and targets {tuple(target.shape)}")
