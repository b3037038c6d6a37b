"""The kernel of Hamming search: all pairs of *distinct* 64-bit values within a radius, exactly, by banding.

Cut the 64 bits into b bands, b > r. A pair that differs in at most r bits differs in at most r bands, so it agrees on
some set of b - r bands. Each such set is a key: C(b, r) sorts put the values that agree on a key side by side, and only
those are compared. More bands give longer keys, hence smaller buckets, and more sorts; `plan` weighs the two from the
number of values and from how much each bit really varies.

Cost of n uniform values: C(b, r) sorts of n, and C(b, r) * n^2 / 2 / 2^(64 (b - r) / b) comparisons. At r = 4 and
n = 10^6 six bands give 15 keys of 64 * 2 / 6 = 21 bits: 15 million sorted entries, and 15 * 10^12 / 2 / 2^21.3 = 2.8
million comparisons, so almost nothing but the sorts; five bands (5 keys of 13 bits) would need 350 million.

Skew: a bucket that stays large is joined again on the bits that its key does not hold, and compared pair by pair only
when those bits do not separate it either (then most of its pairs are within the radius anyway). A pair is reported at
the first key, in order, on which it agrees: once, with no set of seen pairs. Work goes in blocks of `BLOCK`
comparisons, so memory is a few arrays of n whatever the buckets are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
PairBlock = tuple[Indices, Indices]

BLOCK = 1 << 18
"""Comparisons per block: temporaries of a few MB, which stay near the cache."""

ALL_BITS = tuple(range(64))

_TILE = 512
_DENSE = 256  # from this size on a bucket is compared in tiles
_REJOIN = 4096  # from this size on it is worth planning a join of the bucket
_MAX_KEYS = 2000
_SAMPLE = 1 << 15
# Nanoseconds on one core of an AMD EPYC server, NumPy 2.4; only their ratios matter, and only for speed.
_NS_SORT = 90.0
_NS_CANDIDATE = 20.0
_NS_TILE = 2.5
_NS_KEY = 150_000.0
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to join a set of values.

    Attributes:
        bands: one bit mask per band; empty when comparing all pairs is cheaper.
        cost: expected nanoseconds.
    """

    bands: tuple[int, ...]
    cost: float


@cache
def _keys(bands: int, radius: int) -> tuple[tuple[int, ...], ...]:
    return tuple(combinations(range(bands), bands - radius))


