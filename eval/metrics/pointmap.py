"""Pointmaps: distances between predicted and true points, over all pixels of all pictures.

Four variants, by prefix:

- none: both maps in metres, as they are; the predicted scale counts.
- `scale/`: the prediction times one number a picture (`config.alignment`).
- `shift/`: the prediction times one number plus one vector a picture, by weighted least squares.
- `canonical/`: both maps as if taken with a focal length of 768 pixels in the 768 x 1024 frame. The predicted scale
  plays no part. This is all that the released evaluator measures, and calls plain l2_mean and so on; its centimetres
  are canonical too. It also compares normals from a Sobel filter over the maps: give such normals to `NormalMetric`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from curation.config import Config
from eval.metrics.base import Array, State, chosen, dense_pair, load_config, same_config
from eval.metrics.sums import Sums

VARIANTS = ("", "scale/", "shift/", "canonical/")
NEAR = (0.05, 0.10, 0.20)
"""Metres of the shares within a distance (released evaluator: 5, 10 and 20 cm)."""
_QUANTITIES = (
    "pixels",
    "l2",
    "square",
    "x",
    "y",
    "z",
    "absrel",
    "d1",
    "d2",
    "d3",
    *(f"near{limit:g}" for limit in NEAR),
)

_PIECE = 1 << 13


class PointmapMetricConfig(Config):
    """How the aligned variants align."""

    alignment: Literal["least_squares", "median"] = Field(
        "least_squares",
        description="scale of `scale/`: weighted least squares over x, y and z, or median true depth over median "
        "predicted depth",
    )
    weights: Literal["uniform", "inverse_depth"] = Field(
        "uniform", description="weight of a pixel in least squares: 1, or 1 over the square of its true depth"
    )


def fit_scale(prediction: Array, truth: Array, weights: Array) -> float:
    """The s of 0 or more that minimises sum of weights |s prediction - truth|^2.

    Args:
        prediction: float64 [n, 3].
        truth: float64 [n, 3].
        weights: float64 [n].

    Returns:
        s; 1 if the prediction is all 0, so that every s is as good.
    """
    top = below = 0.0
    for given, true in zip(prediction.T, truth.T, strict=True):
        weighted = given * weights
        top += float(weighted @ true)
        below += float(weighted @ given)
    return max(top / below, 0.0) if below > 0 else 1.0


def fit_scale_shift(prediction: Array, truth: Array, weights: Array) -> tuple[float, NDArray[np.float64]]:
    """The s of 0 or more and the vector that minimise sum of weights |s prediction + vector - truth|^2.

    Args:
        as `fit_scale`, with a positive sum of weights.

    Returns:
        s, float64 [3].
    """
    share = weights / weights.sum()
    centre_p, centre_t = (np.array([share @ axis for axis in points.T]) for points in (prediction, truth))
    scale = fit_scale((prediction.T - centre_p[:, None]).T, (truth.T - centre_t[:, None]).T, weights)
    return scale, centre_t - scale * centre_p


def _errors(prediction: Array, truth: Array) -> list[float]:
    """Totals of `_QUANTITIES` over float64 [3, n]."""
    error = np.abs(prediction - truth)
    square = np.square(error).sum(axis=0)
    distance = np.sqrt(square)
    depth, predicted = truth[2], prediction[2]
    low, high = np.minimum(predicted, depth), np.maximum(predicted, depth)
    # Without a division, so that depths of 0 or less (behind the camera) are never near.
    near = [np.count_nonzero((high < 1.25**power * low) & (low > 0)) for power in (1, 2, 3)]
    return [
        len(depth), distance.sum(), square.sum(), *error.sum(axis=1), (error[2] / depth).sum(), *near,
        *(np.count_nonzero(distance < limit) for limit in NEAR),
    ]  # fmt: skip


class PointmapMetric:
    """Sums of distances of each variant."""

    def __init__(self, config: PointmapMetricConfig | None = None) -> None:
        self.config = config or PointmapMetricConfig()
        self._sums = {variant: Sums(_QUANTITIES) for variant in VARIANTS}

    def update(
        self,
        prediction: Any,
        truth: Any,
        mask: Any = None,
        scale: float | None = None,
        true_scale: float | None = None,
    ) -> None:
        """Take in a picture.

        Args:
            prediction: float [H, W, 3], metres (the canonical map of the model over the scale it predicts).
            truth: float [H, W, 3], metres; pixels with a depth of 0 or less, or not finite, do not count.
            mask: bool [H, W] of pixels that count; None: all.
            scale: the scale that the model predicts, for the variant `canonical/`; None leaves that out.
            true_scale: 768 over the focal length in pixels of the 768 x 1024 frame; comes with `scale`.

        Raises:
            ValueError: shapes differ, a prediction that counts is not finite, or only one scale is given or positive.
        """
        prediction, truth, counted = dense_pair(prediction, truth, mask)
        if (scale is None) != (true_scale is None):
            raise ValueError("give scale and true_scale together, or neither")
        for name, number in (("scale", scale), ("true_scale", true_scale)):
            if number is not None and not 0 < number < np.inf:
                raise ValueError(f"{name} is {number}, must be positive and finite")
        counted &= truth[..., 2] > 0
        # One array an axis, side by side in memory: every step below runs along the pixels.
        given, true = (chosen(points, counted).T.astype(np.float64, order="C").T for points in (prediction, truth))
        if not len(true):
            return
        weights = np.ones(len(true)) if self.config.weights == "uniform" else true[:, 2] ** -2.0
        self._measure("", given, true)
        self._measure("scale/", given, true, self._scale(given, true, weights))
        self._measure("shift/", given, true, *fit_scale_shift(given, true, weights))
        if scale is not None and true_scale is not None:
            self._measure("canonical/", given, true * true_scale, scale)

    def _scale(self, prediction: Array, truth: Array, weights: Array) -> float:
        if self.config.alignment == "least_squares":
            return fit_scale(prediction, truth, weights)
        depth = float(np.median(prediction[:, 2]))
        # A map that lies behind the camera cannot be scaled into place: it stays and scores badly.
        return float(np.median(truth[:, 2])) / depth if depth > 0 else 1.0

    def _measure(
        self, variant: str, prediction: Array, truth: Array, factor: float = 1.0, shift: Array | None = None
    ) -> None:
        totals = np.zeros(len(_QUANTITIES))
        # In pieces that fit in the processor's cache.
        for start in range(0, len(truth), _PIECE):
            piece = slice(start, start + _PIECE)
            moved = prediction[piece].T * factor
            if shift is not None:
                moved += shift[:, None]
            totals += _errors(moved, truth[piece].T)
        for name, total in zip(_QUANTITIES, totals, strict=True):
            self._sums[variant].add(name, float(total))

    def merge(self, other: PointmapMetric) -> None:
        """Add another's sums."""
        same_config(self.config, other.config)
        for variant, sums in self._sums.items():
            sums.merge(other._sums[variant])

    def state(self) -> State:
        """config, and sums (text [4, 13])."""
        sums = np.stack([sums.state() for sums in self._sums.values()])
        return {"config": self.config.model_dump_json(), "sums": sums}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PointmapMetric:
        """The metric of a state."""
        metric = cls(load_config(PointmapMetricConfig, state))
        for sums, row in zip(metric._sums.values(), state["sums"], strict=True):
            sums.load(row)
        return metric

    def compute(self) -> dict[str, float]:
        """The figures of each variant that was measured, its prefix in front.

        l2: mean distance; rmse: root of the mean squared distance; x_mae, y_mae, z_mae: mean absolute error by axis
        (all in metres, canonical ones in canonical metres).
        absrel: mean |z - true z| / true z. delta1, delta2, delta3: share of pixels with max(z / true, true / z) below
        1.25, 1.25^2, 1.25^3. within_0.05, within_0.1, within_0.2: share of pixels nearer than that many metres.

        Raises:
            ValueError: no pixel counted.
        """
        figures: dict[str, float] = {}
        for prefix, sums in self._sums.items():
            if not sums.value("pixels"):
                continue
            named = {"l2": "l2", "x_mae": "x", "y_mae": "y", "z_mae": "z", "absrel": "absrel"}
            named |= {f"delta{power}": f"d{power}" for power in (1, 2, 3)}
            named |= {f"within_{limit:g}": f"near{limit:g}" for limit in NEAR}
            figures |= {f"{prefix}{name}": sums.mean(total, "pixels") for name, total in named.items()}
            figures[f"{prefix}rmse"] = sums.mean("square", "pixels") ** 0.5
        if not figures:
            raise ValueError("no pixel has a depth that counts: there is nothing to measure")
        return figures
