"""The pair search finds exactly the pairs that comparing everything finds, whatever the hashes look like."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import hamming_distance, hamming_pairs, hamming_pairs_between, iter_hamming_pairs


def brute(hashes: np.ndarray, radius: int) -> np.ndarray:
    values = [int(value) for value in hashes]
    found = [(i, j) for i, j in combinations(range(len(values)), 2) if (values[i] ^ values[j]).bit_count() <= radius]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def brute_fast(a: np.ndarray, b: np.ndarray, radius: int) -> np.ndarray:
    rows = [np.flatnonzero(np.bitwise_count(value ^ b) <= radius) for value in a]
    return np.stack([np.repeat(np.arange(len(a)), [len(row) for row in rows]), np.concatenate(rows)], axis=1)


def random_hashes(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 2**64, n, dtype=np.uint64)


def flip(rng: np.random.Generator, hashes: np.ndarray, bits: int) -> np.ndarray:
    """Each hash with exactly `bits` different bits flipped."""
    out = hashes.copy()
    for row in range(len(out)):
        for bit in rng.choice(64, bits, replace=False):
            out[row] ^= np.uint64(1) << np.uint64(bit)
    return out


def scatter(rng: np.random.Generator, n: int, bits: int) -> np.ndarray:
    """Hashes in which only `bits` positions vary."""
    hashes = np.zeros(n, dtype=np.uint64)
    for position in rng.choice(64, bits, replace=False):
        hashes |= rng.integers(0, 2, n, dtype=np.uint64) << np.uint64(position)
    return hashes


near_hashes = st.lists(
    st.tuples(st.sampled_from([0, 2**64 - 1, 0x0F0F_3C3C_AAAA_1234]), st.sets(st.integers(0, 63), max_size=6)).map(
        lambda item: item[0] ^ sum(1 << bit for bit in item[1])
    ),
    max_size=60,
).map(lambda values: np.array(values, dtype=np.uint64))


@given(near_hashes, st.integers(0, 8))
def test_equals_brute_force_on_clustered_hashes(hashes: np.ndarray, radius: int) -> None:
    np.testing.assert_array_equal(hamming_pairs(hashes, radius), brute(hashes, radius))


@pytest.mark.parametrize("radius", range(9))
def test_equals_brute_force_when_banding_is_used(radius: int) -> None:
    rng = np.random.default_rng(radius)
    base = random_hashes(rng, 2500)
    inside = flip(rng, base[:200], radius)
    outside = flip(rng, base[200:400], radius + 1)
    hashes = np.concatenate([base, inside, outside])
    pairs = hamming_pairs(hashes, radius)
    expected = brute_fast(hashes, hashes, radius)
    np.testing.assert_array_equal(pairs, expected[expected[:, 0] < expected[:, 1]])
    found = {tuple(pair) for pair in pairs.tolist()}
    assert all((row, 2500 + row) in found for row in range(200))
    assert not any((200 + row, 2700 + row) in found for row in range(200))


@pytest.mark.parametrize(
    ("name", "radius"), [("narrow", 4), ("narrow", 1), ("mixture", 4), ("ball", 4), ("cube", 2), ("biased", 3)]
)
def test_equals_brute_force_on_skewed_buckets(name: str, radius: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Large buckets are joined again from 4096 rows on; 300 makes that happen at a size that brute force can check.
    monkeypatch.setattr("curation.dedup.banding._REJOIN", 300)
    rng = np.random.default_rng(5)
    hashes = {
        "narrow": lambda: scatter(rng, 4000, 30),
        "mixture": lambda: np.concatenate([scatter(rng, 2000, 26), random_hashes(rng, 2000)]),
        "ball": lambda: flip(rng, np.full(1500, 0x123456789ABCDEF0, dtype=np.uint64), 4),
        "cube": lambda: scatter(rng, 3000, 13),
        "biased": lambda: np.packbits(rng.random((3000, 64)) < 0.1, axis=1).view(np.uint64).ravel(),
    }[name]()
    expected = brute_fast(hashes, hashes, radius)
    np.testing.assert_array_equal(hamming_pairs(hashes, radius), expected[expected[:, 0] < expected[:, 1]])


def test_pairs_are_sorted_and_unique() -> None:
    rng = np.random.default_rng(1)
    base = random_hashes(rng, 500)
    pairs = hamming_pairs(np.concatenate([base, base, flip(rng, base, 2)]), 4)
    assert pairs.dtype == np.int64
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert (np.diff(pairs[:, 0] * 1500 + pairs[:, 1]) > 0).all()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_inputs(n: int) -> None:
    pairs = hamming_pairs(np.zeros(n, dtype=np.uint64), 3)
    assert pairs.shape == (max(0, n - 1), 2)


@given(near_hashes, st.integers(0, 8), st.integers(1, 7))
def test_stream_gives_each_pair_once_in_small_blocks(hashes: np.ndarray, radius: int, block: int) -> None:
    blocks = list(iter_hamming_pairs(hashes, radius, block=block))
    assert all(1 <= len(part) <= block for part in blocks)
    pairs = sorted(tuple(pair) for part in blocks for pair in part.tolist())
    assert pairs == [tuple(pair) for pair in brute(hashes, radius).tolist()]


def test_a_million_equal_hashes_stream_in_bounded_blocks() -> None:
    stream = iter_hamming_pairs(np.zeros(1_000_000, dtype=np.uint64), 4, block=1000)
    first = next(stream)
    assert first.shape == (1000, 2)
    assert len({tuple(pair) for pair in first.tolist()}) == 1000


def test_too_many_pairs_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"more than 100 pairs.*iter_hamming_pairs"):
        hamming_pairs(np.zeros(1000, dtype=np.uint64), 4, max_pairs=100)


@pytest.mark.parametrize("radius", [-1, 9])
def test_radius_outside_its_range_is_refused(radius: int) -> None:
    with pytest.raises(ValueError, match=r"radius must be 0\.\.8"):
        hamming_pairs(np.zeros(2, dtype=np.uint64), radius)


@pytest.mark.parametrize("hashes", [np.zeros(3, dtype=np.int64), np.zeros((3, 2), dtype=np.uint64), [0.5, 1.5]])
def test_other_arrays_are_refused(hashes: object) -> None:
    with pytest.raises(ValueError, match="uint64"):
        hamming_pairs(hashes, 4)  # type: ignore[arg-type]


def test_distance_counts_bits() -> None:
    a = np.array([0, 0b1011, 2**64 - 1], dtype=np.uint64)
    assert hamming_distance(a, np.uint64(0)).tolist() == [0, 3, 64]


@given(near_hashes, near_hashes, st.integers(0, 8))
@settings(max_examples=50)
def test_between_equals_brute_force(a: np.ndarray, b: np.ndarray, radius: int) -> None:
    expected = [(i, j) for i in range(len(a)) for j in range(len(b)) if (int(a[i]) ^ int(b[j])).bit_count() <= radius]
    assert [tuple(pair) for pair in hamming_pairs_between(a, b, radius).tolist()] == expected


@pytest.mark.parametrize("radius", [0, 2, 4])
def test_between_equals_brute_force_when_banding_is_used(radius: int) -> None:
    rng = np.random.default_rng(3)
    a = random_hashes(rng, 6000)
    b = np.concatenate(
        [a[:50], flip(rng, a[50:100], radius), flip(rng, a[100:150], radius + 1), random_hashes(rng, 6000)]
    )
    np.testing.assert_array_equal(hamming_pairs_between(a, b, radius), brute_fast(a, b, radius))
