"""Segmentation: IoU, Dice and accuracy from one confusion matrix over all pixels of all pictures.

Shares of 0 to 1. Differences from the released evaluator: it gives percent rounded to two decimals, and counts a class
that does not occur as 0 in its means, so its mIoU and mAcc fall when the validation set lacks a class; that is
`miou_all` and `macc_all` here. Both compare labels at the picture's own size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from curation.config import Config
from eval.metrics.base import Array, State, as_array, load_config, same_config


class SegmentationMetricConfig(Config):
    """What is counted."""

    classes: int = Field(29, ge=2, le=65535, description="number of classes (29: the released body parts)")
    names: tuple[str, ...] = Field((), description="names of the classes for the table; empty: their numbers")
    ignore: int = Field(255, ge=0, description="label of pixels that count nowhere (255: released)")

    @model_validator(mode="after")
    def _named(self) -> SegmentationMetricConfig:
        if self.names and (len(self.names) != self.classes or len(set(self.names)) != self.classes):
            raise ValueError(
                f"{len(set(self.names))} different names for {self.classes} classes: give one to each or none"
            )
        if self.ignore < self.classes:
            raise ValueError(f"ignore is {self.ignore}, which is a class; choose {self.classes} or more")
        return self


class SegmentationMetric:
    """Counts of (true class, predicted class).

    Attributes:
        counts: int64 [C, C].
    """

    def __init__(self, config: SegmentationMetricConfig | None = None) -> None:
        self.config = config or SegmentationMetricConfig()
        self.counts: NDArray[np.int64] = np.zeros((self.config.classes,) * 2, dtype=np.int64)

    def update(self, prediction: Any, truth: Any) -> None:
        """Count a picture's pixels.

        Args:
            prediction: whole numbers [H, W], 0 to C - 1 where the truth is a class.
            truth: whole numbers [H, W], 0 to C - 1 or `ignore`.

        Raises:
            ValueError: shapes differ, or a number is not a class.
        """
        truth = as_array(truth, "the truth", (None, None))
        prediction = as_array(prediction, "the prediction", truth.shape)
        counted = truth != self.config.ignore
        if counted.all():
            true, predicted = truth.ravel(), prediction.ravel()
        else:
            true, predicted = truth[counted], prediction[counted]
        if not true.size:
            return
        self._check(true, f"the truth (besides {self.config.ignore}, which is ignored)")
        self._check(predicted, "the prediction")
        classes = self.config.classes
        # Small cells keep the memory traffic, which is all the work, low.
        narrow: Any = np.uint16 if classes**2 <= 65536 else np.int64
        cells = true.astype(narrow)
        cells *= narrow(classes) if classes < 65536 else classes
        cells += predicted.astype(narrow)
        self.counts += np.bincount(cells, minlength=classes**2).reshape(classes, classes)

    def _check(self, values: Array, name: str) -> None:
        if values.dtype.kind not in "iub":
            raise ValueError(f"{name} has type {values.dtype}, must be whole numbers: take the argmax of logits first")
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= self.config.classes:
            raise ValueError(f"{name} has class {low if low < 0 else high}; classes are 0 to {self.config.classes - 1}")

    def merge(self, other: SegmentationMetric) -> None:
        """Add another's counts."""
        same_config(self.config, other.config)
        self.counts += other.counts

    def state(self) -> State:
        """config (JSON text), counts int64 [C, C]."""
        return {"config": self.config.model_dump_json(), "counts": self.counts.copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SegmentationMetric:
        """The metric of a state."""
        metric = cls(load_config(SegmentationMetricConfig, state))
        shape = metric.counts.shape
        metric.counts = as_array(state["counts"], "counts", shape, np.int64).copy()
        return metric

    def per_class(self) -> dict[str, dict[str, float]]:
        """Of each class, by name: iou = I / U, dice = 2 I / (true + predicted), accuracy = I / true (recall),
        precision = I / predicted, each NaN where its divisor is 0, and share of the labelled pixels.
        """
        hits, true, predicted = self._margins()
        total = max(true.sum(), 1)
        columns = {
            "iou": _over(hits, true + predicted - hits),
            "dice": _over(2 * hits, true + predicted),
            "accuracy": _over(hits, true),
            "precision": _over(hits, predicted),
            "share": true / total,
        }
        names = self.config.names or tuple(str(number) for number in range(self.config.classes))
        return {name: {key: float(column[i]) for key, column in columns.items()} for i, name in enumerate(names)}

    def compute(self) -> dict[str, float]:
        """The means, background included.

        miou, mdice, macc: over the classes that occur in the labels. A class that is only predicted costs by the
        pixels it takes from others.
        miou_union, mdice_union: over the classes that occur in the labels or the predictions, so that a class which is
        only predicted counts as 0 (torchmetrics, mmsegmentation).
        miou_all, mdice_all, macc_all: over all classes; what does not occur counts as 0 (the released evaluator).
        aacc: share of labelled pixels that are right.

        Raises:
            ValueError: no pixel was labelled.
        """
        hits, true, predicted = self._margins()
        if not true.sum():
            raise ValueError("no pixel has a label that counts: there is nothing to measure")
        iou, dice, accuracy = (
            _over(hits, true + predicted - hits),
            _over(2 * hits, true + predicted),
            _over(hits, true),
        )
        present, either = true > 0, true + predicted > 0
        return {
            "miou": float(iou[present].mean()),
            "miou_union": float(iou[either].mean()),
            "miou_all": float(np.nan_to_num(iou).mean()),
            "mdice": float(dice[present].mean()),
            "mdice_union": float(dice[either].mean()),
            "mdice_all": float(np.nan_to_num(dice).mean()),
            "macc": float(accuracy[present].mean()),
            "macc_all": float(np.nan_to_num(accuracy).mean()),
            "aacc": float(hits.sum() / true.sum()),
        }

    def _margins(self) -> tuple[Array, Array, Array]:
        return self.counts.diagonal(), self.counts.sum(1), self.counts.sum(0)


def _over(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
