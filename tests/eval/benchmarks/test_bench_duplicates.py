"""Brute force is an independent account of the same rule, and the figures are printed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from curation.dedup import hamming_pairs, near_duplicates
from eval.benchmarks import bench_duplicates
from eval.benchmarks.bench_duplicates import brute_force
from eval.benchmarks.hash_pools import KINDS, planted


@pytest.mark.parametrize("kind", KINDS)
def test_brute_force_agrees_with_banding(kind: str) -> None:
    hashes = KINDS[kind](800)
    quality = np.random.default_rng(0).integers(0, 5, 800).astype(float)
    ids = np.arange(800)
    found = near_duplicates(hashes, quality, ids, 4).keeper
    assert np.array_equal(brute_force(hashes, quality, ids, 4), found)
    assert 20 < (found >= 0).sum() < 800


def test_brute_force_keeps_stars() -> None:
    # b is near a and near c; a and c are not near each other.
    hashes = np.array([0b0000, 0b0011, 0b1111], np.uint64)
    assert brute_force(hashes, np.array([3.0, 2.0, 1.0]), np.arange(3), 2).tolist() == [-1, 0, -1]
    assert brute_force(hashes, np.array([1.0, 2.0, 1.0]), np.arange(3), 2).tolist() == [1, -1, 1]


def test_the_command_prints_a_figure_for_each_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--json", "--sizes", "200", "2000", "--skewed", "300", "--brute-force", "300", "--peer-rows", "0"]
    monkeypatch.setattr("sys.argv", ["bench_duplicates", *options])
    monkeypatch.setattr(bench_duplicates, "KINDS", {"planted": planted})
    monkeypatch.setattr(bench_duplicates, "NASTY", ("one_bucket",))
    monkeypatch.setattr(bench_duplicates, "GOAL_ROWS", 2000)
    bench_duplicates.main()
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [figure["name"] for figure in figures] == [
        "near duplicates, planted, 300 rows against brute force",
        "Hamming pairs, planted, 200 rows",
        "Hamming pairs, planted, 2,000 rows against 200",
        "Hamming pairs, planted, 2,000 rows, time",
        "Hamming pairs, planted, 2,000 rows, peak memory",
        "near duplicates, planted, 200 rows",
        "near duplicates, planted, 2,000 rows against 200",
        "near duplicates, planted, 2,000 rows, time",
        "near duplicates, planted, 2,000 rows, peak memory",
        "near duplicates, one_bucket, 300 rows",
    ]
    assert all(figure["met"] for figure in figures if figure["name"].endswith(("time", "memory")))
    pairs = [figure["detail"]["pairs"] for figure in figures if "pairs" in figure["detail"]]
    assert pairs == [len(hamming_pairs(planted(n), 4)) for n in (200, 2000)]
