"""What probes are fitted to and scored on: pictures with a class for every pixel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

IGNORE = 255
"""Label of pixels that count nowhere."""


class Encoder(Protocol):
    """What is probed. A `training.models.backbone.Backbone` is one."""

    training: bool

    def __call__(self, images: Tensor, *, out_type: str) -> tuple[Tensor, ...]:
        """Normalised float32 [B, 3, H, W] and "featmap" -> ([B, D, h, w],), of the last layer, normalised."""

    def eval(self) -> object:
        """Switch to evaluation."""

    def train(self, mode: bool = True) -> object:
        """Switch back."""


@dataclass(frozen=True)
class Labelled:
    """Pictures with a class for every pixel.

    Attributes:
        images: uint8 [N, 3, H, W], RGB.
        labels: uint8 [N, H, W]: 0 to classes - 1, or `IGNORE`.
        classes: names; their number is that of the classes.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        images, labels, count = self.images, self.labels, len(self.classes)
        if images.dtype != torch.uint8 or labels.dtype != torch.uint8:
            raise TypeError(f"images are {images.dtype} and labels {labels.dtype}; both must be torch.uint8")
        if images.ndim != 4 or images.shape[1] != 3 or not len(images):
            raise ValueError(f"images have shape {list(images.shape)}; give [N, 3, H, W] with N of 1 or more")
        if labels.shape != (len(images), *images.shape[2:]):
            raise ValueError(
                f"labels have shape {list(labels.shape)}; images {list(images.shape)} take a class per pixel, [N, H, W]"
            )
        if not 2 <= count <= IGNORE:
            raise ValueError(f"there are {count} classes; give 2 to {IGNORE}")
        wrong = labels[(labels >= count) & (labels != IGNORE)]
        if len(wrong):
            raise ValueError(
                f"a label is {int(wrong[0])}; with {count} classes give 0 to {count - 1}, or {IGNORE} for pixels that "
                "do not count"
            )

    def __len__(self) -> int:
        return len(self.images)

    def fingerprint(self) -> str:
        """16 hex characters of pixels, labels and classes."""
        digest = hashlib.sha256(repr((self.classes, tuple(self.images.shape))).encode())
        for tensor in (self.images, self.labels):
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()[:16]
