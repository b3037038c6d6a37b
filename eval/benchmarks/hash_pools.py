"""Pools of 64-bit hashes with known near copies, from the easy to the nasty. All are functions of (n, seed)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
PLANTED_BITS = 4
COPIES = 0.1
CONSTANT_BITS = 40
LOW_ENTROPY = 0.06


def planted_pairs(n: int, seed: int = 0) -> tuple[Hashes, Indices]:
    """Random hashes; one row in ten is a copy of one of the others with 0..4 bits flipped, all equally frequent.

    Returns:
        hashes: uint64 [n].
        pairs: int64 [n // 10, 2]: a copy and its original.
    """
    rng = np.random.default_rng((seed, 2))
    values = rng.integers(0, 2**64, n, dtype=np.uint64)
    order = rng.permutation(n)
    copies, originals = order[: int(n * COPIES)], order[int(n * COPIES) :]
    sources = rng.choice(originals, len(copies))
    wanted = rng.integers(0, PLANTED_BITS + 1, len(copies))
    flips = np.zeros(len(copies), np.uint64)
    while len(short := np.flatnonzero(np.bitwise_count(flips) < wanted)):
        flips[short] |= np.uint64(1) << rng.integers(0, 64, len(short), dtype=np.uint64)
    values[copies] = values[sources] ^ flips
    return values, np.stack([copies, sources], axis=1)


def planted(n: int, seed: int = 0) -> Hashes:
    """The hashes of `planted_pairs`. uint64 [n]."""
    return planted_pairs(n, seed)[0]


def skewed(n: int, seed: int = 0) -> Hashes:
    """30 % equal copies of popular hashes, 10 % near copies, 10 % around 16 templates, the rest random. uint64 [n]."""
    rng = np.random.default_rng((seed, 1))
    values = rng.integers(0, 2**64, n, dtype=np.uint64)
    order = rng.permutation(n)
    equal, near, cloud = np.split(order[: n // 2], [n * 3 // 10, n * 4 // 10])
    rest = order[n // 2 :]
    # Zipf: a few pictures are everywhere.
    values[equal] = values[rest[(rng.zipf(1.3, len(equal)) - 1) % len(rest)]]
    values[near] = _flip(rng, values[rng.choice(rest, len(near))], 4)
    values[cloud] = _flip(rng, rng.integers(0, 2**64, 16, dtype=np.uint64)[rng.integers(0, 16, len(cloud))], 12)
    return values


def one_bucket(n: int, seed: int = 0) -> Hashes:
    """All rows agree on 40 bits and are random in the other 24, so that most bands hold one bucket of all. uint64 [n].

    At n = 1,000,000 a row has 770 others within 4 bits: 390 million pairs.
    """
    rng = np.random.default_rng((seed, 3))
    free = rng.permutation(64)[CONSTANT_BITS:].astype(np.uint64)
    drawn = rng.integers(0, 2 ** len(free), n, dtype=np.uint64)
    values = np.full(n, rng.integers(0, 2**64, dtype=np.uint64))
    for place, bit in enumerate(free):
        values ^= (drawn >> np.uint64(place) & np.uint64(1)) << bit
    return values


def low_entropy(n: int, seed: int = 0) -> Hashes:
    """Each bit differs from one template with a chance of 6 %: 3.8 bits on average. uint64 [n].

    Flat pictures: no bit is constant, and none tells much (0.33 of a bit). One pair in seven is within 4 bits.
    """
    rng = np.random.default_rng((seed, 4))
    values = np.full(n, rng.integers(0, 2**64, dtype=np.uint64))
    for bit in range(64):
        values ^= (rng.random(n) < LOW_ENTROPY).astype(np.uint64) << np.uint64(bit)
    return values


def all_equal(n: int, seed: int = 0) -> Hashes:
    """One hash. uint64 [n]."""
    return np.full(n, np.random.default_rng((seed, 5)).integers(0, 2**64, dtype=np.uint64))


def _flip(rng: np.random.Generator, values: Hashes, bits: int) -> Hashes:
    """Up to `bits` random bits flipped in each value."""
    for _ in range(bits):
        flip = np.uint64(1) << rng.integers(0, 64, len(values), dtype=np.uint64)
        values = np.where(rng.random(len(values)) < 0.7, values ^ flip, values)
    return values


KINDS = {pool.__name__: pool for pool in (planted, skewed, one_bucket, low_entropy, all_equal)}
