"""Duplicates of a whole run: the same verdicts as resolving every pair one by one, without making every pair."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.dedup import exact_duplicates, hamming_distance, hamming_pairs, near_duplicates, survivors

rows = st.lists(
    st.tuples(
        st.sampled_from([0, 0xFFFF_0000_1234_5678]),
        st.sets(st.integers(0, 9), max_size=5),
        st.sampled_from([0.0, 1.0, 2.0, float("nan")]),
        st.booleans(),
    ),
    max_size=40,
)


def unpack(values: list) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    hashes = np.array([base ^ sum(1 << bit for bit in bits) for base, bits, _, _ in values], dtype=np.uint64)
    quality = np.array([item[2] for item in values])
    ids = [f"{(row * 37) % 101:03d}" for row in range(len(values))]
    return hashes, quality, ids, np.array([item[3] for item in values], dtype=bool)


@given(rows, st.integers(0, 8), st.sampled_from([0, 1, 5, 1 << 20]))
def test_equals_survivors_of_all_pairs(values: list, radius: int, max_held_pairs: int) -> None:
    hashes, quality, ids, _ = unpack(values)
    result = near_duplicates(hashes, quality, ids, radius, max_held_pairs=max_held_pairs)
    expected = survivors(hamming_pairs(hashes, radius), quality, ids)
    assert result.keeper.tolist() == expected.tolist()
    dropped = expected >= 0
    assert result.distance[dropped].tolist() == hamming_distance(hashes[dropped], hashes[expected[dropped]]).tolist()
    assert (result.distance[~dropped] == -1).all()


@given(rows, st.integers(0, 8))
def test_excluded_rows_take_no_part(values: list, radius: int) -> None:
    hashes, quality, ids, exclude = unpack(values)
    result = near_duplicates(hashes, quality, ids, radius, exclude=exclude)
    pairs = hamming_pairs(hashes, radius)
    pairs = pairs[~exclude[pairs].any(axis=1)]
    assert result.keeper.tolist() == survivors(pairs, quality, ids).tolist()


def test_equals_survivors_of_all_pairs_when_banding_is_used() -> None:
    rng = np.random.default_rng(2)
    base = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    copies = base[rng.integers(0, 3000, 3000)].copy()
    for _ in range(4):
        copies ^= np.uint64(1) << rng.integers(0, 64, 3000, dtype=np.uint64)
    hashes = np.concatenate([base, base[:500], copies])
    quality = rng.integers(0, 50, len(hashes)).astype(float)
    ids = rng.permutation(len(hashes))
    expected = survivors(hamming_pairs(hashes, 4), quality, ids)
    for max_held_pairs in (100, 1 << 20):
        result = near_duplicates(hashes, quality, ids, 4, max_held_pairs=max_held_pairs)
        np.testing.assert_array_equal(result.keeper, expected)


def test_a_million_equal_pictures_leave_one() -> None:
    n = 1_000_000
    result = near_duplicates(np.full(n, 7, dtype=np.uint64), np.arange(n) % 1000, np.arange(n), 4)
    assert (result.keeper < 0).sum() == 1
    assert result.keeper[0] == 999
    assert result.distance[0] == 0


def test_types_of_the_result() -> None:
    result = near_duplicates(np.array([0, 1, 2**40 - 1], dtype=np.uint64), [1, 2, 3], ["a", "b", "c"], 1)
    assert result.keeper.dtype == np.int64
    assert result.distance.dtype == np.int16
    assert result.keeper.tolist() == [1, -1, -1]
    assert result.distance.tolist() == [1, -1, -1]


def test_bad_masks_are_refused() -> None:
    with pytest.raises(ValueError, match="exclude must be a bool array"):
        near_duplicates(np.zeros(2, dtype=np.uint64), [1, 2], ["a", "b"], 1, exclude=[0, 1])


def test_lengths_must_match() -> None:
    with pytest.raises(ValueError, match="one entry per row"):
        near_duplicates(np.zeros(3, dtype=np.uint64), [1, 2], ["a", "b"], 1)
    with pytest.raises(ValueError, match="one entry per row"):
        exact_duplicates(["x"], [1, 2], ["a", "b"])


hashes = ["x", "y", None, "x", "y", "x", None]


@pytest.mark.parametrize(
    "column",
    [
        hashes,
        pa.array(hashes),
        pa.chunked_array([hashes[:3], hashes[3:]]),
        pa.array(hashes).dictionary_encode(),
        [None if value is None else value.encode() for value in hashes],
        np.array(hashes, dtype=object),
    ],
)
def test_exact_duplicates_keep_the_best_and_ignore_missing_hashes(column: object) -> None:
    keeper = exact_duplicates(column, [1, 5, 9, 3, 5, 2, 9], list("abcdefg"))  # type: ignore[arg-type]
    assert keeper.tolist() == [3, -1, -1, -1, 1, 3, -1]


def test_exact_duplicates_leave_out_excluded_rows() -> None:
    keeper = exact_duplicates(["x", "x", "x"], [3, 2, 1], list("abc"), exclude=[True, False, False])
    assert keeper.tolist() == [-1, -1, 1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_exact_duplicates_equal_the_naive_rule(values: list[tuple[int, int]]) -> None:
    ids = [(row * 37) % 101 for row in range(len(values))]
    keeper = exact_duplicates(
        pa.array([value for value, _ in values], pa.int64()), [quality for _, quality in values], ids
    )
    for row, (value, _) in enumerate(values):
        same = [other for other in range(len(values)) if values[other][0] == value]
        best = min(same, key=lambda other: (-values[other][1], ids[other]))
        assert keeper[row] == (-1 if best == row else best)
