"""Searching bucket by bucket, in any partition, finds what comparing every two rows finds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import hamming_distance, hamming_pairs
from curation.dedup.bands import BLOCK, band_keys, band_links, plan_bands
from curation.dedup.links import Kind, Links
from curation.dedup.stars import resolve_links

Found = dict[tuple[int, int, int], list[float]]


def search(hashes: np.ndarray, mirrored: np.ndarray | None, rows: np.ndarray, radius: int, partitions: int) -> Links:
    """What a driver does: records to buckets, buckets to partitions, each partition alone."""
    values, others, numbers, flipped = hashes, None, rows, None
    if mirrored is not None:
        values, others = np.concatenate([hashes, mirrored]), np.concatenate([mirrored, hashes])
        numbers, flipped = np.concatenate([rows, rows]), np.repeat([False, True], len(rows))
    bands = plan_bands(hashes, radius)
    parts = []
    for band, mask in enumerate(bands):
        home = band_keys(values, mask) % np.uint64(partitions)
        for partition in range(partitions):
            here = np.flatnonzero(home == partition)
            opposite = None if others is None else others[here]
            turned = None if flipped is None else flipped[here]
            parts.extend(band_links(values[here], opposite, numbers[here], turned, band, bands, radius))
    assert all(0 < len(part) <= BLOCK for part in parts)
    return Links.concat(parts)


def found(links: Links) -> Found:
    pairs: Found = {}
    for kind, a, b, value in zip(
        *(column.tolist() for column in (links.kind, links.a, links.b, links.value)), strict=True
    ):
        assert a < b
        pairs.setdefault((kind, a, b), []).append(value)
    return pairs


def expected(hashes: np.ndarray, mirrored: np.ndarray | None, rows: np.ndarray, radius: int) -> Found:
    """Links of groups, by comparing every two groups."""
    groups: dict[tuple[int, int], list[int]] = {}
    other = hashes if mirrored is None else mirrored
    for value, opposite, row in zip(hashes.tolist(), other.tolist(), rows.tolist(), strict=True):
        groups.setdefault((value, opposite), []).append(row)
    wanted: Found = {}
    named = sorted((min(members), key) for key, members in groups.items())
    for name, key in named:
        for row in groups[key]:
            if row != name and row >= 0:
                wanted[Kind.SAME_HASH, name, row] = [0.0]
    for at, (a, (value, opposite)) in enumerate(named):
        for b, (second, second_opposite) in named[at + 1 :]:
            distances = [(value ^ second).bit_count()]
            if mirrored is not None:
                distances += [(value ^ second_opposite).bit_count(), (opposite ^ second).bit_count()]
            if b >= 0 and min(distances) <= radius:
                wanted[Kind.NEAR_HASH, a, b] = [float(min(distances))]
    return wanted


near_hashes = st.tuples(
    st.sampled_from([0, 2**64 - 1, 0x0F0F_3C3C_AAAA_1234]), st.sets(st.integers(0, 63), max_size=5)
).map(lambda item: item[0] ^ sum(1 << bit for bit in item[1]))
pools = st.lists(st.tuples(near_hashes, near_hashes), max_size=25)
numbering = st.permutations(range(-6, 25))


@given(pools, numbering, st.integers(0, 8), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_union_equals_brute_force(pool: list, numbers: list[int], radius: int, partitions: int) -> None:
    hashes = np.array([value for value, _ in pool], dtype=np.uint64)
    rows = np.array(numbers[: len(pool)], dtype=np.int64)
    # Exactly one value for each pair of groups: each pair is reported once.
    assert found(search(hashes, None, rows, radius, partitions)) == expected(hashes, None, rows, radius)


@given(pools, numbering, st.integers(0, 8), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_union_equals_brute_force_with_mirrored_pictures(
    pool: list, numbers: list[int], radius: int, partitions: int
) -> None:
    hashes = np.array([value for value, _ in pool], dtype=np.uint64)
    mirrored = np.array([value for _, value in pool], dtype=np.uint64)
    rows = np.array(numbers[: len(pool)], dtype=np.int64)
    links = found(search(hashes, mirrored, rows, radius, partitions))
    assert {pair: [min(values)] for pair, values in links.items()} == expected(hashes, mirrored, rows, radius)


def biased(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.packbits(rng.random((n, 64)) < 0.1, axis=1).view(np.uint64).ravel()


def planted(rng: np.random.Generator, n: int) -> np.ndarray:
    base = rng.integers(0, 2**64, n, dtype=np.uint64)
    copies = base[: n // 4].copy()
    for _ in range(5):
        copies ^= np.uint64(1) << rng.integers(0, 64, len(copies), dtype=np.uint64)
    return np.concatenate([base, copies, base[: n // 10]])


def cube(rng: np.random.Generator, n: int) -> np.ndarray:
    """All in one bucket of all bands but those of the 13 bits that vary."""
    return rng.integers(0, 1 << 13, n, dtype=np.uint64) << np.uint64(20)


@pytest.mark.parametrize("radius", [0, 1, 4, 8])
@pytest.mark.parametrize("pool", [biased, planted, cube])
def test_equals_the_search_in_memory(
    pool: Callable[[np.random.Generator, int], np.ndarray], radius: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Large buckets are joined again from 4096 rows on; 300 makes that happen at this size.
    monkeypatch.setattr("curation.dedup.banding._REJOIN", 300)
    hashes = pool(np.random.default_rng(radius), 800 if pool is cube else 2000)
    distinct, first = np.unique(hashes, return_index=True)
    pairs = hamming_pairs(distinct, radius)
    links = search(hashes, None, np.arange(len(hashes)), radius, 3)
    near = links.take(links.kind == Kind.NEAR_HASH)
    by_ends = np.lexsort((near.b, near.a))
    ends = np.sort(first[pairs], axis=1)
    by_rows = np.lexsort((ends[:, 1], ends[:, 0]))
    np.testing.assert_array_equal(np.stack([near.a, near.b], axis=1)[by_ends], ends[by_rows])
    np.testing.assert_array_equal(near.value, hamming_distance(hashes[near.a], hashes[near.b]))
    same = links.take(links.kind == Kind.SAME_HASH)
    assert len(same) == len(hashes) - len(distinct)
    np.testing.assert_array_equal(hashes[same.a], hashes[same.b])
    assert np.isin(same.a, first).all()


def test_one_giant_bucket_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curation.dedup.banding.BLOCK", 1 << 14)
    monkeypatch.setattr("curation.dedup.bands.BLOCK", 1 << 14)
    # All values of 14 bits agree on the first band, and have 4 million pairs.
    hashes = np.arange(1 << 14, dtype=np.uint64)
    bands = (0xFFFF_FFFF_0000_0000, 0x0000_0000_FF00_0000, 0x0000_0000_00FF_F000, 0x0000_0000_0000_0FFF)
    tracemalloc.start()
    total = 0
    for part in band_links(hashes, None, np.arange(1 << 14), None, 0, bands, 3):
        assert len(part) <= 1 << 14
        total += len(part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == (1 << 14) * (comb(14, 1) + comb(14, 2) + comb(14, 3)) // 2
    # The links alone, held at once, would be 21 bytes each: 81 MB.
    assert peak < 20e6


def test_a_million_equal_hashes_are_one_group() -> None:
    rows = np.arange(1_000_000)[::-1].copy()
    total = 0
    for part in band_links(np.full(1_000_000, 7, dtype=np.uint64), None, rows, None, 0, plan_bands([], 4), 4):
        assert (part.a == 0).all()
        assert len(part) <= BLOCK
        assert set(part.kind.tolist()) == {Kind.SAME_HASH}
        total += len(part)
    assert total == 999_999


def test_many_mirrored_hashes_of_one_hash_come_in_blocks() -> None:
    n = 2000
    hashes, others = np.zeros(n, dtype=np.uint64), np.arange(n, dtype=np.uint64) << np.uint64(20)
    total = 0
    for part in band_links(hashes, others, np.arange(n), np.zeros(n, bool), 0, plan_bands(hashes, 4), 4):
        assert len(part) <= BLOCK
        assert (part.value == 0).all()
        total += len(part)
    assert total == n * (n - 1) // 2


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("radius", [0, 4])
def test_tiny_inputs_have_no_links(n: int, radius: int) -> None:
    hashes = np.full(n, 3, dtype=np.uint64)
    # A symmetric picture is not its own duplicate.
    for mirrored in (None, hashes):
        assert len(search(hashes, mirrored, np.arange(n), radius, 2)) == 0


def test_rows_of_an_earlier_corpus_are_not_linked_to_each_other() -> None:
    hashes = np.array([0, 0, 1, 3, 0, 1], dtype=np.uint64)
    rows = np.array([-1, -2, -3, -4, 8, 9])
    links = search(hashes, None, rows, 2, 1)
    assert found(links) == {(Kind.SAME_HASH, -2, 8): [0.0], (Kind.SAME_HASH, -3, 9): [0.0]}
    stars = resolve_links(links, np.sort(rows), np.arange(6))
    assert stars.row.tolist() == [8, 9]
    assert stars.keeper.tolist() == [-2, -3]


@given(pools, numbering, st.integers(0, 4))
@settings(deadline=None, max_examples=40)
def test_an_earlier_corpus_drops_the_rows_that_it_should(pool: list, numbers: list[int], radius: int) -> None:
    hashes = np.array([value for value, _ in pool], dtype=np.uint64)
    rows = np.array(numbers[: len(pool)], dtype=np.int64)
    nodes = np.sort(rows)
    a, b = np.triu_indices(len(rows), 1)
    distance = hamming_distance(hashes[a], hashes[b])
    every = Links.of(Kind.NEAR_HASH, rows[a], rows[b], distance).take(distance <= radius)
    stars = resolve_links(search(hashes, None, rows, radius, 3), nodes, nodes)
    assert stars.row.tolist() == resolve_links(every, nodes, nodes).row.tolist()
    of_row = dict(zip(rows.tolist(), hashes.tolist(), strict=True))
    for row, keeper, value in zip(stars.row.tolist(), stars.keeper.tolist(), stars.value.tolist(), strict=True):
        assert (of_row[row] ^ of_row[keeper]).bit_count() == value <= radius


@pytest.mark.parametrize("radius", range(9))
def test_bands_cover_all_bits_once_and_are_equally_good(radius: int) -> None:
    rng = np.random.default_rng(0)
    # The upper half of the bits says almost nothing.
    sample = rng.integers(0, 2**32, 5000, dtype=np.uint64)
    sample[:50] |= np.uint64(0xFFFF_FFFF_0000_0000)
    bands = plan_bands(sample, radius)
    assert len(bands) == radius + 1
    assert sum(bands) == 2**64 - 1
    assert sum(mask.bit_count() for mask in bands) == 64
    varying = [(mask & 0xFFFF_FFFF).bit_count() for mask in bands]
    assert max(varying) - min(varying) <= 1
    assert plan_bands(rng.permutation(sample), radius) == bands


def test_keys_are_equal_exactly_where_the_band_is_and_spread_over_partitions() -> None:
    values = np.arange(1 << 16, dtype=np.uint64)
    keys = band_keys(values, 0x0FFF)
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(keys, band_keys(values & np.uint64(0x0FFF), 0x0FFF))
    assert len(np.unique(keys)) == 1 << 12
    sizes = np.bincount((np.unique(keys) % np.uint64(16)).astype(int), minlength=16)
    assert 180 < sizes.min() <= sizes.max() < 340
    flat = {int(band_keys([np.uint64(0)], mask)[0]) % 1024 for mask in plan_bands([], 8)}
    assert len(flat) > 5


BANDS = plan_bands([], 1)
ONE, ROW, FLIP = np.zeros(1, np.uint64), np.zeros(1, np.int64), np.zeros(1, bool)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ONE, None, ROW, None, 0, BANDS, 9), "radius must be"),
        ((ONE, None, ROW, None, 2, BANDS, 1), r"band must be 0\.\.1"),
        ((ONE, None, ROW, None, 0, BANDS, 2), "needs 3 disjoint bands"),
        ((ONE, None, ROW, None, 0, (1, 2**64 - 1), 1), "needs 2 disjoint bands"),
        ((ONE, None, ROW, None, 0, (1, 2), 1), "cover all 64 bits"),
        ((ONE, ONE, ROW, None, 0, BANDS, 1), "both others and flipped"),
        ((ONE, None, ROW, FLIP, 0, BANDS, 1), "both others and flipped"),
        ((ONE, ONE, ROW, ROW, 0, BANDS, 1), "flipped int64"),
        ((ONE, np.zeros(2, np.uint64), ROW, FLIP, 0, BANDS, 1), "of shape"),
        ((ONE, None, np.zeros(2, np.int64), None, 0, BANDS, 1), "rows must be int64"),
        ((ONE, None, np.zeros(1), None, 0, BANDS, 1), "rows must be int64"),
        ((ROW, None, ROW, None, 0, BANDS, 1), "uint64"),
    ],
)
def test_bad_input_is_refused_at_once(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        band_links(*arguments)
