"""Water-filling: one budget over entries of given sizes, as evenly as the sizes allow.

The cap is found by selection, not by sorting: a sample brackets it, one pass in blocks counts what lies outside the
bracket, and only what lies inside is looked at again. So 100 million sizes cost a few passes and, beside the result, a
few per cent of the memory that they take.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from curation.mixing import Keys, mix64

Counts = npt.NDArray[np.int64]

_BLOCK = 1 << 20
_SAMPLE = 1 << 14
_STEP = 0x9E3779B97F4A7C15  # SplitMix64's increment: keeps key 0 from being mixed to 0


def water_fill(sizes: npt.ArrayLike, budget: int, keys: npt.ArrayLike | None = None, *, seed: int = 0) -> Counts:
    """Spread a budget: the largest cap c with sum(min(c, size)) <= budget, and what remains by one each.

    The remainder (fewer than there are entries larger than c) goes to entries with size > c, in the order of a seeded
    hash of their keys. Index order would favour the same entries at every node of a hierarchy.

    Args:
        sizes: integers [n], 0 or more: how many each entry can take. Any integer dtype; int32 saves memory.
        budget: how many to give in all, 0 or more.
        keys: integers [n], distinct names of the entries (cluster ids). The result follows the keys, whatever the
            order of the entries. Default: the index. Among equal keys the lower index comes first.
        seed: 0 or more; another seed gives the remainder to other entries.

    Returns:
        int64 [n]: each <= its size, their sum is min(budget, sum(sizes)) exactly, and no other such split is more even
        (in sorted order, or by any concave utility). An entry never gets less when the budget grows.
        Time is linear in n; the sum of sizes may exceed 64 bits.

    Raises:
        ValueError: sizes or keys that are negative, not integers, not one-dimensional or of different lengths; a
            negative budget or seed.
    """
    limits = check_counts(sizes, "sizes")
    budget, seed = check_whole(budget, "budget"), check_whole(seed, "seed")
    names = None if keys is None else check_keys(keys, len(limits))
    total = sum(exact_sum(part) for part in _blocks(limits))
    if total <= budget:
        return limits.astype(np.int64)
    cap, remainder = _cap(limits, budget)
    given = np.empty(len(limits), np.int64)
    for start in range(0, len(limits), _BLOCK):
        stop = start + _BLOCK
        np.minimum(limits[start:stop], cap, out=given[start:stop], casting="unsafe")
    if remainder:
        _give_one_each(given, limits, cap, remainder, names, seed)
    return given


def order_keys(keys: npt.ArrayLike, seed: int) -> Keys:
    """The hash whose ascending order decides who gets the remainder. uint64 [n]; distinct keys stay distinct."""
    return mix64(np.asarray(keys).astype(np.uint64) ^ mix64(np.uint64((seed + 1) * _STEP % 2**64)))


def exact_sum(values: npt.NDArray[np.integer]) -> int:
    """The sum of fewer than 2^31 non-negative integers below 2^63, which may exceed 64 bits."""
    if not len(values):
        return 0
    if int(values.max()) <= (2**63 - 1) // len(values):
        return int(values.sum(dtype=np.int64))
    wide = values.astype(np.int64)
    return (int((wide >> 32).sum()) << 32) + int((wide & 0xFFFFFFFF).sum())


def check_counts(values: npt.ArrayLike, name: str) -> npt.NDArray[np.integer]:
    """One-dimensional, of integers, each 0..2^63 - 1; not copied where it is an array already.

    Raises:
        ValueError: it is not.
    """
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} must be a one-dimensional array of integers, got {array.dtype} with shape {array.shape}; "
            "counts are whole numbers: convert with .astype(numpy.int64)"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > 2**63 - 1:
        raise ValueError(f"{name} must be counts in 0..2^63 - 1, got {low if low < 0 else high}")
    return array


def check_whole(value: int, name: str) -> int:
    """A whole number of 0 or more.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{name} must be a whole number, 0 or more, got {value!r}")
    return int(value)


def check_keys(keys: npt.ArrayLike, n: int) -> npt.NDArray[np.integer]:
    """Integers [n], of any sign.

    Raises:
        ValueError: they are not.
    """
    array = np.asarray(keys)
    if array.size == 0 and array.ndim == 1:
        array = np.empty(0, np.int64)
    if array.shape != (n,) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"keys must be integers [{n}], one per size, got {array.dtype} with shape {array.shape}")
    return array


