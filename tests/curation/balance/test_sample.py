"""Exactly as many rows of a cell as its quota says, the same ones whatever the order of the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.balance import pick_rows
from curation.mixing import id_keys

IDS = [np.random.default_rng(row).bytes(16).hex() for row in range(3000)]


def keys(n: int, seed: int = 0) -> np.ndarray:
    return id_keys(pa.array(IDS[:n], pa.string()), seed)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60), st.sampled_from(["random", "nearest", "farthest"]))
def test_quotas_are_met_whatever_the_order(seed: int, n: int, pick: str) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 6, n)
    quotas = rng.integers(0, np.bincount(cells, minlength=6) + 1)
    cosines = rng.integers(-2, 3, n) / 2  # ties
    cosines[rng.random(n) < 0.2] = np.nan
    names = keys(n)
    mask = pick_rows(cells, quotas, names, pick, cosines)
    assert np.array_equal(np.bincount(cells[mask], minlength=6), quotas)
    order = rng.permutation(n)
    assert np.array_equal(pick_rows(cells[order], quotas, names[order], pick, cosines[order]), mask[order])


def test_nearest_and_farthest_take_the_ends_and_rows_without_cosine_last() -> None:
    cells, cosines = np.zeros(5, int), np.array([0.5, np.nan, 0.9, -0.2, 0.7])
    assert np.flatnonzero(pick_rows(cells, [2], keys(5), "nearest", cosines)).tolist() == [2, 4]
    assert np.flatnonzero(pick_rows(cells, [2], keys(5), "farthest", cosines)).tolist() == [0, 3]
    for pick in ("nearest", "farthest"):
        assert not pick_rows(cells, [4], keys(5), pick, cosines)[1]


def test_ties_go_by_key() -> None:
    cells, cosines = np.zeros(4, int), np.array([0.0, -0.0, 0.0, -0.0])
    assert np.flatnonzero(pick_rows(cells, [2], [9, 3, 1, 7], "nearest", cosines)).tolist() == [1, 2]
    # A second column of keys decides where the first is equal.
    assert np.flatnonzero(pick_rows(cells, [1], [[5, 9], [5, 3], [6, 0], [5, 4]])).tolist() == [1]


def test_random_is_uniform_and_follows_the_seed() -> None:
    cells = np.zeros(3000, int)
    masks = [pick_rows(cells, [1000], keys(3000, seed)) for seed in range(30)]
    often = np.sum(masks, axis=0)
    # 30 draws of a third: ten, give or take four standard deviations of 2.6.
    assert 0 <= often.min() <= 3
    assert 17 <= often.max() <= 22
    assert abs(often[:1500].sum() - 15_000) < 600


def test_a_larger_quota_keeps_what_a_smaller_one_picked() -> None:
    cells = np.arange(300) % 3
    small, large = (pick_rows(cells, [size] * 3, keys(300)) for size in (10, 40))
    assert (large | ~small).all()


def test_no_rows_and_empty_cells() -> None:
    assert pick_rows([], [0, 0], []).tolist() == []
    assert pick_rows([1, 1], [0, 1], [4, 3]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (([0, 0], [3], [1, 2]), "cell 0 has 2 rows and a quota of 3"),
        (([0, 2], [1, 1], [1, 2]), "cell 2 has no quota"),
        (([0, -1], [1], [1, 2]), "got -1"),
        (([0, 0], [1], [1]), "one per row"),
        (([0, 0], [1], [1, 2], "nearest"), "needs the cosines"),
        (([0, 0], [1], [1, 2], "nearest", [0.5]), "one per row"),
        (([0, 0], [1], [1, 2], "median"), '"farthest"'),
    ],
)
def test_bad_input_is_an_error(arguments, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        pick_rows(*arguments)
