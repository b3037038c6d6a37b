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
    """

    metric: type[Any]
    config: type[Config]
    primary: str
    higher: bool

    def better(self, figure: float, best: float | None) -> bool:
        """Whether a figure beats the best so far (None: there is none). NaN beats nothing and is beaten by all."""
        if math.isnan(figure):
            return False
        if best is None or math.isnan(best):
            return True
        return figure > best if self.higher else figure < best


METRICS: dict[str, TaskMetric] = {
    "pose": TaskMetric(PoseMetric, PoseMetricConfig, "ap", higher=True),
    "segmentation": TaskMetric(SegmentationMetric, SegmentationMetricConfig, "miou", higher=True),
    "normal": TaskMetric(NormalMetric, NormalMetricConfig, "mean_deg", higher=False),
    "pointmap": TaskMetric(PointmapMetric, PointmapMetricConfig, "l2", higher=False),
    "albedo": TaskMetric(AlbedoMetric, AlbedoMetricConfig, "mae", higher=False),
}
