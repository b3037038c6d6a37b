"""Albedo: differences of linear RGB in 0 to 1, over all pixels of all pictures.

Differences from the released evaluator: it guesses the range (255 if the first batch has a value over 1.5), here values
are in 0 to 1 and a truth beyond that is an error; its SSIM is `ssim_masked` here. Like it, we do not clamp predictions.
Its validation letterboxes the picture, but stretches the prediction, bars included, to the size of the labels, which is
right for 3:4 pictures only: here both have to be in the picture's own pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curation.config import Config
from eval.metrics.base import Array, State, chosen, dense_pair, load_config, same_config
from eval.metrics.ssim import ssim_sums
from eval.metrics.sums import Sums

_FLOOR = 1e-12
_QUANTITIES = (
    "pictures", "pixels", "absolute", "square", "psnr", "si_absolute", "si_square", "channel_absolute",
    "channel_square", "gradient", "pairs", "ssim", "windows", "ssim_masked", "windows_masked",
)  # fmt: skip


class AlbedoMetricConfig(Config):
    """Nothing to choose: the definitions are fixed."""


def _psnr(mean_square: float) -> float:
    return -10.0 * math.log10(max(mean_square, _FLOOR))


def _scales(prediction: Array, truth: Array) -> tuple[float, NDArray[np.float64]]:
    """The factors of 0 or more that bring the prediction nearest to the truth: one for all channels, one for each."""
    top, below = (prediction * truth).sum(axis=0), (prediction * prediction).sum(axis=0)
    by_channel = np.divide(top, below, out=np.ones(3), where=below > 0)
    overall = float(top.sum() / below.sum()) if below.sum() > 0 else 1.0
    return max(overall, 0.0), np.maximum(by_channel, 0.0)


def _gradient(difference: Array, counted: NDArray[np.bool_]) -> tuple[float, int]:
    """Sum over pairs of neighbours that both count of the channel mean of |change of the difference|, and the pairs.

    `difference` is float64 [3, H, W], 0 where it does not count.
    """
    total, pairs = 0.0, 0
    for axis in (0, 1):
        both = counted[1:] & counted[:-1] if axis == 0 else counted[:, 1:] & counted[:, :-1]
        pairs += int(np.count_nonzero(both))
        for plane in difference:
            change = np.diff(plane, axis=axis)
            total += float(np.abs(change, out=change).sum(where=both)) / 3
    return total, pairs


class AlbedoMetric:
    """Sums of differences."""

    def __init__(self, config: AlbedoMetricConfig | None = None) -> None:
        self.config = config or AlbedoMetricConfig()
        self._sums = Sums(_QUANTITIES)

    def update(self, prediction: Any, truth: Any, mask: Any = None) -> None:
        """Take in a picture.

        Args:
            prediction: float [H, W, 3], linear RGB, not clamped here.
            truth: float [H, W, 3], linear RGB in 0 to 1; pixels where it is not finite do not count.
            mask: bool [H, W] of pixels that count; None: all.

        Raises:
            ValueError: shapes differ, a truth that counts is not in 0 to 1, or a prediction that counts is not finite.
        """
        prediction, truth, counted = dense_pair(prediction, truth, mask)
        true = chosen(truth, counted).astype(np.float64)
        if not len(true):
            return
        if true.min() < 0 or true.max() > 1:
            raise ValueError(
                f"the truth has values of {true.min():g} to {true.max():g}, must be 0 to 1; divide by 255?"
            )
        given = chosen(prediction, counted).astype(np.float64)
        add = self._sums.add
        error = given - true
        mean_square = float(np.square(error).sum()) / 3
        add("pictures", 1)
        add("pixels", len(true))
        add("absolute", float(np.abs(error).sum()) / 3)
        add("square", mean_square)
        add("psnr", _psnr(mean_square / len(true)))
        overall, by_channel = _scales(given, true)
        for name, factors in (("si", np.full(3, overall)), ("channel", by_channel)):
            scaled = given * factors - true
            add(f"{name}_absolute", float(np.abs(scaled).sum()) / 3)
            add(f"{name}_square", float(np.square(scaled).sum()) / 3)
        whole = [np.where(counted, picture.transpose(2, 0, 1), 0).astype(np.float64) for picture in (prediction, truth)]
        total, pairs = _gradient(whole[0] - whole[1], counted)
        add("gradient", total)
        add("pairs", pairs)
        for name, (similarity, windows) in zip(("", "_masked"), ssim_sums(whole[0], whole[1], counted), strict=True):
            add(f"ssim{name}", similarity)
            add(f"windows{name}", windows)

    def merge(self, other: AlbedoMetric) -> None:
        """Add another's sums."""
        same_config(self.config, other.config)
        self._sums.merge(other._sums)

    def state(self) -> State:
        """config, and sums (text [15])."""
        return {"config": self.config.model_dump_json(), "sums": self._sums.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> AlbedoMetric:
        """The metric of a state."""
        metric = cls(load_config(AlbedoMetricConfig, state))
        metric._sums.load(state["sums"])
        return metric

    def compute(self) -> dict[str, float]:
        """The figures; errors are means over the channels.

        mae, rmse: over all pixels. psnr: decibels, from the mean square over all pixels, at most 120;
        psnr_picture: mean over the pictures of each one's own.
        grad_l1: mean |forward difference of the prediction - of the truth| over the pairs of neighbours, in x and y,
        that both count.
        ssim: mean over the 11 x 11 Gaussian windows that the mask holds as a whole (scikit-image's, but for the mask);
        NaN where the mask is too thin for any. ssim_masked: moments weighted by the mask (released definition).
        si_mae, si_rmse: after one factor a picture, by least squares; channel_mae, channel_rmse: after one factor a
        picture and channel, so that a cast of colour costs nothing.

        Raises:
            ValueError: no pixel counted.
        """
        sums = self._sums
        if not sums.value("pixels"):
            raise ValueError("no pixel has an albedo that counts: there is nothing to measure")
        return {
            "mae": sums.mean("absolute", "pixels"),
            "rmse": sums.mean("square", "pixels") ** 0.5,
            "psnr": _psnr(sums.mean("square", "pixels")),
            "psnr_picture": sums.mean("psnr", "pictures"),
            "grad_l1": sums.mean("gradient", "pairs"),
            "ssim": sums.mean("ssim", "windows"),
            "ssim_masked": sums.mean("ssim_masked", "windows_masked"),
            "si_mae": sums.mean("si_absolute", "pixels"),
            "si_rmse": sums.mean("si_square", "pixels") ** 0.5,
            "channel_mae": sums.mean("channel_absolute", "pixels"),
            "channel_rmse": sums.mean("channel_square", "pixels") ** 0.5,
        }
