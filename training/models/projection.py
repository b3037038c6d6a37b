"""The head of self-distillation: from CLS tokens to logits over prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.initialise import reset_all_parameters
from training.models.layers import Device, Linear

# Least length that is divided by; PyTorch's own 1e-12 is zero in float16.
_EPS = 1e-6


@dataclass(frozen=True)
class ProjectionConfig:
    """Sizes of the projection head; `in_width` is the backbone's width.

    The Sapiens2 paper names a "[cls] projection head" without its shape; the defaults are those of DINOv3's base
    configuration, on which its self-distillation builds. `layers` counts the linear layers of the MLP.
    """

    in_width: int
    hidden: int = 2048
    bottleneck: int = 256
    layers: int = 3
    prototypes: int = 65_536
    weight_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("in_width", "hidden", "bottleneck", "layers", "prototypes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"projection {name} is {value!r}; give a whole number of at least 1")

    @classmethod
    def tiny(cls, in_width: int, **overrides: Any) -> ProjectionConfig:
        """A head to go with the tiny backbones on two CPU cores: hidden 256, bottleneck 64, 1024 prototypes."""
        fields = {"in_width": in_width, "hidden": 256, "bottleneck": 64, "prototypes": 1024} | overrides
        return cls(**fields)


class _Prototypes(Linear):
    """The last layer: bias-free; with `weight_norm` its rows count with unit length."""

    def __init__(self, config: ProjectionConfig, device: Device, dtype: torch.dtype | None) -> None:
        super().__init__(config.bottleneck, config.prototypes, bias=False, device=device, dtype=dtype)
        self.weight_norm = config.weight_norm

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, F.normalize(self.weight, dim=-1, eps=_EPS) if self.weight_norm else self.weight)


class ProjectionHead(nn.Module):
    """MLP (GELU between its layers, no batch norm) to a bottleneck, unit length, bias-free linear layer to prototypes.

    By default the last layer is a plain linear one, as in DINOv3. With `weight_norm` its rows are brought to unit
    length too, as in DINO and DINOv2 with their fixed gain of 1: logits are then cosines in [-1, 1]. The keys are the
    same either way. All linear layers start from a normal of std 0.02 and zero biases. The last layer is named
    `last_layer`, so that a recipe can freeze it at first.
    """

    def __init__(self, config: ProjectionConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.config = config
        widths = [config.in_width, *[config.hidden] * (config.layers - 1), config.bottleneck]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [Linear(inputs, outputs, device=device, dtype=dtype), nn.GELU()]
        self.mlp = nn.Sequential(*layers[:-1])
        self.last_layer = _Prototypes(config, device, dtype)

    def init_weights(self) -> None:
        """Draw all weights anew, as on construction."""
        reset_all_parameters(self)

    def forward(self, cls: Tensor) -> Tensor:
        """CLS tokens [B, in_width] -> logits [B, prototypes], before any temperature or softmax."""
        if cls.ndim != 2 or cls.shape[1] != self.config.in_width:
            raise ValueError(
                f"the projection head was given {tuple(cls.shape)}; it takes CLS tokens "
                f'[batch, {self.config.in_width}], the backbone\'s out_type="cls"'
            )
        return self.last_layer(F.normalize(self.mlp(cls), dim=-1, eps=_EPS))
