"""Metrics of the five human tasks: streaming, exact, mergeable over ranks. `METRICS` names them by task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from curation.config import Config
from eval.metrics.albedo import AlbedoMetric, AlbedoMetricConfig
from eval.metrics.base import Metric, State
from eval.metrics.normal import NormalMetric, NormalMetricConfig
from eval.metrics.pointmap import PointmapMetric, PointmapMetricConfig
from eval.metrics.pose import PoseMetric, PoseMetricConfig
from eval.metrics.segmentation import SegmentationMetric, SegmentationMetricConfig

__all__ = [
    "METRICS", "AlbedoMetric", "AlbedoMetricConfig", "Metric", "NormalMetric", "NormalMetricConfig", "PointmapMetric",
    "PointmapMetricConfig", "PoseMetric", "PoseMetricConfig", "SegmentationMetric", "SegmentationMetricConfig",
    "State", "TaskMetric",
]  # fmt: skip


@dataclass(frozen=True)
class TaskMetric:
    """How a task is measured, and which figure chooses its best checkpoint.

    Attributes:
        metric: class, made from a configuration.
        config: class of the configuration; all but pose's has defaults for everything.
        primary: name in `compute()` of the figure that counts.
        higher: whether more of it is better.
        shown: figures that a short table has beside it.
    """

    metric: type[Any]
    config: type[Config]
    primary: str
    higher: bool
    shown: tuple[str, ...]

    def better(self, figure: float, best: float | None) -> bool:
        """Whether a figure beats the best so far (None: there is none). NaN beats nothing and is beaten by all."""
        if math.isnan(figure):
            return False
        if best is None or math.isnan(best):
            return True
        return figure > best if self.higher else figure < best


METRICS: dict[str, TaskMetric] = {
    "pose": TaskMetric(PoseMetric, PoseMetricConfig, "ap", True, ("ap50", "ap75", "ar", "pck_box@0.05", "pck_box@0.2")),
    "segmentation": TaskMetric(SegmentationMetric, SegmentationMetricConfig, "miou", True, ("macc", "aacc", "mdice")),
    "normal": TaskMetric(
        NormalMetric, NormalMetricConfig, "mean_deg", False, ("median_deg", "within_5", "within_11.25", "within_30")
    ),
    "pointmap": TaskMetric(
        PointmapMetric, PointmapMetricConfig, "l2", False, ("rmse", "scale/l2", "canonical/l2", "absrel", "delta1")
    ),
    "albedo": TaskMetric(AlbedoMetric, AlbedoMetricConfig, "mae", False, ("rmse", "psnr", "ssim", "si_mae")),
}