def plan(values: Hashes, radius: int, bits: tuple[int, ...] = ALL_BITS, mask: int = 0) -> Plan:
    """Choose the bands for joining `values`.

    Args:
        values: uint64 [n], distinct.
        radius: 1 or more.
        bits: the bits to make bands of.
        mask: only pairs that agree on these bits are wanted.
    """
    n = len(values)
    pairs, cost = (n * n / 2, _NS_TILE * n * n / 2) if not mask else _agreeing(values, np.uint64(mask))
    best = Plan((), cost)
    if n < _DENSE or len(bits) <= radius:
        return best
    agreement = bit_agreement(values[:: max(1, n // _SAMPLE)])
    for count in range(radius + 1, min(len(bits), radius + 12) + 1):
        if comb(count, radius) > _MAX_KEYS:
            break
        bands, entropy = deal(bits, agreement, count)
        keys = np.array(_keys(count, radius))
        candidates = float(pairs * np.exp2(-entropy[keys].sum(axis=1)).sum())
        cost = len(keys) * (_NS_KEY + _NS_SORT * n) + _NS_CANDIDATE * candidates
        if cost < best.cost:
            best = Plan(bands, cost)
    return best


def _agreeing(values: Hashes, mask: np.uint64) -> tuple[float, float]:
    """How many pairs agree on `mask`, and the nanoseconds that comparing all of them takes."""
    keys = np.sort(values & mask)
    lengths = np.diff(np.flatnonzero(keys[1:] != keys[:-1]), prepend=-1, append=len(keys) - 1).astype(np.float64)
    pairs = lengths * (lengths - 1) / 2
    dense = float(pairs[lengths >= _DENSE].sum())
    total = float(pairs.sum())
    return total, _NS_TILE * dense + _NS_CANDIDATE * (total - dense)


def bit_agreement(values: Hashes) -> npt.NDArray[np.float64]:
    """float64 [64]: the chance that two of uint64 [n] agree on a bit, 0.5..1; 1 for no values.

    From exact counts: the same for any order of the values.
    """
    n = len(values)
    ones = np.zeros(64, dtype=np.int64)
    for start in range(0, n, _SAMPLE):
        part = values[start : start + _SAMPLE].astype("<u8")
        ones += np.unpackbits(part.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    share = np.maximum(ones, n - ones) / max(n, 1)
    return share**2 + (1 - share) ** 2


def deal(
    bits: tuple[int, ...], agreement: npt.NDArray[np.float64], count: int
) -> tuple[tuple[int, ...], npt.NDArray[np.float64]]:
    """Split `bits` into `count` bands that separate values about equally well.

    Bits are dealt in order of their entropy, so that this holds even when most of the bits are nearly constant, as in
    the hashes of similar pictures.

    Args:
        bits: at least `count` bits, 0..63.
        agreement: float64 [64], see `bit_agreement`.
        count: 1 or more.

    Returns:
        One bit mask per band, disjoint; and float64 [count], the collision entropy of each band if its bits were
        independent.
    """
    entropy = -np.log2(agreement[list(bits)])
    # By the counts, not by their logarithm, whose last digit differs from one processor to the next.
    best_first = np.argsort(agreement[list(bits)], kind="stable")
    # Deal out there and back (0 1 2 2 1 0 ...), so that no band always gets the better bit.
    turn = np.arange(len(bits)) % (2 * count)
    band_of = np.where(turn < count, turn, 2 * count - 1 - turn)
    masks = [0] * count
    for position, band in zip(best_first.tolist(), band_of.tolist(), strict=True):
        masks[band] |= 1 << bits[position]
    return tuple(masks), np.bincount(band_of, weights=entropy[best_first], minlength=count).astype(np.float64)


def flat_blocks(counts: Indices, block: int) -> Iterator[PairBlock]:
    """Enumerate (owner, local) for owner in 0..n-1 and local in 0..counts[owner]-1, `block` of them at a time."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    begins = ends - counts
    for start in range(0, total, block):
        stop = min(start + block, total)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(begins, stop, side="left"))
        repeats = np.minimum(ends[first:last], stop) - np.maximum(begins[first:last], start)
        owner = np.repeat(np.arange(first, last), repeats)
        yield owner, np.arange(start, stop) - begins[owner]


def join(values: Hashes, radius: int) -> Iterator[PairBlock]:
    """All pairs of `values` within `radius` bits.

    Args:
        values: uint64 [n], distinct.
        radius: 0 or more.

    Yields:
        (i, j), int64 [m] each, of at most `BLOCK` pairs. Each unordered pair comes once; i and j in either order.
    """
    if radius > 0 and len(values) > 1:
        yield from _join(values, radius, ALL_BITS, plan(values, radius))


def join_within(values: Hashes, radius: int, mask: int) -> Iterator[PairBlock]:
    """All pairs of `values` within `radius` bits that agree on every bit of `mask`: the pairs of one band.

    Args:
        values: uint64 [n], distinct.
        radius: 0 or more.
        mask: at least one bit.

    Yields:
        (i, j), as `join`.
    """
    if radius > 0 and len(values) > 1:
        rest = tuple(bit for bit in ALL_BITS if not mask >> bit & 1)
        yield from _join(values, radius, rest, plan(values, radius, rest, mask), mask)


def cross(left: Hashes, right: Hashes, radius: int, triangle: bool = False) -> Iterator[PairBlock]:
    """All pairs (i in left, j in right) within `radius` bits, by comparing every one; with `triangle`, i < j only."""
    for row in range(0, len(left), _TILE):
        for column in range(row if triangle else 0, len(right), _TILE):
            difference = left[row : row + _TILE, None] ^ right[None, column : column + _TILE]
            found = np.flatnonzero(np.bitwise_count(difference) <= radius)
            if len(found):
                i, j = np.divmod(found, difference.shape[1])
                if triangle and row == column:
                    upper = i < j
                    i, j = i[upper], j[upper]
                yield i + row, j + column


def _join(values: Hashes, radius: int, bits: tuple[int, ...], how: Plan, within: int = 0) -> Iterator[PairBlock]:
    """Pairs that agree on the mask `within`, by the bands of `how`, which are made of `bits`."""
    if not how.bands and not within:
        yield from cross(values, values, radius, triangle=True)
        return
    for key in _keys(len(how.bands), radius) if how.bands else ((),):
        mask = np.uint64(within | sum(how.bands[band] for band in key))
        # Bands before the key's last that are not in it: a pair that agrees on one of them was found at an earlier key.
        earlier = [np.uint64(how.bands[band]) for band in range(max(key, default=0)) if band not in key]
        rest = tuple(bit for bit in bits if not int(mask) >> bit & 1)
        for i, j in _bucket_pairs(values, radius, mask, rest):
            difference = values[i] ^ values[j]
            first = (difference & mask) == 0
            for band in earlier:
                first &= (difference & band) != 0
            if first.any():
                yield i[first], j[first]


def _bucket_pairs(values: Hashes, radius: int, mask: np.uint64, rest: tuple[int, ...]) -> Iterator[PairBlock]:
    """Pairs within `radius` that agree on `mask`, and a few that only agree on its hash."""
    n = len(values)
    index_bits = np.uint64(max(1, (n - 1).bit_length()))
    # Sorting one integer that holds the hashed key above the row's index is several times faster than an argsort.
    keys = values & mask
    keys ^= keys >> np.uint64(32)
    keys *= _MULTIPLIER
    keys >>= index_bits
    keys <<= index_bits
    keys |= np.arange(n, dtype=np.uint64)
    keys.sort()
    same = (keys[1:] ^ keys[:-1]) < (np.uint64(1) << index_bits)
    if not same.any():
        return
    edges = np.flatnonzero(np.diff(same, prepend=False, append=False))
    begins, lengths = edges[::2], edges[1::2] - edges[::2] + 1
    index_mask = (np.uint64(1) << index_bits) - np.uint64(1)

    small = lengths < _DENSE
    counts = lengths[small]
    positions = np.repeat(begins[small] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    members = (keys[positions] & index_mask).astype(np.int64)
    member_values = values[members]
    partners = np.repeat(np.cumsum(counts), counts) - np.arange(len(positions)) - 1
    for owner, local in flat_blocks(partners, BLOCK):
        other = owner + 1 + local
        near = np.bitwise_count(member_values[owner] ^ member_values[other]) <= radius
        yield members[owner[near]], members[other[near]]

    for begin, length in zip(begins[~small].tolist(), lengths[~small].tolist(), strict=True):
        bucket = (keys[begin : begin + length] & index_mask).astype(np.int64)
        inside = values[bucket]
        how = plan(inside, radius, rest) if length >= _REJOIN else Plan((), 0.0)
        for i, j in _join(inside, radius, rest, how):
            yield bucket[i], bucket[j]
