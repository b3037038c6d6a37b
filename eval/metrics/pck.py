"""Percentage of correct keypoints: which prediction is whose, lengths of reference, counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from eval.metrics.base import Array

UNITS = ("box", "head")


def pair(similarity: Array) -> dict[int, int]:
    """Which prediction goes with each truth so that the sum of similarities is highest.

    Args:
        similarity: [m, n].

    Returns:
        truth -> prediction, min(m, n) of them.
    """
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    return dict(zip(columns.tolist(), rows.tolist(), strict=True))


def pair_owned(owners: Array, scores: Array, people: int) -> dict[int, int]:
    """The best scored prediction that is meant for each truth; of equal ones the first.

    Args:
        owners: whole numbers [m].
        scores: [m].
        people: number of truths, n.

    Returns:
        truth -> prediction.

    Raises:
        ValueError: an owner is not 0 to n - 1.
    """
    if len(owners) and not 0 <= owners.min() <= owners.max() < people:
        raise ValueError(f"owners are {owners.min()} to {owners.max()}, must be 0 to {people - 1}")
    pairs: dict[int, int] = {}
    for prediction in np.argsort(-scores, kind="stable").tolist():
        pairs.setdefault(int(owners[prediction]), prediction)
    return pairs


def lengths(truth: Array, boxes: Array, head: Sequence[int]) -> NDArray[np.float64]:
    """Longer sides of people's boxes and of the boxes around the labelled keypoints of their heads.

    Args:
        truth: [n, K, 3].
        boxes: [n, 4], corners.
        head: keypoints.

    Returns:
        float64 [2, n]; 0 where there is no such box (fewer than two keypoints of the head are labelled).
    """
    sizes = np.zeros((2, len(truth)))
    sizes[0] = np.max(boxes[:, 2:] - boxes[:, :2], axis=1, initial=0.0)
    for person, points in enumerate(truth[:, list(head)]):
        known = points[points[:, 2] > 0, :2]
        if len(known) > 1:
            sizes[1, person] = np.ptp(known, axis=0).max()
    return sizes


def count(
    distance: Array, labelled: Array, sizes: Array, limits: Sequence[float], groups: Sequence[Array]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the keypoints nearer than a limit.

    Args:
        distance: [n, K], infinite for people that were not found.
        labelled: bool [n, K].
        sizes: [units, n], 0 leaves a person out.
        limits: in units of sizes.
        groups: indices of keypoints, one array a group.

    Returns:
        correct: int64 [units, limits, groups]; labelled: int64 [units, groups].
    """
    chosen = np.zeros((labelled.shape[1], len(groups)), dtype=np.int64)
    for number, group in enumerate(groups):
        chosen[group, number] = 1
    counted = labelled & (sizes > 0)[:, :, None]
    reach = np.array(limits)[:, None, None] * sizes[:, None, :, None]
    correct = counted[:, None] & (distance < reach)
    return correct.sum(axis=2) @ chosen, counted.sum(axis=1) @ chosen
