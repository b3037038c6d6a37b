"""The released terms of body-part segmentation: weighted cross entropy and Dice, both from log-probabilities.

Both take the same log-softmax, which the caller computes once: at 29 classes and 1024x768 it is the largest tensor of
the loss. No one-hot target is made.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

DICE_SMOOTHING = 1e-3  # released
Divisor = Literal["all", "labelled", "weights"]


def _picked(log_probabilities: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Labels with ignored pixels as class 0, which pixels count, and each pixel's log-probability of its label."""
    known = labels != ignore_index
    safe = torch.where(known, labels, 0)
    return safe, known, log_probabilities.gather(1, safe[:, None])[:, 0]


def cross_entropy(
    log_probabilities: Tensor,
    labels: Tensor,
    class_weights: Tensor,
    ignore_index: int = 255,
    divisor: Divisor = "all",
) -> Tensor:
    """Sum over labelled pixels of -w[label] log p[label], divided by one of three counts.

    Args:
        log_probabilities: float [B, C, H, W].
        labels: int64 [B, H, W], 0..C-1 or `ignore_index`.
        class_weights: float [C].
        ignore_index: label of pixels that add nothing.
        divisor: "all" (released): B H W, so ignored pixels dilute the loss and class weights scale it. "labelled": the
            number of pixels with a label. "weights": the sum of their labels' weights. The last two are at least 1 and
            1e-6: an image without labels gives 0.
    """
    safe, known, picked = _picked(log_probabilities, labels, ignore_index)
    weights = torch.where(known, class_weights.to(picked.dtype)[safe], 0)
    total = -(weights * picked).sum()
    match divisor:
        case "all":
            return total / labels.numel()
        case "labelled":
            return total / known.sum().clamp(min=1)
        case "weights":
            return total / weights.sum().clamp(min=1e-6)
    raise ValueError(f'divisor is {divisor!r}; give "all", "labelled" or "weights"')


def dice(
    log_probabilities: Tensor,
    labels: Tensor,
    background: int | None = 0,
    ignore_index: int = 255,
    naive: bool = False,
) -> Tensor:
    """1 - the Dice overlap, averaged over the classes present in a sample, then over samples (released).

    Per sample and class d = (2 sum p g + 1e-3) / (sum p^2 + sum g^2 + 1e-3) over labelled pixels, with p the softmax
    and g the one-hot target; `naive`: sum p + sum g in the divisor. The background class is left out. A sample's d is
    the mean over the classes that its target holds; its loss is 1 - d, or 0 where it holds none (nothing labelled, or
    background only). The mean over the batch includes those zeros.

    Args:
        log_probabilities: float [B, C, H, W].
        labels: int64 [B, H, W], 0..C-1 or `ignore_index`.
        background: class that is left out; None = none is.
    """
    batch, classes = log_probabilities.shape[:2]
    safe, known, picked = _picked(log_probabilities, labels, ignore_index)
    probabilities = log_probabilities.exp()
    zeros = probabilities.new_zeros(batch, classes)
    flat = safe.flatten(1)
    counts = zeros.scatter_add(1, flat, known.flatten(1).to(zeros.dtype))
    overlap = zeros.scatter_add(1, flat, torch.where(known, picked.exp(), 0).flatten(1))
    mass = probabilities if naive else probabilities.square()
    mass = torch.where(known[:, None], mass, 0).sum(dim=(2, 3))
    score = (2 * overlap + DICE_SMOOTHING) / (mass + counts + DICE_SMOOTHING)
    present = counts > 0
    if background is not None:
        present = present & (torch.arange(classes, device=present.device) != background)
    held = present.sum(dim=1)
    mean = torch.where(present, score, 0).sum(dim=1) / held.clamp(min=1)
    return torch.where(held > 0, 1 - mean, 0).mean()


def accuracy(log_probabilities: Tensor, labels: Tensor, ignore_index: int = 255) -> Tensor:
    """Percent of labelled pixels whose most likely class is the label; 0 where nothing is labelled. For the log."""
    known = labels != ignore_index
    right = (log_probabilities.argmax(dim=1) == labels) & known
    return 100.0 * right.sum() / known.sum().clamp(min=1)
