"""Loss terms that several dense tasks share, and what every term does with masks, sizes, dtypes and nan.

Conventions (those of the released losses). Predictions and targets are [B, C, H, W], a mask is bool [B, 1, H, W].
"Mean over valid" is the sum over ALL channels divided by the number of valid PIXELS (at least 1): for three channels an
L1 is the channel sum per pixel. With an all-false mask every term is 0 and its gradients are 0, not nan. Values outside
the mask take no part, whatever they are (nan included). Terms compute in float32, or in float64 when given that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

UNIT_EPSILON = 1e-6  # the released losses and evaluators normalise vectors with it


Term = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(prediction, target, mask) -> a scalar."""


def full_precision(tensor: Tensor) -> Tensor:
    """Half-precision and integer tensors as float32; float32 and float64 unchanged."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def total_loss(losses: Mapping[str, Tensor]) -> Tensor:
    """The sum of the entries whose name contains "loss"; others (accuracies) are for the log only.

    Raises:
        ValueError: no entry is a loss.
    """
    terms = [value.mean() for name, value in losses.items() if "loss" in name]
    if not terms:
        raise ValueError(
            f'nothing to sum: none of {sorted(losses)} has "loss" in its name; give a term a weight above 0'
        )
    return torch.stack(terms).sum()


def guarded(loss: Tensor) -> Tensor:
    """The released guard: nan and +-inf become 0, so that one bad batch adds nothing to the total.

    Gradients through a guarded value may still be nan; the engine checks the gradient's norm.
    """
    return torch.nan_to_num(loss, nan=0.0, posinf=0.0, neginf=0.0)


def weighted_terms(
    terms: Iterable[tuple[str, float, Term]], output: Tensor, target: Tensor, mask: Tensor, guard: bool
) -> dict[str, Tensor]:
    """`loss_<name>`: weight times term for every weight above 0, in float32.

    Args:
        terms: name, weight, term.
        output: [B, C, h, w], any float dtype; resized bilinearly to the target's size first.
        guard: see `guarded`.
    """
    with torch.autocast(output.device.type, enabled=False):
        prediction = resized_to(full_precision(output), target)
        losses = {f"loss_{name}": weight * term(prediction, target, mask) for name, weight, term in terms if weight}
    return {name: guarded(loss) for name, loss in losses.items()} if guard else losses


def resized_to(prediction: Tensor, target: Tensor) -> Tensor:
    """The prediction [B, C, h, w] resized bilinearly (corners not aligned) to the target's last two sides, if unlike.

    Raises:
        ValueError: other than four dimensions, or another batch size than the target's.
    """
    if prediction.ndim != 4 or prediction.shape[0] != target.shape[0]:
        raise ValueError(
            f"a prediction is [batch, channels, height, width] with the target's batch size; got "
            f"{list(prediction.shape)} for a target of {list(target.shape)}"
        )
    size = tuple(target.shape[-2:])
    if tuple(prediction.shape[-2:]) == size:
        return prediction
    return F.interpolate(prediction, size=size, mode="bilinear", align_corners=False)


def mean_over_valid(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over all channels of the valid pixels / number of valid pixels (at least 1).

    Args:
        values: [B, C, H, W]; anything outside the mask.
        mask: bool [B, 1, H, W].
    """
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def inside(values: Tensor, mask: Tensor) -> Tensor:
    """Values with 0 outside the mask: what a term computes on, so that junk there cannot reach a gradient."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def l1(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean over valid of sum_c |p_c - t_c| (released)."""
    return mean_over_valid((inside(prediction, mask) - inside(target, mask)).abs(), mask)


def l2(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean over valid of sum_c (p_c - t_c)^2 (the paper's section 5 says "L2"; squared, as heatmap MSE is)."""
    return mean_over_valid((inside(prediction, mask) - inside(target, mask)).square(), mask)


def gradient(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Squared error of forward differences, x-term + y-term (released for normals; albedo halves it).

    x-term = sum over channels and pairs of ((p[u+1] - p[u]) - (t[u+1] - t[u]))^2 / number of pairs whose two pixels are
    valid (at least 1); the y-term likewise. The release calls it L1, but it is a squared error.
    """
    error = inside(prediction, mask) - inside(target, mask)
    pairs_x = mask[..., :, 1:] & mask[..., :, :-1]
    pairs_y = mask[..., 1:, :] & mask[..., :-1, :]
    along_x = mean_over_valid((error[..., :, 1:] - error[..., :, :-1]).square(), pairs_x)
    along_y = mean_over_valid((error[..., 1:, :] - error[..., :-1, :]).square(), pairs_y)
    return along_x + along_y


def unit(vectors: Tensor) -> Tensor:
    """Vectors along dimension 1 divided by max(length, 1e-6)."""
    return F.normalize(vectors, dim=1, eps=UNIT_EPSILON)


def cosine(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean over valid of 1 - <p/|p|, t/|t|>, both lengths floored at 1e-6 (released)."""
    similarity = (unit(inside(prediction, mask)) * unit(inside(target, mask))).sum(dim=1, keepdim=True)
    return mean_over_valid(1 - similarity, mask)
