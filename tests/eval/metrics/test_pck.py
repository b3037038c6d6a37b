from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from eval.metrics.pck import count, lengths, pair, pair_owned


def test_pairs_have_the_highest_sum() -> None:
    similarity = np.random.Generator(np.random.Philox(key=1)).random((4, 3))
    best = max(sum(similarity[p, n] for n, p in enumerate(order)) for order in permutations(range(4), 3))
    pairs = pair(similarity)
    assert sum(similarity[prediction, person] for person, prediction in pairs.items()) == pytest.approx(best)
    assert pair(np.zeros((0, 3))) == {}


def test_owned_predictions_go_to_their_owner() -> None:
    assert pair_owned(np.array([1, 1, 0, 1]), np.array([0.2, 0.7, 0.1, 0.7]), 3) == {1: 1, 0: 2}
    with pytest.raises(ValueError, match="must be 0 to 0"):
        pair_owned(np.array([1]), np.array([0.2]), 1)


def test_lengths_of_boxes_and_heads() -> None:
    truth = np.array([[[0, 0, 1], [4, 7, 2], [99, 99, 0]], [[0, 0, 1], [9, 9, 0], [9, 9, 0]]])
    boxes = np.array([[0, 0, 10, 30], [0, 0, 20, 5]])
    assert lengths(truth, boxes, (0, 1, 2)).tolist() == [[30, 20], [7, 0]]
    assert lengths(truth, boxes, ()).tolist() == [[30, 20], [0, 0]]


def test_counts_are_strict_and_by_group() -> None:
    distance = np.array([[0.0, 1.0, 4.9], [np.inf] * 3])
    labelled = np.array([[True] * 3, [True, True, False]])
    sizes = np.array([[10.0, 10.0], [5.0, 0.0]])
    correct, total = count(distance, labelled, sizes, (0.1, 0.5), [np.arange(3), np.array([1, 2])])
    assert correct.tolist() == [[[1, 0], [3, 2]], [[1, 0], [2, 1]]]
    assert total.tolist() == [[5, 3], [3, 2]]
