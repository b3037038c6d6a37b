"""The pools of hashes hold what they promise; brute force is an independent account of the same rule."""

from __future__ import annotations

import numpy as np
import pytest

from curation.dedup import near_duplicates
from eval.benchmarks.bench_duplicates import brute_force, skewed, uniform


@pytest.mark.parametrize("kind", [uniform, skewed])
def test_brute_force_agrees_with_banding(kind) -> None:
    hashes = kind(800)
    quality = np.random.default_rng(0).integers(0, 5, 800).astype(float)
    ids = np.arange(800)
    found = near_duplicates(hashes, quality, ids, 4).keeper
    assert np.array_equal(brute_force(hashes, quality, ids, 4), found)
    assert 20 < (found >= 0).sum() < 790


def test_brute_force_keeps_stars() -> None:
    # b is near a and near c; a and c are not near each other.
    hashes = np.array([0b0000, 0b0011, 0b1111], np.uint64)
    assert brute_force(hashes, np.array([3.0, 2.0, 1.0]), np.arange(3), 2).tolist() == [-1, 0, -1]
    assert brute_force(hashes, np.array([1.0, 2.0, 1.0]), np.arange(3), 2).tolist() == [1, -1, 1]


def test_the_pools_have_the_shares_they_promise() -> None:
    values = skewed(10_000)
    assert 0.25 < 1 - len(np.unique(values)) / len(values) < 0.35
    assert len(np.unique(uniform(10_000))) > 9_500
    assert np.array_equal(values, skewed(10_000))
