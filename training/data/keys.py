"""What makes every draw of the data a pure function of a key, whoever draws it and in whatever order."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from curation.mixing import mix64

_GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64's increment: 2**64 over the golden ratio, odd
_MASK = 2**64 - 1


class Purpose(IntEnum):
    """What a key is for, so that two draws of one sample are independent. The numbers are part of the sample order."""

    SHARDS = 1
    WINDOW = 2
    REPLACEMENT = 3
    VIEWS = 4
    MASK = 5
    AUGMENTATION = 6


def derive_key(*parts: int) -> int:
    """64 bits from integers of 0 to 2**64 - 1, whose order counts."""
    state = 0
    for part in parts:
        state = int(mix64(np.uint64((state + _GOLDEN + int(part)) & _MASK)))
    return state


def generator(*parts: int) -> np.random.Generator:
    """Random numbers that depend on the parts alone: Philox (Salmon et al., SC 2011), keyed by `derive_key`."""
    return np.random.Generator(np.random.Philox(key=derive_key(*parts)))


def permutation(count: int, *parts: int) -> npt.NDArray[np.int64]:
    """A random order of 0..count - 1, int64 [count], that depends on the parts alone.

    It sorts the outputs of a SplitMix64 that starts at the key: they are distinct, and made of integer operations only,
    so that the order is the same on every machine and with every version of NumPy (whose own permutations may change).
    """
    with np.errstate(over="ignore"):
        states = np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(derive_key(*parts))
    return np.argsort(mix64(states), kind="stable").astype(np.int64, copy=False)
