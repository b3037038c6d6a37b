"""Matching of predictions with truths, and average precision, by the rules of the COCO evaluator."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eval.metrics.base import Array

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)
"""As the COCO evaluators round them: 0.7 here is a little more than 7 of 10, which they take for not reached."""


def match(
    similarity: Array, ignored: NDArray[np.bool_], crowd: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Give every prediction, best first, the most similar truth that is free, for all thresholds and settings at once.

    A truth that is ignored (a crowd, no labelled keypoints, another size) is taken only where no other reaches the
    threshold; its prediction counts neither as right nor as wrong. A crowd can be taken again.

    Args:
        similarity: [S, m, n] for S settings, predictions in order of falling score.
        ignored: [S, n].
        crowd: [n].

    Returns:
        matched: [m, S, T], T = 10 thresholds; to_ignored: [m, S, T], matched with an ignored truth.
    """
    settings, predictions, truths = similarity.shape
    matched = np.zeros((predictions, settings, len(THRESHOLDS)), dtype=np.bool_)
    to_ignored = np.zeros_like(matched)
    if not truths:
        return matched, to_ignored
    free = np.ones((settings, len(THRESHOLDS), truths), dtype=np.bool_)
    needed = np.minimum(THRESHOLDS, 1 - 1e-10)[:, None]
    skipped: Array = np.expand_dims(ignored, 1)
    any_ignored = bool(ignored.any())
    # Of equally similar truths the last one is taken: argmax finds the first, of the reversed.
    backwards = similarity[:, :, None, ::-1]
    for number in range(predictions):
        enough: Array = free & (similarity[:, number, None] >= needed)
        regular: Array = enough & ~skipped if any_ignored else enough
        found: Array = np.any(regular, axis=2)
        candidates: Array = regular
        if any_ignored:
            candidates = np.where(found[..., None], regular, enough)
            to_ignored[number] = np.any(enough, axis=2) & ~found
            found = np.any(enough, axis=2)
        matched[number] = found
        if not found.any():
            continue
        ranked = np.where(candidates[..., ::-1], backwards[:, number], -1.0)
        taken = truths - 1 - ranked.argmax(axis=2)
        setting, threshold = np.nonzero(found)
        chosen = taken[setting, threshold]
        free[setting, threshold, chosen] = crowd[chosen]
    return matched, to_ignored


def precision_recall(
    right: NDArray[np.bool_], counted: NDArray[np.bool_], truths: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average precision (mean of the interpolated precision at 101 recalls) and the highest recall.

    Args:
        right: [n, T], predictions of all pictures in order of falling score.
        counted: [n, T], whether a prediction counts.
        truths: number that count.

    Returns:
        float64 [T] each; NaN without truths.
    """
    if not truths:
        return np.full(right.shape[1], math.nan), np.full(right.shape[1], math.nan)
    hits = np.cumsum(right & counted, axis=0, dtype=np.float64)
    given = np.cumsum(counted, axis=0, dtype=np.float64)
    if not len(hits):
        return np.zeros(right.shape[1]), np.zeros(right.shape[1])
    recall = hits / truths
    precision = hits / (given + np.spacing(1))
    envelope = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    average = np.zeros(right.shape[1])
    for threshold in range(right.shape[1]):
        at = np.searchsorted(recall[:, threshold], RECALLS, side="left")
        reached = at < len(recall)
        average[threshold] = envelope[at[reached], threshold].sum() / len(RECALLS)
    return average, recall[-1]
