"""The exact linear read-out: least squares with a penalty, from sums that one pass over the patches collects.

With X the features brought to mean 0 and variance 1 (as batch norm does), Y the class shares of the patches less their
means, and n the labelled patches::

    W = argmin 1/n |X W - Y|^2 + l2 |W|^2 = (X'X / n + l2 I)^-1 X'Y / n

Nothing is drawn and nothing is tuned; sums are float64, so that the order of batches changes rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LinearReadout:
    """logits = features W + b.

    Attributes:
        weight: float32 [C, D].
        bias: float32 [C].
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, maps: Tensor) -> Tensor:
        """[b, D, h, w] -> [b, C, h, w]."""
        return (
            torch.einsum("bdhw,cd->bchw", maps, self.weight.to(maps.device)) + self.bias.to(maps.device)[:, None, None]
        )


class RidgeSums:
    """Moments of features and targets over patches; two of them add up.

    Args:
        width: features D.
        targets: columns C of the targets.
        device: of the features.
    """

    def __init__(self, width: int, targets: int, device: torch.device | None = None) -> None:
        self._width = width
        size = 1 + width + targets
        self.sums = torch.zeros(size, size, dtype=torch.float64, device=device)
        """Of (1, features, targets) times its transpose, weighted; float64."""

    def add(self, features: Tensor, targets: Tensor, weights: Tensor) -> None:
        """Take in patches: features [n, D], targets [n, C], weights [n] (0 leaves a patch out)."""
        joined = torch.cat([torch.ones_like(weights)[:, None], features, targets], dim=1).double()
        self.sums += (joined * weights.double()[:, None]).T @ joined

    def merge(self, other: RidgeSums) -> None:
        """Add another's sums."""
        self.sums += other.sums

    def solve(self, l2: float) -> LinearReadout:
        """The read-out.

        Args:
            l2: penalty, above 0: the solution is unique, however many features are alike or constant.

        Raises:
            ValueError: no patch with weight was taken in.
        """
        total = float(self.sums[0, 0])
        if total <= 0:
            raise ValueError("no patch has a label: there is nothing to fit")
        means = self.sums[0, 1:] / total
        covariance = self.sums[1:, 1:] / total - means[:, None] * means
        width = self._width
        variance = covariance.diagonal()[:width]
        # A feature that is constant up to the rounding of the sums has no unit variance to be brought to.
        floor = 1e-12 * (variance + means[:width].square())
        scale = torch.where(variance > floor, variance.clamp_min(1e-300).rsqrt(), 0.0)
        gram = covariance[:width, :width] * scale[:, None] * scale
        gram += l2 * torch.eye(width, dtype=gram.dtype, device=gram.device)
        solved = torch.linalg.solve(gram, covariance[:width, width:] * scale[:, None])
        weight = (solved * scale[:, None]).T
        bias = means[width:] - weight @ means[:width]
        return LinearReadout(weight.float(), bias.float())
