"""Hamming search in parts: records are shuffled by the value of a band, and each bucket is searched alone.

Cut the 64 bits into r + 1 bands. Two hashes within r bits agree on at least one band, so they meet in at least one of
the buckets (band, value of the band). A driver sends each row to r + 1 buckets (`plan_bands`, `band_keys`), gives all
records of some whole buckets of one band to `band_links`, and takes the union of what comes back: it does not depend
on which buckets travelled together. Longer keys, as `banding.join` uses in memory, would cost C(b, r) records a row.

A row travels as one record for each band, of 17 bytes (value 8, row 8, band 1); with mirrored pictures as two of 26
(the other hash 8, which of the two 1). The short keys of bands make large buckets, which are joined again on the bits
that the band does not hold.

Mirrored pictures: a row comes as (value = hash, other = mirrored hash, flipped False) and as (value = mirrored hash,
other = hash, flipped True). Rows i and j are related when the hash of i is near the hash of j, or near the mirrored
hash of j.

Negative rows belong to an earlier corpus. No link joins two of them: a row of this run in a group that holds some is
dropped for the smallest of them, whatever else the group is near.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curation.dedup import banding
from curation.dedup.banding import Hashes, Indices
from curation.dedup.hamming import check_hashes, check_radius, gather, hamming_distance
from curation.dedup.links import Kind, Links

BLOCK = banding.BLOCK
"""Links in one yielded part at most."""

_ALL = (1 << 64) - 1


def plan_bands(sample: npt.ArrayLike, radius: int) -> tuple[int, ...]:
    """Bands for a distributed search.

    Args:
        sample: uint64 [s] hashes of the pool; some 10,000 tell how much each bit varies. May be empty.
        radius: 0..8 bits, inclusive.

    Returns:
        radius + 1 bit masks, disjoint, together all 64 bits. Bits are dealt by their entropy, so that the buckets of
        all bands are about equally small. The same for the same sample in any order; any sample gives the same links.

    Raises:
        ValueError: not a one-dimensional uint64 array, or a radius outside 0..8.
    """
    check_radius(radius)
    agreement = banding.bit_agreement(check_hashes(sample))
    return banding.deal(banding.ALL_BITS, agreement, radius + 1)[0]


def band_keys(values: npt.ArrayLike, band: int) -> Hashes:
    """The bucket of each hash, to be taken modulo a number of partitions.

    Args:
        values: uint64 [n].
        band: one of the masks of `plan_bands`.

    Returns:
        uint64 [n]: equal exactly where the values agree on the band; all 64 bits are mixed, and differently for each
        band, so that the fullest buckets of all bands (those of flat pictures) do not meet in one partition.
    """
    keys = check_hashes(values) & np.uint64(band)
    # Adding a constant and the steps below are one-to-one: SplitMix64 (Steele, Lea and Flood 2014), its published
    # constants.
    keys += np.uint64(band * 0x9E3779B97F4A7C15 & _ALL)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        keys ^= keys >> np.uint64(shift)
        keys *= np.uint64(factor)
    keys ^= keys >> np.uint64(31)
    return keys


def band_links(
    values: npt.ArrayLike,
    others: npt.ArrayLike | None,
    rows: npt.ArrayLike,
    flipped: npt.ArrayLike | None,
    band: int,
    bands: Sequence[int],
    radius: int,
) -> Iterator[Links]:
    """Links among the records of some buckets of one band.

    Args:
        values: uint64 [n], what is searched: a hash, or a mirrored hash where `flipped`.
        others: uint64 [n], the other of the two; None to search without mirrored pictures.
        rows: int64 [n]; negative for rows of an earlier corpus.
        flipped: bool [n], which records hold the mirrored hash in `values`; None exactly when `others` is.
        band: position in `bands`.
        bands: the masks of `plan_bands`.
        radius: 0..8 bits, inclusive; that of the plan.

    Yields:
        At most `BLOCK` links at a time, in an order that follows from the records. Groups are the rows of equal hash
        (with `others`: of equal hash and mirrored hash), named by their smallest row.

        SAME_HASH, from band 0 only: the other rows of each group.

        NEAR_HASH: pairs of groups within the radius. Without `others` each pair comes once, from the first band on
        which its hashes agree. With `others` a pair may come several times, with the distance of the hashes and those
        of a hash to a mirrored hash; the smallest counts. Then two groups can have distance 0: h groups of one hash
        but different mirrored hashes have h (h - 1) / 2 links.

        Memory is some arrays of n, and of `BLOCK`, whatever the buckets hold.

    Raises:
        ValueError: arrays of other types or lengths, only one of `others` and `flipped`, a radius outside 0..8, bands
            that are not radius + 1 disjoint masks of all 64 bits, or a `band` that is not one of them.
    """
    check_radius(radius)
    _check_bands(band, bands, radius)
    records = _records(check_hashes(values), others, rows, flipped)
    return _band_links(records, band, bands, radius)


@dataclass(frozen=True, slots=True)
class _Records:
    """Distinct values, and the groups that own each of them.

    Attributes:
        values: uint64 [g], distinct, ascending.
        starts, counts: int64 [g], which owners a value has; exactly one each without mirrored pictures.
        names: int64 [e], owners: the smallest row of the group.
        flipped: bool [e], whether the value is the mirrored hash of the owner.
        member_of, members: int64 [s], a group's name and its other rows.
    """

    values: Hashes
    starts: Indices
    counts: Indices
    names: Indices
    flipped: npt.NDArray[np.bool_]
    member_of: Indices
    members: Indices


def _records(
    values: Hashes, others: npt.ArrayLike | None, rows: npt.ArrayLike, flipped: npt.ArrayLike | None
) -> _Records:
    numbers = np.asarray(rows)
    if numbers.shape != values.shape or (numbers.dtype != np.int64 and numbers.size):
        raise ValueError(f"rows must be int64 of shape {values.shape}, got {numbers.dtype} {numbers.shape}")
    numbers = numbers.astype(np.int64, copy=False)
    if (others is None) != (flipped is None):
        raise ValueError("give both others and flipped (mirrored pictures are duplicates), or neither")
    if others is None or flipped is None:
        turned = np.zeros(len(values), dtype=np.bool_)
        order = np.argsort(values, kind="stable")
        owner_begins = value_begins = _changes(values[order])
    else:
        opposite, turned = check_hashes(others), np.asarray(flipped)
        if opposite.shape != values.shape or turned.shape != values.shape or (turned.dtype != np.bool_ and turned.size):
            raise ValueError(
                f"others must be uint64 and flipped bool, of shape {values.shape}; "
                f"got shapes {opposite.shape} and {turned.shape}, flipped {turned.dtype}"
            )
        turned = turned.astype(np.bool_, copy=False)
        order = np.lexsort((turned, opposite, values))
        value_begins = _changes(values[order])
        owner_begins = value_begins | _changes(opposite[order]) | _changes(turned[order])
    first = np.flatnonzero(owner_begins)
    numbers = numbers[order]
    names = np.minimum.reduceat(numbers, first) if len(first) else numbers
    turned = turned[order]
    member_of = np.repeat(names, np.diff(first, append=len(order)))
    wanted = (numbers != member_of) & ~turned & (numbers >= 0)
    starts = np.flatnonzero(value_begins[first]).astype(np.int64)
    return _Records(
        values[order[first[starts]]],
        starts,
        np.diff(starts, append=len(first)).astype(np.int64),
        names,
        turned[first],
        member_of[wanted],
        numbers[wanted],
    )


def _changes(column: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Where a column differs from the entry before it; the first does."""
    return np.concatenate([[True], column[1:] != column[:-1]])[: len(column)]


