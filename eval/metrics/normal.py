"""Surface normals: the angle between the predicted and the true direction, in degrees, over all pixels of all pictures.

Differences from the released evaluator: shares are 0 to 1 there percent; its median is the centre of a bin of 0.5
degrees, ours of 0.001; its angle is the arc cosine of a float32 dot product, which is off by up to 0.03 degrees near 0,
ours is the arc tangent of cross over dot product in float64. Its validation letterboxes the picture, but stretches the
prediction, bars included, to the size of the labels, which is right for 3:4 pictures only: here both have to be in the
picture's own pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.config import Config
from eval.metrics.base import Array, State, as_array, chosen, dense_pair, load_config, same_config
from eval.metrics.sums import Sums

LIMITS = (5.0, 11.25, 22.5, 30.0)
"""Degrees of the shares (released evaluator; all but 5 are usual since Eigen & Fergus 2015)."""
BINS_PER_DEGREE = 1000
_SHORTEST = 1e-6
_PIECE = 1 << 13


class NormalMetricConfig(Config):
    """Nothing to choose: the definitions are fixed."""


def angles(prediction: Array, truth: Array) -> NDArray[np.float64]:
    """Angles between vectors of any length, in degrees 0 to 180.

    Args:
        prediction: float [n, 3]; shorter than 1e-6 has no direction and counts as 90 degrees (as in the release).
        truth: float [n, 3], longer than 1e-6.

    Returns:
        float64 [n].
    """
    result = np.empty(len(truth))
    # In pieces that fit in the processor's cache.
    for start in range(0, len(truth), _PIECE):
        piece = slice(start, start + _PIECE)
        px, py, pz = prediction[piece].T.astype(np.float64, order="C")
        tx, ty, tz = truth[piece].T.astype(np.float64, order="C")
        cross = np.sqrt((py * tz - pz * ty) ** 2 + (pz * tx - px * tz) ** 2 + (px * ty - py * tx) ** 2)
        angle = np.degrees(np.arctan2(cross, px * tx + py * ty + pz * tz))
        angle[px * px + py * py + pz * pz < _SHORTEST**2] = 90.0
        result[piece] = angle
    return result


class NormalMetric:
    """Sums of angles, counts within the limits and a histogram of 0.001 degrees.

    Attributes:
        histogram: int64 [180000]; an angle of 180 falls in the last bin.
    """

    def __init__(self, config: NormalMetricConfig | None = None) -> None:
        self.config = config or NormalMetricConfig()
        self._sums = Sums(["pixels", "angle", "square", *map(str, LIMITS)])
        self.histogram: NDArray[np.int64] = np.zeros(180 * BINS_PER_DEGREE, dtype=np.int64)

    def update(self, prediction: Any, truth: Any, mask: Any = None) -> None:
        """Take in a picture.

        Args:
            prediction: float [H, W, 3], of any length.
            truth: float [H, W, 3]; pixels where it is not finite or shorter than 1e-6 do not count.
            mask: bool [H, W] of pixels that count; None: all.

        Raises:
            ValueError: shapes differ, or a prediction that counts is not finite.
        """
        prediction, truth, counted = dense_pair(prediction, truth, mask)
        counted &= np.einsum("hwc,hwc->hw", truth, truth) >= _SHORTEST**2
        measured = angles(chosen(prediction, counted), chosen(truth, counted))
        if not measured.size:
            return
        self._sums.add("pixels", measured.size)
        self._sums.add("angle", float(measured.sum()))
        self._sums.add("square", float(measured @ measured))
        for limit in LIMITS:
            self._sums.add(str(limit), int((measured < limit).sum()))
        bins = np.minimum((measured * BINS_PER_DEGREE).astype(np.int64), len(self.histogram) - 1)
        self.histogram += np.bincount(bins, minlength=len(self.histogram))

    def merge(self, other: NormalMetric) -> None:
        """Add another's sums."""
        same_config(self.config, other.config)
        self._sums.merge(other._sums)
        self.histogram += other.histogram

    def state(self) -> State:
        """config, sums, and the occupied bins of the histogram with their counts (int64)."""
        bins = np.flatnonzero(self.histogram)
        return {
            "config": self.config.model_dump_json(),
            "sums": self._sums.state(),
            "bins": bins,
            "counts": self.histogram[bins],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> NormalMetric:
        """The metric of a state."""
        metric = cls(load_config(NormalMetricConfig, state))
        metric._sums.load(state["sums"])
        bins = as_array(state["bins"], "bins", (None,), np.int64)
        metric.histogram[bins] = as_array(state["counts"], "counts", bins.shape, np.int64)
        return metric

    def compute(self) -> dict[str, float]:
        """The figures.

        mean_deg, rmse_deg: of the angle over all pixels (not per picture), exact.
        median_deg: the lower median, exact to 0.0005 degrees (the centre of the bin of 0.001 that holds it: no exact
        median of a stream fits in bounded memory).
        within_5, within_11.25, within_22.5, within_30: share of pixels with a smaller angle, exact.

        Raises:
            ValueError: no pixel counted.
        """
        pixels = int(self._sums.value("pixels"))
        if not pixels:
            raise ValueError("no pixel has a normal that counts: there is nothing to measure")
        middle = int(np.searchsorted(np.cumsum(self.histogram), (pixels + 1) // 2))
        figures = {
            "mean_deg": self._sums.mean("angle", "pixels"),
            "median_deg": (middle + 0.5) / BINS_PER_DEGREE,
            "rmse_deg": self._sums.mean("square", "pixels") ** 0.5,
        }
        return figures | {f"within_{limit:g}": self._sums.mean(str(limit), "pixels") for limit in LIMITS}
