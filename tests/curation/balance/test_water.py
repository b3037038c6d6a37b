"""Water-filling gives exactly the budget, as evenly as sizes allow, and treats entries by their keys alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.balance import water as module
from curation.balance import water_fill

SIZES = st.lists(st.integers(0, 12), max_size=14)


def poured(sizes: list[int], budget: int) -> tuple[int, list[int]]:
    """The cap and min(cap, size), by raising the cap one by one."""
    cap = 0
    while cap < max(sizes, default=0) and sum(min(cap + 1, size) for size in sizes) <= budget:
        cap += 1
    return cap, [min(cap, size) for size in sizes]


@settings(max_examples=100, deadline=None)
@given(SIZES, st.integers(0, 150))
def test_the_cap_is_the_largest_and_the_rest_goes_one_each(sizes: list[int], budget: int) -> None:
    result = water_fill(sizes, budget)
    cap, base = poured(sizes, budget)
    extra = result - np.array(base, np.int64)
    assert result.dtype == np.int64
    assert result.sum() == min(budget, sum(sizes))
    assert (result <= sizes).all()
    assert set(extra.tolist()) <= {0, 1}
    assert all(size > cap for size, more in zip(sizes, extra, strict=True) if more)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 20))
def test_no_other_split_is_more_even(sizes: list[int], budget: int) -> None:
    # Over all splits of the same total: the largest sum of a strictly concave utility.
    result = water_fill(sizes, budget)
    grid = np.stack(np.meshgrid(*(np.arange(size + 1) for size in sizes), indexing="ij"), axis=-1).reshape(
        -1, len(sizes)
    )
    splits = grid[grid.sum(axis=1) == result.sum()]
    assert np.isclose(np.sqrt(result).sum(), np.sqrt(splits).sum(axis=1).max())


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(0, 150), st.integers(0, 3))
def test_more_budget_never_takes_away(sizes: list[int], budget: int, seed: int) -> None:
    less, more = water_fill(sizes, budget, seed=seed), water_fill(sizes, budget + 1, seed=seed)
    assert (less <= more).all()


@settings(max_examples=60, deadline=None)
@given(SIZES.flatmap(lambda sizes: st.tuples(st.just(sizes), st.permutations(range(len(sizes))))), st.integers(0, 150))
def test_with_keys_the_order_of_entries_does_not_matter(pair: tuple[list[int], list[int]], budget: int) -> None:
    sizes, order = np.array(pair[0], np.int64), np.array(pair[1], np.int64)
    keys = np.arange(len(sizes)) * 7 - 20
    assert np.array_equal(water_fill(sizes[order], budget, keys[order]), water_fill(sizes, budget, keys)[order])


def test_the_remainder_goes_by_a_seeded_hash_of_the_key_not_by_index() -> None:
    first = water_fill(np.full(1000, 5), 500)
    assert first.sum() == 500
    assert 180 < first[:500].sum() < 320  # not the first 500
    assert np.array_equal(first, water_fill(np.full(1000, 5), 500))
    assert not np.array_equal(first, water_fill(np.full(1000, 5), 500, seed=1))
    # Key 0 has no privilege.
    assert 25 < sum(int(water_fill([9, 9], 1, seed=seed)[0]) for seed in range(100)) < 75


def test_equal_keys_go_by_index() -> None:
    assert water_fill([5, 5, 5, 5], 2, keys=[3, 3, 3, 3]).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("sizes", "budget", "expected"),
    [
        ([], 5, []),
        ([0, 0], 5, [0, 0]),
        ([7], 5, [5]),
        ([7], 0, [0]),
        ([3, 1, 2], 100, [3, 1, 2]),
        ([3, 1, 2], 6, [3, 1, 2]),
        ([1, 100, 100], 21, [1, 10, 10]),
        ([4, 4, 4], 6, [2, 2, 2]),
    ],
)
def test_small_cases(sizes: list[int], budget: int, expected: list[int]) -> None:
    assert water_fill(sizes, budget).tolist() == expected


def test_counts_near_the_limit_of_64_bits_stay_exact() -> None:
    big = 2**63 - 1
    sizes = np.full(1000, big, np.int64)
    assert water_fill(sizes, 1000 * 2**62).tolist() == [2**62] * 1000
    some = water_fill(sizes, 1000 * 2**62 + 3)
    assert sum(some.tolist()) == 1000 * 2**62 + 3
    assert water_fill(sizes, 1000 * big - 1).tolist().count(big - 1) == 1
    assert water_fill(np.array([2**62, 2**62, 5]), 2**62 + 6).tolist()[2] == 5


@pytest.mark.parametrize("kind", ["equal", "zipf", "distinct", "two", "sorted"])
def test_many_blocks_agree_with_sorting(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small blocks and samples: every way through the search for the cap and the remainder.
    monkeypatch.setattr(module, "_BLOCK", 97)
    monkeypatch.setattr(module, "_SAMPLE", 16)
    rng = np.random.default_rng(0)
    sizes = {
        "equal": np.full(3000, 11),
        "zipf": rng.zipf(1.4, 3000).clip(max=10**9),
        "distinct": rng.permutation(3000),
        "two": rng.choice([1, 10**6], 3000),
        "sorted": np.sort(rng.zipf(1.2, 3000).clip(max=2**40)),
    }[kind]
    ascending = np.sort(sizes)
    total = int(sizes.sum())
    for budget in [0, 1, 2999, 3001, total // 3, total // 2, total - 1, total]:
        result = water_fill(sizes, budget)
        filled = np.cumsum(ascending) + ascending * np.arange(2999, -1, -1)
        full = int((filled <= budget).sum())
        cap = (budget - int(ascending[:full].sum())) // (3000 - full) if full < 3000 else int(ascending[-1])
        extra = result - np.minimum(sizes, cap)
        assert result.sum() == budget
        assert set(extra.tolist()) <= {0, 1}
        assert (result <= sizes).all()
        # The blocks and the sample decide the speed only.
        with monkeypatch.context() as patch:
            patch.setattr(module, "_BLOCK", 1 << 20)
            assert np.array_equal(water_fill(sizes, budget), result)


def test_any_integer_type_is_taken_and_inputs_are_left_alone() -> None:
    for dtype in (np.int8, np.uint16, np.int32, np.uint64):
        sizes = np.array([5, 100, 3], dtype)
        assert water_fill(sizes, 20).sum() == 20
        assert sizes.tolist() == [5, 100, 3]


@pytest.mark.parametrize(
    ("sizes", "budget", "keys", "what"),
    [
        ([1, -1], 1, None, "got -1"),
        ([1.5, 2.0], 1, None, "integers"),
        ([True, False], 1, None, "integers"),
        ([[1, 2]], 1, None, "one-dimensional"),
        (np.array([2**63], np.uint64), 1, None, "2\\^63"),
        ([1], -1, None, "budget"),
        ([1], 1.0, None, "budget"),
        ([1], True, None, "budget"),
        ([1, 2], 1, [1], "one per size"),
        ([1, 2], 1, [0.1, 0.2], "keys"),
    ],
)
def test_bad_input_is_an_error(sizes, budget, keys, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        water_fill(sizes, budget, keys)
