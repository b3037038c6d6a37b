"""Shares are exact, and the places of each corpus are numbered through."""

from __future__ import annotations

import numpy as np
import pytest

from training.data.interleave import LONGEST_PERIOD, Interleave, slot_counts


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([1], [1]),
        ([2, 2], [1, 1]),
        ([0.1, 0.2, 0.7], [1, 2, 7]),
        ([300e6, 100e6], [3, 1]),
        ([0.25, 1.5], [1, 6]),
    ],
)
def test_weights_as_they_are_written(weights: list[float], counts: list[int]) -> None:
    assert slot_counts(weights) == counts


def test_weights_without_a_short_period_are_rounded() -> None:
    counts = slot_counts([np.pi, np.e, 1.0])
    assert sum(counts) == LONGEST_PERIOD
    exact = np.array([np.pi, np.e, 1.0]) / (np.pi + np.e + 1) * LONGEST_PERIOD
    assert np.abs(counts - exact).max() < 1


def test_places_of_each_corpus_are_numbered_through() -> None:
    mixed = Interleave([3, 1.5, 2])
    corpora, inner = mixed.split(np.arange(1000))
    for corpus in range(3):
        np.testing.assert_array_equal(inner[corpora == corpus], np.arange((corpora == corpus).sum()))
    for position in (0, 1, 12, 13, 14, 999):
        assert mixed.before(position) == [int((corpora[:position] == corpus).sum()) for corpus in range(3)]


def test_corpora_take_turns() -> None:
    corpora, _ = Interleave([1, 1]).split(np.arange(10))
    assert (np.diff(corpora) != 0).all()
