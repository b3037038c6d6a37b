"""KoLeo: keeps the CLS tokens of a batch apart, so that they spread over the sphere.

With x_i the CLS token of a row brought to unit length and j(i) the nearest other row of its group (Sablayrolles et al.,
"Spreading vectors for similarity search", 2019, after the entropy estimator of Kozachenko and Leonenko)::

    L = -1/n * sum over i of log d_i,      d_i = sqrt(|x_i - x_j(i)|^2 + eps)

DINOv2 and DINOv3 take it on the student's CLS tokens before the projection head, apart for each global crop; Sapiens2
gives its weight, 0.04 (paper, A.1.1). The eps inside of the root (theirs is added to the distance) leaves distances of
any size as they are, and gives a smooth loss for rows that coincide: its value is at most -log(eps) / 2 (9.2 for 1e-8),
its gradient on a unit row's difference at most 1 / (2 sqrt(eps)), and 0 where rows are the same.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from curation.config import Config

# Least length that is divided by. CLS tokens leave a norm with a length near sqrt(D).
_LENGTH_EPS = 1e-6


class KoleoConfig(Config):
    """The KoLeo term."""

    weight: float = Field(0.04, ge=0, description="weight in the loss, 0 = off (Sapiens2 paper, A.1.1)")
    group: int = Field(
        4,
        ge=2,
        description="samples whose nearest neighbours are sought among one another. 4 divides the micro-batches that "
        "fit a GPU at 1024x768, and the loss is the same however a batch is split at multiples of it; the recipes of "
        "the released sizes have the 16 of DINOv3's distributed form, gathered over GPUs where micro-batches are "
        "smaller",
    )
    eps: float = Field(
        1e-8, gt=0, description="added to a squared distance, in units of the sphere's radius (our choice)"
    )


def nearest_squared(cls: Tensor, group: int) -> Tensor:
    """Squared distances to the nearest other row of the same group, after bringing rows to unit length.

    Args:
        cls: floating [n, D], any dtype.
        group: consecutive rows that are compared with one another, 1 or more; the last group may be smaller.

    Returns:
        float32 [r], 0 to 4, in the order of the rows, with gradient to both rows of a pair. Rows that are alone in
        their group are left out: r = n, or n - 1 where the last group has one row, or 0 for groups of 1.

    Raises:
        TypeError: rows are not floating.
        ValueError: not a matrix, or a group below 1.
    """
    if not cls.is_floating_point():
        raise TypeError(f"CLS tokens are {cls.dtype}; give floating ones")
    if cls.ndim != 2 or group < 1:
        raise ValueError(f"CLS tokens of shape {tuple(cls.shape)} in groups of {group}: give [rows, D] and 1 or more")
    # Autocast would find the neighbours in bfloat16, which cannot tell near rows apart.
    with torch.autocast(cls.device.type, enabled=False):
        rows = F.normalize(cls.float(), dim=-1, eps=_LENGTH_EPS)
        groups = len(rows) // group
        parts = [rows[: groups * group].unflatten(0, (groups, group)), rows[groups * group :].unsqueeze(0)]
        found = [_nearest(part) for part in parts if part.shape[0] and part.shape[1] > 1]
        # The empty piece keeps the result on the graph when nothing is found, so that backward works all the same.
        return torch.cat([*found, rows[:0].sum(dim=-1)])


def koleo_loss(cls: Tensor, group: int, eps: float = 1e-8) -> Tensor:
    """The mean over rows of -log(distance to the nearest other row of its group).

    Of one global view: the caller loops over views, or two views of one image would be each other's neighbours.
    Where rows of several ranks are gathered, the loss is that of the gathered rows.

    Args:
        cls: floating [n, D], the student's CLS tokens before the projection head, any dtype.
        group: consecutive rows that are compared with one another, 1 or more; the last group may be smaller.
        eps: added to a squared distance.

    Returns:
        float32 scalar, between -log 2 and -log(eps) / 2. A row that is alone in its group counts as 0, so that the sum
        over rows adds up however they are split at multiples of `group`; with nothing to compare the loss is 0, with
        gradients that are 0.

    Raises:
        TypeError, ValueError: as `nearest_squared`.
    """
    squared = nearest_squared(cls, group)
    return -0.5 * (squared + eps).log().sum() / max(1, len(cls))


def _nearest(rows: Tensor) -> Tensor:
    """Unit rows [groups, g, D] -> squared distances [groups * g]."""
    with torch.no_grad():
        # By distance, in float64: cosines of rows that nearly coincide are all 1 in float32.
        wide = rows.double()
        nearness = wide @ wide.mT - 0.5 * wide.square().sum(dim=-1).unsqueeze(-2)
        nearness.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
        nearest = nearness.argmax(dim=-1, keepdim=True)
    # From the difference, not as 2 - 2 cos, which is all rounding error for rows that nearly coincide.
    return (rows - rows.gather(1, nearest.expand_as(rows))).square().sum(dim=-1).flatten()
