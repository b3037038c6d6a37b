"""Object keypoint similarity (COCO): between predictions and truths, its non-maximum suppression, instance scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eval.metrics.base import Array

# Keypoint distances that are in memory at a time, about 16 MB each array.
_BLOCK = 1 << 21


def extents(keypoints: Array) -> NDArray[np.float64]:
    """Areas of the boxes around all keypoints, in square pixels.

    Args:
        keypoints: [n, K, 2 or more], x and y in pixels.

    Returns:
        float64 [n].
    """
    points = keypoints[..., :2].astype(np.float64)
    area: NDArray[np.float64] = np.prod(points.max(axis=1) - points.min(axis=1), axis=1)
    return area


def instance_scores(
    keypoint_scores: Array, box_scores: Array | None = None, threshold: float = 0.2
) -> NDArray[np.float64]:
    """Score of a person: of the box, times the mean of the keypoint scores over a threshold (released evaluator).

    Args:
        keypoint_scores: [n, K].
        box_scores: [n]; None: 1.
        threshold: keypoints with this score or less do not count (0.2: released).

    Returns:
        float64 [n]; 0 for people without a keypoint over the threshold.
    """
    counted = keypoint_scores > threshold
    total = np.where(counted, keypoint_scores, 0.0).sum(axis=1, dtype=np.float64)
    scores: NDArray[np.float64] = total / np.maximum(counted.sum(axis=1), 1)
    return scores if box_scores is None else scores * box_scores


def oks(
    predicted: Array, truth: Array, areas: Array, boxes: Array, sigmas: Array, groups: Sequence[Array]
) -> NDArray[np.float64]:
    """Similarity of every prediction with every truth, for several groups of keypoints.

    The mean over a truth's labelled keypoints (v > 0) of exp(-d^2 / (2 area (2 sigma)^2)). A truth without labelled
    keypoints is compared through the box of three times its size around its own: d is how far a keypoint lies outside.

    Args:
        predicted: [m, K, 2], pixels.
        truth: [n, K, 3], x, y, v.
        areas: [n], square pixels.
        boxes: [n, 4], corners (x, y, x, y).
        sigmas: [K].
        groups: indices of keypoints, one array a group.

    Returns:
        float64 [groups, m, n].
    """
    scale = 2 * (2 * sigmas) ** 2 * (areas[:, None] + np.spacing(1))
    labelled = truth[..., 2] > 0
    # One matrix product sums all groups: weight of a keypoint for a truth in a group.
    chosen = np.zeros((len(groups), truth.shape[1]), dtype=np.float64)
    for row, group in zip(chosen, groups, strict=True):
        row[group] = 1.0
    counts = labelled.astype(np.float64) @ chosen.T
    far = np.concatenate([2 * boxes[:, :2] - boxes[:, 2:], 2 * boxes[:, 2:] - boxes[:, :2]], axis=1)[:, None]
    bare = counts == 0
    result = np.zeros((len(groups), len(predicted), len(truth)))
    step = max(_BLOCK // max(truth.shape[0] * truth.shape[1], 1), 1)
    for start in range(0, len(predicted), step):
        points = predicted[start : start + step, None]
        square = np.square(points - truth[None, ..., :2]).sum(axis=-1)
        likeness = np.exp(-square / scale)
        likeness[:, ~labelled] = 0.0
        sums = np.einsum("mnk,gk->gmn", likeness, chosen) / np.maximum(counts.T, 1)[:, None]
        if bare.any():
            outside = np.maximum(far[None, ..., :2] - points, 0) + np.maximum(points - far[None, ..., 2:], 0)
            likeness = np.exp(-np.square(outside).sum(axis=-1) / scale)
            loose = np.einsum("mnk,gk->gmn", likeness, chosen) / chosen.sum(axis=1)[:, None, None]
            sums = np.where(bare.T[:, None], loose, sums)
        result[:, start : start + step] = sums
    return result


def oks_nms(keypoints: Array, scores: Array, sigmas: Array, threshold: float = 0.9) -> NDArray[np.int64]:
    """Drop people that are too similar to a better scored one.

    The similarity of two predictions uses all keypoints and the mean of the two areas, which are those of the boxes
    around the keypoints.

    Args:
        keypoints: [n, K, 2 or more], pixels.
        scores: [n].
        sigmas: [K].
        threshold: similarity above which the worse one goes (0.9: released evaluator).

    Returns:
        indices of those kept, best first, int64; equal scores keep their order.
    """
    left = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    points, areas = keypoints[..., :2].astype(np.float64), extents(keypoints)
    kept: list[int] = []
    while len(left):
        best, left = int(left[0]), left[1:]
        kept.append(best)
        square = np.square(points[left] - points[best]).sum(axis=-1)
        mean_area = (areas[left] + areas[best])[:, None] / 2 + np.spacing(1)
        left = left[np.exp(-square / (2 * (2 * sigmas) ** 2 * mean_area)).mean(axis=1) <= threshold]
    return np.array(kept, dtype=np.int64)
