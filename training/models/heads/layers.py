"""Layers of the heads that initialise themselves.

Each layer draws its own weights in `reset_parameters`, which PyTorch calls while the layer is built. A walk over a
finished head would come too late under DeepSpeed's `zero.Init`, which has cut every layer's weights up by then.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.layers import Device


class Conv2d(nn.Conv2d):
    """A convolution with Kaiming-normal weights (fan_out, gain of ReLU) and zero bias: every head's convolutions."""

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class KaimingConvTranspose2d(nn.ConvTranspose2d):
    """A transposed convolution with Kaiming-normal weights: the pose head's (segmentation keeps PyTorch's default).

    fan_out is read off the weight [in, out, k, k] as for an ordinary convolution, so it is in * k * k.
    """

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Linear(nn.Linear):
    """A linear layer with Kaiming-normal weights (fan_in, gain 1) and zero bias: the pointmap head's scale branch."""

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_in", nonlinearity="linear")
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class _RMSNormOverChannels(nn.RMSNorm):
    """RMS norm over axis 1, in float32 or wider. On a CPU three times as fast as moving the channels to the end."""

    eps: float

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        scale = torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + self.eps)
        return (wide * scale * self.weight[:, None, None]).to(x.dtype)


class ChannelRMSNorm(nn.Module):
    """Root-mean-square norm over the channels of every pixel, [B, C, H, W] -> the same; the weight is `norm.weight`."""

    def __init__(
        self, channels: int, eps: float = 1e-6, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.norm = _RMSNormOverChannels(channels, eps=eps, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


def check_features(x: Tensor, channels: int, head: str) -> None:
    """Raise ValueError unless `x` is a feature map [B, channels, H, W]."""
    if x.ndim != 4 or x.shape[1] != channels:
        raise ValueError(
            f"{head} was given features of shape {tuple(x.shape)}; it takes [batch, {channels}, height, width], "
            'the backbone\'s out_type="featmap". A head fits backbones of one width only'
        )
