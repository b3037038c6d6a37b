"""What the task heads cost: every layer with weights, as a list of shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.models.heads import AlbedoHeadConfig, DenseHeadConfig, HeadConfig, PointmapHeadConfig


@dataclass(frozen=True)
class Layer:
    """A convolution, transposed convolution or linear layer of a head."""

    parameters: int
    """With the weights of a norm behind it."""
    macs: int
    """Multiply-accumulates for one image."""
    outputs: int
    """Values that it gives for one image."""
    normalised: bool
    """A norm and SiLU follow; else SiLU or nothing."""


def head_layers(config: HeadConfig, grid: tuple[int, int]) -> list[Layer]:
    """The layers of a head on a feature map of `grid` = (rows, columns)."""
    layers = []
    rows, columns = grid
    channels = config.in_channels
    rms = isinstance(config, AlbedoHeadConfig)
    if isinstance(config, DenseHeadConfig):
        layers.append(_conv(channels, channels, 3, rows * columns, norm=channels if rms else 0))
        for out in config.upsample_channels:
            # The pixel shuffle behind it only moves values.
            layers.append(_conv(channels, 4 * out, 3, rows * columns, norm=out if rms else 0))
            channels, rows, columns = out, 2 * rows, 2 * columns
    else:
        kernel = config.deconv_kernel
        for out in config.deconv_channels:
            weights = channels * out * kernel**2
            # Every input value meets every weight of its channel once.
            layers.append(Layer(weights, weights * rows * columns, out * 4 * rows * columns, True))
            channels, rows, columns = out, 2 * rows, 2 * columns
    for out in config.conv_channels:
        layers.append(_conv(channels, out, config.conv_kernel, rows * columns, norm=out if rms else 0))
        channels = out
    layers.append(_conv(channels, config.out_channels, 1, rows * columns, normalised=False))
    if isinstance(config, PointmapHeadConfig):
        layers += _scale_branch(config, grid)
    return layers


def _scale_branch(config: PointmapHeadConfig, grid: tuple[int, int]) -> list[Layer]:
    layers = []
    rows, columns = grid
    channels = config.in_channels
    for out in config.scale_channels:
        rows, columns = math.ceil(rows / 2), math.ceil(columns / 2)
        layers.append(_conv(channels, out, 1, rows * columns))
        channels = out
    width = channels * rows * columns
    for out in (*config.scale_hidden, 1):
        layers.append(Layer(width * out + out, width * out, out, False))
        width = out
    return layers


def _conv(inputs: int, outputs: int, kernel: int, positions: int, norm: int = 0, normalised: bool = True) -> Layer:
    weights = inputs * outputs * kernel**2
    return Layer(weights + outputs + norm, weights * positions, outputs * positions, normalised)


def head_activation_elements(config: HeadConfig, grid: tuple[int, int]) -> int:
    """Values that a head keeps for its backward pass, for one image.

    The feature map, and three for every output of a layer with a norm: what enters the norm, SiLU and the next layer.
    The few values of the scale branch's linear layers are left out; what the loss keeps is not the head's. PyTorch's
    RMSNorm, in the albedo head, also keeps the normalised values on the CPU, but not on the GPU, where it is fused.
    """
    return config.in_channels * grid[0] * grid[1] + sum(
        3 * layer.outputs for layer in head_layers(config, grid) if layer.normalised
    )
