"""Constants follow from what was measured: a step's time less its kernel's, by its rows."""

from __future__ import annotations

import pytest

from curation.dedup.neighbours import partition_count
from eval.benchmarks.select_constants import hash_kernels, measured_constants, sum_of, vector_kernels
from eval.benchmarks.select_once import Cost, StepCost


def cost(links: int, **seconds: float) -> Cost:
    steps = [StepCost(name.replace("_", "-"), 1, value, value, 1000, 1, 1) for name, value in seconds.items()]
    return Cost(tuple(steps), {"duplicates": {"links": {"all": links}}})


def test_what_is_left_of_a_step_is_put_on_its_rows() -> None:
    hashes = cost(100, candidates=1, keys=6, links_bytes=3, links_bands=50, resolved=2, stars=1)
    bins = cost(50, edges_0=1, large_1=2, links_by_node=3, nodes_by_bin=4, resolved=9)
    vectors = cost(200, sample=1, vectors=2, links_vectors=1e-9, left=1, assigned=1, picked=1, cells=1)
    got = measured_constants(hashes, 1000, bins, vectors, 1000, 512, (10, 2), (0.0, 0.0), (100.0, 100.0))
    assert got.candidates_us == pytest.approx(1000)
    assert got.keys_us == pytest.approx(1000)
    assert got.record_us == pytest.approx(50e6 / 5000)
    assert got.resolve_us == pytest.approx(3e6 / 100)
    assert got.components_us == pytest.approx(10e6 / 50)
    assert got.vector_us == pytest.approx((2e6 - 0.1 * 1000 * partition_count(1000)) / 2000)
    assert got.visit_us == 0
    assert got.balance_us == pytest.approx((4e6 - 0.1 * 1000 * 10) / 1000)
    assert (got.hash_links, got.vector_links) == (0.1, 0.2)
    assert got.compression == pytest.approx(1000 / (1000 * 109))
    assert sum_of(bins, ("edges-",)).cpu_seconds == 1


def test_kernels_are_timed_in_nanoseconds() -> None:
    for values in (hash_kernels(1 << 15), vector_kernels(1 << 10)):
        assert all(0.05 < value < 5000 for value in values)
