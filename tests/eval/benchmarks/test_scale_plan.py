"""The formulas of the scale plan: what the kernels really do at sizes that can be counted."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from curation.dedup import banding, plan_bands
from curation.dedup.neighbours import partition_count
from eval.benchmarks.scale_plan import (
    PLANNED_COMPARE_NS,
    PLANNED_SORT_NS,
    Constants,
    band_pairs,
    join_of,
    plan_text,
    scale_plan,
)

ONES = Constants(**{field.name: 1.0 for field in fields(Constants)})


@pytest.mark.parametrize("radius", [4, 8])
def test_pairs_of_a_band_are_as_many_as_there_are(radius: int) -> None:
    values = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
    found = []
    for mask in plan_bands(values, radius):
        _, counts = np.unique(values & np.uint64(mask), return_counts=True)
        found.append(int((counts * (counts - 1) // 2).sum()))
    # Bands differ by one bit in width, so their mean is a little above that of equal bands.
    assert 0.9 < np.mean(found) / band_pairs(20_000, radius) < 1.25


@pytest.mark.parametrize(("rows", "radius"), [(1 << 14, 4), (1 << 17, 4), (1 << 14, 8)])
def test_joins_are_those_that_the_kernel_plans(rows: int, radius: int) -> None:
    values = np.unique(np.random.default_rng(0).integers(0, 2**64, rows, dtype=np.uint64))
    mask = plan_bands(values, radius)[0]
    rest = tuple(bit for bit in banding.ALL_BITS if not mask >> bit & 1)
    planned = len(banding.plan(values, radius, rest, mask).bands)
    expected = join_of(rows, radius)
    assert (PLANNED_SORT_NS, PLANNED_COMPARE_NS) == (banding._NS_SORT, banding._NS_CANDIDATE)
    # The kernel may find it cheaper yet to compare whole small buckets.
    assert planned in (0, expected.count)
    assert expected.keys == len(banding._keys(expected.count, radius))


def test_linear_steps_grow_with_the_rows_and_the_search_faster() -> None:
    one, four = (scale_plan(rows, ONES) for rows in (10**9, 4 * 10**9))
    growth = {a.name: b.core_hours / a.core_hours for a, b in zip(one, four, strict=True)}
    for name in ("candidates", "keys", "links-bytes", "sample", "components and stars"):
        assert growth[name] == pytest.approx(4)
    assert 4 < growth["vectors"] < 16
    assert 4 < growth["links-vectors"] <= 16
    plan = {step.name: step for step in one}
    assert plan["candidates"].core_hours == pytest.approx(1e9 / 3.6e9)
    assert plan["keys"].bytes == 1e9 * (24 + 5 * 17)
    assert plan["vectors"].comparisons == 1e9 * partition_count(10**9)
    assert plan["vectors"].bytes == 2e9 * (2 * 768 + 8 + 12)


def test_a_wider_radius_costs_more_in_keys_and_bands_only() -> None:
    narrow, wide = (scale_plan(10**9, ONES, radius) for radius in (4, 8))
    differ = {a.name for a, b in zip(narrow, wide, strict=True) if b.core_hours > a.core_hours}
    assert differ == {"keys", "links-bands"}
    assert sum(step.core_hours for step in wide) > sum(step.core_hours for step in narrow)


def test_a_plan_reads_as_a_table() -> None:
    steps = scale_plan(10**9, ONES)
    lines = plan_text(10**9, 4, 768, steps).splitlines()
    assert lines[0] == "1,000,000,000 rows, radius 4, 768 dimensions:"
    assert [line.split("  ")[2] for line in lines[1:-1]] == [step.name for step in steps]
    assert f"{sum(step.core_hours for step in steps):.1f} core-hours" in lines[-1]
