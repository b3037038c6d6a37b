"""Structural similarity (Wang et al. 2004) with an 11 x 11 Gaussian window, over all windows or those of a mask."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from eval.metrics.base import Array

RADIUS = 5
SIGMA = 1.5
_KERNEL = cv2.getGaussianKernel(2 * RADIUS + 1, SIGMA, cv2.CV_64F)


def _blur(plane: Array) -> NDArray[np.float64]:
    """Gaussian window sums of float64 [H, W]; outside is 0."""
    return np.asarray(cv2.sepFilter2D(plane, cv2.CV_64F, _KERNEL, _KERNEL, borderType=cv2.BORDER_CONSTANT))


def _similarity(moments: list[Array], data_range: float) -> NDArray[np.float64]:
    a, b, aa, bb, ab = moments
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    product, squares = a * b, a * a + b * b
    top = (2 * product + c1) * (2 * (ab - product) + c2)
    result: NDArray[np.float64] = top / ((squares + c1) * (aa + bb - squares + c2))
    return result


def ssim_sums(
    prediction: Array, truth: Array, mask: NDArray[np.bool_], data_range: float = 1.0
) -> tuple[tuple[float, int], tuple[float, int]]:
    """Sums over windows of the channel mean of SSIM, and how many windows, for two definitions.

    Args:
        prediction: float64 [C, H, W], finite.
        truth: float64 [C, H, W], finite.
        mask: bool [H, W].
        data_range: of the values.

    Returns:
        (sum, windows) over the windows that lie in the mask as a whole; with a full mask this is scikit-image's
        `structural_similarity(gaussian_weights=True, sigma=1.5, use_sample_covariance=False)`; and
        (sum, windows) with moments weighted by the mask, over the pixels around which more than half of the window's
        weight is in the mask (the released definition, with zeros outside of the picture).
    """
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return (0.0, 0), (0.0, 0)
    # What lies further than a window from the mask changes nothing.
    area = tuple(slice(max(int(ends[0]) - RADIUS, 0), int(ends[-1]) + RADIUS + 1) for ends in (rows, columns))
    inside = mask[area].astype(np.float64)
    # cv2.erode takes what is outside of the picture as part of the mask, so the border is taken off by hand.
    window = np.ones((2 * RADIUS + 1,) * 2, dtype=np.uint8)
    padded = np.pad(mask[area].astype(np.uint8), RADIUS)
    whole = cv2.erode(padded, window)[RADIUS:-RADIUS, RADIUS:-RADIUS] > 0
    weight = _blur(inside)
    # Where the window is whole, its weight is 1 and both definitions are the same.
    cut = (weight > 0.5) & ~whole
    weights = weight[cut]
    full = part = 0.0
    for planes in zip(prediction, truth, strict=True):
        a, b = (np.where(mask[area], plane[area], 0.0) for plane in planes)
        moments = [_blur(product) for product in (a, b, a * a, b * b, a * b)]
        full += float(_similarity(moments, data_range).sum(where=whole))
        part += float(_similarity([moment[cut] / weights for moment in moments], data_range).sum())
    channels, windows = len(truth), int(whole.sum())
    return (full / channels, windows), ((full + part) / channels, windows + len(weights))
