"""The constants of `scale_plan`, from what selections took and from the kernels alone, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import comb
from typing import Any

import numpy as np

from curation.dedup import banding, partition_links, plan_bands
from curation.dedup.neighbours import ASSIGNMENTS, partition_count
from curation.kmeans import nearest
from curation.vectors import unit_rows
from eval.benchmarks.scale_plan import BAND_BYTES, CONTENT_BYTES, SKEW, Constants, band_pairs, join_of
from eval.benchmarks.select_once import Cost, StepCost
from eval.benchmarks.select_pool import RADIUS

COMPONENTS = ("edges-", "large-", "links-by-", "nodes-by-")
"""How the steps begin that find components when links are many."""

DIMENSIONS = 512
"""Constants of embeddings are for so many; costs grow with them."""


def sum_of(cost: Cost, beginnings: tuple[str, ...]) -> StepCost:
    """The steps whose names begin with one of some texts, together."""
    return Cost(tuple(step for step in cost.steps if step.name.startswith(beginnings)), {}).sum()


def total_links(cost: Cost) -> int:
    """Links that were resolved."""
    return max(1, sum(cost.summary["duplicates"]["links"].values()))


def hash_kernels(rows: int = 1 << 20, seed: int = 0) -> tuple[float, float]:
    """Nanoseconds of an entry of a sort and of a comparison, in the join of one band.

    Uniform hashes are nearly all sorting. Hashes that all agree on the band, as the buckets of a billion rows do,
    need comparisons beside it.
    """
    rng = np.random.default_rng(seed)
    values = np.unique(rng.integers(0, 2**64, rows, dtype=np.uint64))
    mask = plan_bands(values, RADIUS)[0]
    one_bucket = np.unique(values & ~np.uint64(mask))
    sort_ns = 1e9 * _join_seconds(values, mask) / (len(values) * _keys(values, mask))
    seconds = _join_seconds(one_bucket, mask) - 1e-9 * sort_ns * len(one_bucket) * _keys(one_bucket, mask)
    rest = 64 - mask.bit_count()
    count = _bands(one_bucket, mask)
    share = comb(count, RADIUS) * 2.0 ** (-rest * (count - RADIUS) / count)
    compare_ns = 1e9 * seconds / (len(one_bucket) ** 2 / 2 * share)
    return sort_ns, max(compare_ns, 0.1)


def _bands(values: banding.Hashes, mask: int) -> int:
    rest = tuple(bit for bit in banding.ALL_BITS if not mask >> bit & 1)
    return len(banding.plan(values, RADIUS, rest, mask).bands)


def _keys(values: banding.Hashes, mask: int) -> int:
    bands = _bands(values, mask)
    return comb(bands, RADIUS) if bands else 1


def _join_seconds(values: banding.Hashes, mask: int) -> float:
    return _seconds(lambda: sum(len(i) for i, _ in banding.join_within(values, RADIUS, mask)))


def vector_kernels(rows: int = 1 << 13, seed: int = 0) -> tuple[float, float]:
    """Nanoseconds of a row and a centroid, and of a comparison of two rows, each of `DIMENSIONS`."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((rows, DIMENSIONS), np.float32).astype(np.float16)
    unit, _ = unit_rows(vectors)
    nearest_ns = 1e9 * _seconds(lambda: nearest(unit, unit, ASSIGNMENTS)) / rows**2
    home = np.zeros((rows, 1), np.int32)
    search = _seconds(lambda: list(partition_links(vectors, np.arange(rows), home, 0, 0.95)))
    return nearest_ns, 1e9 * search / (rows**2 / 2)


def _seconds(call: Callable[[], Any]) -> float:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        call()
        started = time.process_time()
        call()
        return time.process_time() - started


def measured_constants(
    hashes: Cost,
    rows: int,
    bins: Cost,
    embeddings: Cost,
    embedded: int,
    dimensions: int,
    levels: Sequence[int],
    hash_ns: tuple[float, float],
    vector_ns: tuple[float, float],
) -> Constants:
    """Constants from measured selections: what is left of a step without its kernel is put on its rows.

    Args:
        hashes: of `rows` rows, by equal bytes and near hashes.
        bins: the same, resolved in several bins.
        embeddings: of `embedded` rows of `dimensions`, by near embeddings, then balanced over clusters of `levels`.
        hash_ns, vector_ns: `hash_kernels` and `vector_kernels`.
    """
    (sort_ns, compare_ns), (nearest_ns, search_ns) = hash_ns, vector_ns
    bands, links = RADIUS + 1, total_links(hashes)
    join = join_of(float(rows), RADIUS)
    joined = bands * (rows * join.keys * sort_ns + band_pairs(rows, RADIUS) * join.candidates * compare_ns)
    width, k = dimensions / DIMENSIONS, partition_count(embedded)
    homes = embedded * k * nearest_ns * width
    searched = SKEW * (ASSIGNMENTS - 0.5) * embedded**2 / k * search_ns * width
    copies = ASSIGNMENTS * embedded * width
    balanced = embeddings.sum("left", "balance-sample", "assigned", "picked", "cells").cpu_seconds
    records = bands * BAND_BYTES + CONTENT_BYTES
    vector_bytes = 2 * dimensions + 4 * ASSIGNMENTS + 12

    def rest(seconds: float, kernel_ns: float, count: float) -> float:
        return max(1e6 * seconds - kernel_ns / 1e3, 0.0) / count

    return Constants(
        candidates_us=rest(hashes.sum("candidates").cpu_seconds, 0, rows),
        keys_us=rest(hashes.sum("keys").cpu_seconds, 0, rows * (1 + bands)),
        contents_us=rest(hashes.sum("links-bytes").cpu_seconds, 0, rows),
        record_us=rest(hashes.sum("links-bands").cpu_seconds, joined, rows * bands),
        sort_ns=sort_ns,
        compare_ns=compare_ns,
        sample_us=rest(embeddings.sum("sample").cpu_seconds, 0, embedded * width),
        vector_us=rest(embeddings.sum("vectors").cpu_seconds, homes, copies),
        nearest_ns=nearest_ns,
        search_ns=search_ns,
        visit_us=rest(embeddings.sum("links-vectors").cpu_seconds, searched, copies),
        resolve_us=rest(hashes.sum("resolved", "stars").cpu_seconds, 0, links),
        components_us=rest(sum_of(bins, COMPONENTS).cpu_seconds, 0, total_links(bins)),
        balance_us=rest(balanced, embedded * levels[0] * nearest_ns * width, embedded * width),
        candidate_bytes=hashes.sum("candidates").written / rows,
        compression=hashes.sum("keys").written / (rows * records),
        vector_compression=embeddings.sum("vectors").written / (ASSIGNMENTS * embedded * vector_bytes),
        hash_links=links / rows,
        vector_links=total_links(embeddings) / embedded,
    )