def _blocks(values: npt.NDArray[np.integer]) -> Iterator[npt.NDArray[np.integer]]:
    for start in range(0, len(values), _BLOCK):
        yield values[start : start + _BLOCK]


def _sampled(values: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """A sorted sample. It decides only how fast the search narrows."""
    rows = np.linspace(0, len(values) - 1, min(_SAMPLE, len(values))).astype(np.int64)
    return np.sort(values[rows])


def _cap(sizes: npt.NDArray[np.integer], budget: int) -> tuple[int, int]:
    """The cap, and what it leaves of a budget that is less than the sum of the sizes."""
    # Known so far: sizes at or below the cap add up to `below`; `above` of them are larger than it.
    below, above, open_ = 0, 0, sizes
    while len(open_):
        sample = _sampled(open_)
        low, high = _bracket(sample, len(open_), budget - below, above)
        under = between = 0
        n_under = n_over = 0
        kept: list[npt.NDArray[np.integer]] = []
        for part in _blocks(open_):
            small, large = part <= low, part > high
            under += exact_sum(part[small])
            n_under += int(small.sum())
            n_over += int(large.sum())
            inside = part[~(small | large)]
            between += exact_sum(inside)
            kept.append(inside[inside < high])
        n_inside = len(open_) - n_under - n_over
        if below + under + low * (above + n_inside + n_over) > budget:
            above += int(sum(int((part >= low).sum()) for part in _blocks(open_)))
            open_ = np.concatenate([part[part < low] for part in _blocks(open_)])
        elif below + under + between + high * (above + n_over) <= budget:
            below += under + between
            open_ = np.concatenate([part[part > high] for part in _blocks(open_)])
        else:
            open_ = np.concatenate(kept)
            below, above = below + under, above + n_over + n_inside - len(open_)
    cap = (budget - below) // above
    return cap, budget - below - cap * above


def _bracket(sample: npt.NDArray[np.integer], n: int, budget: int, above: int) -> tuple[int, int]:
    """Two values of the sorted sample between which the cap is likely to lie, low < high unless all are equal."""
    values = sample.astype(np.float64)
    rest = np.arange(len(values) - 1, -1, -1)
    filled = (np.cumsum(values) + values * rest) * (n / len(values)) + values * above
    place = int(np.searchsorted(filled, float(budget)))
    # Four standard deviations of a sample's rank.
    slack = 0 if n == len(sample) else 2 * int(len(values) ** 0.5) + 1
    low = int(sample[max(0, min(place, len(values) - 1) - 1 - slack)])
    return low, int(sample[min(len(values) - 1, place + slack)])


def _give_one_each(
    given: Counts,
    sizes: npt.NDArray[np.integer],
    cap: int,
    remainder: int,
    keys: npt.NDArray[np.integer] | None,
    seed: int,
) -> None:
    """Add one to the `remainder` entries with size > cap whose hash is smallest."""

    def hashed() -> Iterator[tuple[Counts, Keys]]:
        for start in range(0, len(sizes), _BLOCK):
            rows = np.flatnonzero(sizes[start : start + _BLOCK] > cap) + start
            yield rows, order_keys(rows if keys is None else keys[rows], seed)

    eligible = sum(int((part > cap).sum()) for part in _blocks(sizes))
    # Hashes are uniform: the remainder-th smallest lies in a narrow band, unless keys repeat.
    share, slack = remainder / eligible, 8 / eligible**0.5
    low, high = max(0.0, share - slack), share + slack
    while True:
        floor, ceiling = np.uint64(low * 2.0**63), np.uint64(min(high, 1.0) * 2.0**63)
        sure, rows, hashes = 0, [], []
        for part, key in hashed():
            half = key >> np.uint64(1)
            sure += int((half < floor).sum())
            maybe = (half >= floor) & (half <= ceiling)
            rows.append(part[maybe])
            hashes.append(key[maybe])
        candidates, order = np.concatenate(rows), np.concatenate(hashes)
        if sure <= remainder <= sure + len(candidates):
            break
        low, high = 0.0, 1.0
    for part, key in hashed():
        given[part[key >> np.uint64(1) < floor]] += 1
    given[candidates[np.argsort(order, kind="stable")[: remainder - sure]]] += 1
