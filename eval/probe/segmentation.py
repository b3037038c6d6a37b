"""Segmentation scores from sums that add up over batches and processes."""

from __future__ import annotations

import torch
from torch import Tensor

from eval.probe.labelled import IGNORE


class Confusion:
    """Counts of (true class, predicted class).

    Attributes:
        counts: int64 [C, C].
    """

    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros(classes, classes, dtype=torch.int64)

    def add(self, labels: Tensor, predicted: Tensor) -> None:
        """Count pixels.

        Args:
            labels: uint8, any shape; `IGNORE` counts nowhere.
            predicted: int64 of the same shape, 0 to C - 1.
        """
        if labels.shape != predicted.shape:
            raise ValueError(f"labels are {list(labels.shape)}, predictions {list(predicted.shape)}; give equal shapes")
        known = labels != IGNORE
        classes = len(self.counts)
        pairs = labels[known].long() * classes + predicted[known]
        self.counts += torch.bincount(pairs.flatten(), minlength=classes**2).view(classes, classes).cpu()

    def merge(self, other: Confusion) -> None:
        """Add another's counts."""
        self.counts += other.counts

    def iou(self) -> Tensor:
        """Intersection over union of each class, float64 [C]; NaN where a class is not present in the labels."""
        hits = self.counts.diagonal().double()
        truth, predicted = self.counts.sum(1).double(), self.counts.sum(0).double()
        return torch.where(truth > 0, hits / (truth + predicted - hits), torch.nan)

    def metrics(self) -> dict[str, float]:
        """Shares of 0 to 1: miou and macc (means over the classes present in the labels), accuracy (of pixels).

        Raises:
            ValueError: no pixel was counted.
        """
        total = int(self.counts.sum())
        if not total:
            raise ValueError("no pixel has a label: there is nothing to score")
        truth = self.counts.sum(1)
        present = truth > 0
        recall = self.counts.diagonal()[present].double() / truth[present]
        return {
            "miou": float(self.iou()[present].mean()),
            "macc": float(recall.mean()),
            "accuracy": int(self.counts.diagonal().sum()) / total,
        }


class ShareErrors:
    """How much of the variance of patches' class shares is explained.

    Finer than classes of pixels: a weak read-out says the commonest class everywhere.

    Attributes:
        sums: float64 [4, C]: weights, shares, squares of shares, squared errors.
    """

    def __init__(self, classes: int) -> None:
        self.sums = torch.zeros(4, classes, dtype=torch.float64)

    def add(self, shares: Tensor, predicted: Tensor, weights: Tensor) -> None:
        """Take in patches: true and predicted shares [n, C], weights [n] (0 leaves a patch out)."""
        true, factor = shares.double(), weights.double()[:, None]
        errors = (predicted.double() - true).square()
        parts = (torch.ones_like(true), true, true.square(), errors)
        self.sums += torch.stack([(factor * part).sum(0) for part in parts]).cpu()

    def merge(self, other: ShareErrors) -> None:
        """Add another's sums."""
        self.sums += other.sums

    def r2(self) -> float:
        """Mean over the classes whose shares vary of 1 - error / variance: 1 is perfect, 0 what the classes' means of
        these very patches would reach, below 0 worse. NaN where no share varies."""
        total, first, second, errors = self.sums
        variance = second - first.square() / total.clamp_min(1e-300)
        varies = variance > 1e-9 * second
        return float((1 - errors[varies] / variance[varies]).mean())
