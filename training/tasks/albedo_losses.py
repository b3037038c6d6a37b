"""Terms of albedo beside the shared ones: chromaticity (released), low frequency (released, off), RGB mean (paper)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.tasks.dense_losses import inside, l1

_EPSILON = 1e-6


def _chromaticity(colours: Tensor) -> Tensor:
    return colours / (colours.sum(dim=1, keepdim=True) + _EPSILON)


def chromaticity(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """L1 of c = rgb / (r + g + b + 1e-6), the prediction clamped to 0..1 first; mean over valid.

    Blind to brightness: a target times k (all of it in 0..1) gives 0 but for the epsilon.
    """
    return l1(_chromaticity(inside(prediction, mask).clamp(0, 1)), _chromaticity(inside(target, mask)), mask)


def low_frequency(prediction: Tensor, target: Tensor, mask: Tensor, factor: int = 32) -> Tensor:
    """L1 of blurred maps, mean over valid.

    Blurred: the map with 0 outside the mask averaged over areas down by `factor` (at least to 1x1), bilinearly back up,
    divided by the same of the mask + 1e-6.
    """
    height, width = mask.shape[-2:]
    small = (max(1, height // factor), max(1, width // factor))

    def blurred(values: Tensor) -> Tensor:
        averaged = F.interpolate(values, size=small, mode="area")
        return F.interpolate(averaged, size=(height, width), mode="bilinear", align_corners=False)

    weight = blurred(mask.to(prediction.dtype)) + _EPSILON
    return l1(blurred(inside(prediction, mask)) / weight, blurred(inside(target, mask)) / weight, mask)


def rgb_mean(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Per image sum_c |mean of p_c - mean of t_c| over its valid pixels; mean over the images that have any.

    The paper (section 5) names an RGB-mean term without a formula; this one is ours.
    """
    count = mask.sum(dim=(2, 3))
    error = (inside(prediction, mask) - inside(target, mask)).sum(dim=(2, 3)) / count.clamp(min=1)
    held = (count > 0).sum().clamp(min=1)
    return torch.where(count > 0, error.abs(), 0).sum() / held
