"""Patch features of a frozen encoder, and what the patches show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from eval.probe.labelled import IGNORE, Encoder, Labelled
from training.data.colour import normalise


@contextmanager
def frozen(encoder: Encoder) -> Iterator[None]:
    """The block runs with the encoder in evaluation and without gradients; then it is as before."""
    before = encoder.training
    encoder.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        encoder.train(before)


def feature_maps(encoder: Encoder, images: Tensor, batch: int, device: torch.device) -> Iterator[Tensor]:
    """float32 [b, D, h, w] of `batch` pictures at a time, of the last normalised layer, on `device`.

    Args:
        encoder: frozen (`frozen`).
        images: uint8 [N, 3, H, W].
    """
    for start in range(0, len(images), batch):
        (features,) = encoder(normalise(images[start : start + batch].to(device), torch.float32), out_type="featmap")
        yield features.float()


def class_shares(labels: Tensor, classes: int, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """What share of each patch's labelled pixels is of each class.

    Args:
        labels: uint8 [b, H, W].
        classes: their number.
        grid: rows h and columns w of patches; they divide H and W.

    Returns:
        float32 [b, C, h, w], which sum to 1 over C, or 0 where no pixel of a patch is labelled; and float32 [b, h, w],
        the share of a patch's pixels that is labelled.
    """
    height, width = labels.shape[1] // grid[0], labels.shape[2] // grid[1]
    # Pixels to ignore get a class of their own, which is cut off.
    known = torch.where(labels == IGNORE, classes, labels.long())
    counts = F.avg_pool2d(F.one_hot(known, classes + 1).permute(0, 3, 1, 2).float(), (height, width))[:, :classes]
    labelled = counts.sum(1)
    return counts / labelled.clamp_min(1e-12)[:, None], labelled


def predictions(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Class of every pixel, int64 [b, H, W]: the largest of logits [b, C, h, w], interpolated bilinearly."""
    return F.interpolate(logits, size, mode="bilinear", align_corners=False).argmax(1)


def rows(maps: Tensor) -> Tensor:
    """[b, D, h, w] -> [b * h * w, D]."""
    return maps.permute(0, 2, 3, 1).flatten(0, 2)


def labels_of(data: Labelled, batch: int) -> Iterator[Tensor]:
    """uint8 [b, H, W], in step with `feature_maps`."""
    for start in range(0, len(data), batch):
        yield data.labels[start : start + batch]
