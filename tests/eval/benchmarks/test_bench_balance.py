"""The pools of the balance benchmark are as skewed as they promise; its references are independent and agree."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from curation.balance import effective_number, hierarchical_kmeans, water_fill
from eval.benchmarks.bench_balance import faiss_leaves, fill_by_sorting, leaf_counts, main, skewed_sizes, skewed_vectors


def test_sorting_agrees_with_selection_up_to_who_gets_the_remainder() -> None:
    sizes = skewed_sizes(5000)
    total = int(sizes.sum())
    for budget in (0, 1, 4999, total // 3, total - 1, total):
        a, b = fill_by_sorting(sizes, budget), water_fill(sizes, budget)
        assert np.array_equal(np.sort(a), np.sort(b))
        assert (np.abs(a - b) <= 1).all()


def test_sizes_have_a_heavy_tail() -> None:
    sizes = skewed_sizes(100_000)
    assert sizes.dtype == np.int32
    assert sizes.min() == 1
    # P(size >= 10) = 1 / 10
    assert 0.09 < (sizes >= 10).mean() < 0.11
    assert sizes.max() > 5_000


def test_vectors_are_skewed_and_faiss_assigns_all() -> None:
    rows = skewed_vectors(3000, 16, directions=50)
    leaves = faiss_leaves(rows, 40, 4, 1000, 0)
    assert leaves.shape == (3000,)
    assert leaves.min() >= 0
    tree = hierarchical_kmeans(rows, (40, 5), iterations=4)
    counts = leaf_counts(tree, tree.assign(rows))
    assert counts.sum() == 3000
    assert effective_number(counts) < 40


def test_the_command_prints_its_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--sizes 1000 10000 --rows 300 3000 --dimensions 8 --levels 20 5 2 --iterations 2 --train-rows 200"
    monkeypatch.setattr(sys, "argv", ["bench_balance", *small.split()])
    main()
    out = capsys.readouterr().out
    assert "10,000 sizes against a full sort: ours" in out
    assert "3,000 x 8 to 20 / 5 / 2" in out
    assert "FAISS's first level" in out
