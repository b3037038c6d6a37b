"""The released terms of pointmaps, on canonical XYZ (see `canonical.py`).

Predictions and targets are [B, 3, H, W], masks bool [B, 1, H, W], per-image numbers [B]. Which of them are divided by
the mean canonical depth of the target before a term is said in `pointmap.py`; the terms here take what they are given.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.tasks.dense_losses import inside, l1, mean_over_valid, unit

LOG_FLOOR = 1e-4  # of depths before the logarithm, and of the divisor of SiLog
_NO_DEPTH = -100.0
_STEP_SCALE = 100.0  # metres -> centimetres, before the cross product
_CENTROID_EPSILON = 1e-6
_SHORTEST = 1e-6
_PARALLEL = 1e-6


def multiscale_l1(prediction: Tensor, target: Tensor, mask: Tensor, factor: int = 2) -> Tensor:
    """L1 of both maps upsampled bilinearly (corners not aligned) by `factor`, the mask by nearest neighbour.

    Valid pixels at the mask's edge mix in what lies outside of it, in the prediction and in the target (there 0).
    """
    larger = [
        F.interpolate(maps, scale_factor=float(factor), mode="bilinear", align_corners=False)
        for maps in (prediction, target)
    ]
    return l1(larger[0], larger[1], mask.repeat_interleave(factor, -1).repeat_interleave(factor, -2))


def silog(depth: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Scale-invariant logarithmic error of z [B, 1, H, W].

    d = log max(t, 1e-4) - log max(p, 1e-4) over valid pixels (mask, t > -100, d a number); per image
    sqrt(mean d^2 - 0.5 (mean d)^2), means with divisor max(count, 1e-4); then the mean over the batch. A prediction of
    k t gives sqrt(0.5) |log k|: with the factor 0.5 the term keeps half of a wrong scale. There is no epsilon under
    the root; where it is 0 the gradient is taken as 0.
    """
    difference = target.clamp(min=LOG_FLOOR).log() - depth.clamp(min=LOG_FLOOR).log()
    valid = mask & (target > _NO_DEPTH) & ~difference.isnan()
    difference = inside(difference, valid).flatten(1)
    count = valid.flatten(1).sum(dim=1).clamp(min=LOG_FLOOR)
    mean = difference.sum(dim=1) / count
    spread = difference.square().sum(dim=1) / count - 0.5 * mean.square()
    positive = spread > 0
    return torch.where(positive, torch.where(positive, spread, 1.0).sqrt(), 0.0).mean()


def intrinsics_consistency(prediction: Tensor, mask: Tensor, intrinsics: Tensor) -> Tensor:
    """|X - (u - cx) Z / fx| + |Y - (v - cy) Z / fy| of the prediction alone, mean over valid.

    u and v are integer columns and rows. 0 for any pointmap whose points lie on their pixels' rays, whatever its depth
    and scale.

    Args:
        intrinsics: float [B, 3, 3] of the frame, in pixels of the prediction's size.
    """
    prediction = inside(prediction, mask)
    height, width = prediction.shape[-2:]
    k = intrinsics.to(prediction.dtype)
    u = torch.arange(width, device=prediction.device, dtype=prediction.dtype)
    v = torch.arange(height, device=prediction.device, dtype=prediction.dtype)
    slope_x = (u - k[:, 0, 2, None]) / k[:, 0, 0, None]
    slope_y = (v - k[:, 1, 2, None]) / k[:, 1, 1, None]
    x, y, z = prediction[:, 0], prediction[:, 1], prediction[:, 2]
    error = (x - slope_x[:, None, :] * z).abs() + (y - slope_y[:, :, None] * z).abs()
    return mean_over_valid(error[:, None], mask)


def _centred(points: Tensor, mask: Tensor) -> Tensor:
    points = inside(points, mask)
    count = mask.sum(dim=(2, 3), keepdim=True) + _CENTROID_EPSILON
    return points - points.sum(dim=(2, 3), keepdim=True) / count


def shift_invariant_l1(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """L1 after each map's own centroid over its valid pixels (divisor count + 1e-6) is taken off, mean over valid."""
    return l1(_centred(prediction, mask), _centred(target, mask), mask)


def _differences(points: Tensor) -> tuple[Tensor, Tensor]:
    """Right neighbour - pixel and pixel below - pixel, times 100, the last column's and row's neighbours reflected."""
    if min(points.shape[-2:]) < 2:
        raise ValueError(f"normals need at least 2x2 pixels, got {list(points.shape[-2:])}")
    right = torch.cat([points[..., :, 1:], points[..., :, -2:-1]], dim=-1)
    below = torch.cat([points[..., 1:, :], points[..., -2:-1, :]], dim=-2)
    return (right - points) * _STEP_SCALE, (below - points) * _STEP_SCALE


def pointmap_normals(points: Tensor) -> Tensor:
    """Unit normals of a pointmap [B, 3, H, W] from forward differences; the same shape.

    dx = right neighbour - pixel, dy = pixel below - pixel, both times 100; n = dx x dy / max(|dx x dy|, 1e-6). The
    neighbours of the last column and row are reflected (the second to last), which turns the normal there about. For a
    surface that faces the camera n points away from it (+z): the opposite of a Picture's normals.

    Raises:
        ValueError: fewer than two rows or columns.
    """
    return unit(torch.linalg.cross(*_differences(points), dim=1))


def _length(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, dim=1, keepdim=True)


def surface_normal(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """(1 - cosine, clamped to -1..1) + mean over channels of |difference| of the two maps' normals, mean over valid.

    Valid: mask, and a target normal longer than 1e-6. Both maps are metric (divided by the target's scale). Neighbours
    outside the mask are used as they are: 0 in the target. Where both neighbours are outside, dx = dy and the normal is
    rounding noise of any length, so that ours also wants |dx x dy| > 1e-6 |dx| |dy| of the target.
    """
    dx, dy = _differences(inside(target, mask))
    crossed = torch.linalg.cross(dx, dy, dim=1)
    truth = unit(crossed)
    valid = mask & (_length(truth) > _SHORTEST) & (_length(crossed) > _PARALLEL * _length(dx) * _length(dy))
    # The neighbours' predictions may lie outside the mask, so what cannot be used is taken out after the normals.
    normals, truth = inside(pointmap_normals(prediction), valid), inside(truth, valid)
    similarity = (normals * truth).sum(dim=1, keepdim=True).clamp(-1, 1)
    return mean_over_valid((1 - similarity) + (normals - truth).abs().mean(dim=1, keepdim=True), valid)


def scale_l1(scale: Tensor, target: Tensor) -> Tensor:
    """Mean over the batch of |predicted scale - canonical focal length / fx|; both [B]."""
    return (scale - target).abs().mean()