def _band_links(records: _Records, band: int, bands: Sequence[int], radius: int) -> Iterator[Links]:
    if band == 0:
        for start in range(0, len(records.members), BLOCK):
            part = slice(start, start + BLOCK)
            yield Links.of(Kind.SAME_HASH, records.member_of[part], records.members[part], 0)
        yield from _same_value(records)
    earlier = [np.uint64(mask) for mask in bands[:band]]
    near = banding.join_within(records.values, radius, bands[band])
    for p, q in gather(near, BLOCK):
        difference = records.values[p] ^ records.values[q]
        first = np.ones(len(p), dtype=np.bool_)
        for mask in earlier:
            first &= (difference & mask) != 0
        yield from _products(records, p[first], q[first])


def _same_value(records: _Records) -> Iterator[Links]:
    """Different groups that share a value: distance 0."""
    last = np.repeat(records.starts + records.counts, records.counts)
    later = last - np.arange(len(records.names)) - 1
    for owner, local in banding.flat_blocks(later, BLOCK):
        yield from _related(records, owner, owner + 1 + local, np.zeros(len(owner), dtype=np.uint8))


def _products(records: _Records, p: Indices, q: Indices) -> Iterator[Links]:
    """Pairs of values to pairs of groups."""
    distance = hamming_distance(records.values[p], records.values[q])
    width = records.counts[q]
    for pair, local in banding.flat_blocks(records.counts[p] * width, BLOCK):
        i, j = np.divmod(local, width[pair])
        yield from _related(records, records.starts[p[pair]] + i, records.starts[q[pair]] + j, distance[pair])


def _related(records: _Records, i: Indices, j: Indices, distance: npt.NDArray[np.uint8]) -> Iterator[Links]:
    a, b = records.names[i], records.names[j]
    # Two mirrored hashes say no more than the two hashes do; a symmetric picture is near its own mirrored hash.
    wanted = ~(records.flipped[i] & records.flipped[j]) & (a != b) & ((a >= 0) | (b >= 0))
    if wanted.any():
        yield Links.of(Kind.NEAR_HASH, a[wanted], b[wanted], distance[wanted])


def _check_bands(band: int, bands: Sequence[int], radius: int) -> None:
    if len(bands) != radius + 1 or sum(bands) != _ALL or np.bitwise_or.reduce(np.array(bands, np.uint64)) != _ALL:
        raise ValueError(
            f"radius {radius} needs {radius + 1} disjoint bands that cover all 64 bits, got "
            f"{[hex(mask) for mask in bands]}; make them with plan_bands(sample, {radius})"
        )
    if not 0 <= band < len(bands):
        raise ValueError(f"band must be 0..{len(bands) - 1}, a position in bands, got {band}")
