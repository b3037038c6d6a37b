"""The pools of hashes hold what they promise, and are the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from eval.benchmarks.hash_pools import KINDS, all_equal, low_entropy, one_bucket, planted, planted_pairs, skewed


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_is_a_function_of_its_size_and_seed(kind: str) -> None:
    values = KINDS[kind](1000)
    assert values.dtype == np.uint64
    assert values.shape == (1000,)
    assert np.array_equal(values, KINDS[kind](1000))
    assert not np.array_equal(values, KINDS[kind](1000, seed=1))
    assert KINDS[kind](0).shape == (0,)


def test_planted_copies_have_every_number_of_bits_equally_often() -> None:
    values, pairs = planted_pairs(20_000)
    assert np.array_equal(values, planted(20_000))
    assert pairs.shape == (2000, 2)
    assert len(np.unique(pairs[:, 0])) == 2000
    assert not np.isin(pairs[:, 1], pairs[:, 0]).any()  # an original is no copy
    counts = np.bincount(np.bitwise_count(values[pairs[:, 0]] ^ values[pairs[:, 1]]))
    assert len(counts) == 5
    assert all(330 < count < 470 for count in counts)


def test_the_skewed_pool_has_the_shares_it_promises() -> None:
    values = skewed(10_000)
    assert 0.25 < 1 - len(np.unique(values)) / len(values) < 0.35


def test_the_nasty_pools_vary_in_few_bits() -> None:
    def spread(values: np.ndarray) -> np.ndarray:
        bits = np.unpackbits(values.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
        return np.minimum(bits, 1 - bits)

    bucket = spread(one_bucket(5000))
    assert ((bucket == 0).sum(), (bucket > 0.45).sum()) == (40, 24)
    flat = spread(low_entropy(5000))
    assert flat.min() > 0.04
    assert flat.max() < 0.08
    assert spread(all_equal(5000)).max() == 0
