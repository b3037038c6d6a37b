"""The pool of embeddings holds what it promises; brute force is an independent account of the same rule."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from curation.dedup import neighbour_pairs
from curation.vectors import cosines, unit_rows
from eval.benchmarks import bench_neighbours
from eval.benchmarks.bench_neighbours import brute_force, clustered, faiss_kmeans, faiss_pairs, objective, recall


def test_the_pool_has_the_copies_it_promises() -> None:
    rows, copies = clustered(2000, 64, 0.9, 100)
    assert rows.dtype == np.float16
    assert len(copies) == len(np.unique(copies[:, 0])) == 200
    assert not np.isin(copies[:, 1], copies[:, 0]).any()
    cosine = cosines(rows[copies[:, 0]], rows[copies[:, 1]])
    assert 0.899 < cosine.min() < 0.92
    assert 0.98 < cosine.max() < 0.9995
    assert np.allclose(np.linalg.norm(rows.astype(np.float32), axis=1), 1, atol=0.002)
    assert np.array_equal(rows, clustered(2000, 64, 0.9, 100)[0])


def test_brute_force_and_faiss_agree_with_one_partition() -> None:
    rows, copies = clustered(1000, 64, 0.9, 50)
    found = neighbour_pairs(rows, 0.9, partitions=1)
    assert np.array_equal(brute_force(rows, np.arange(1000), 0.9), found)
    # FAISS finds each pair from both ends, and each row itself.
    assert faiss_pairs(unit_rows(rows)[0], 1000, 0.9) == 2 * len(found) + 1000
    some = brute_force(rows, copies[:10, 0], 0.9)
    assert recall(found, some, 1000) == 1
    assert recall(found[::2], found, 1000) == pytest.approx(0.5, abs=0.01)


def test_the_objective_is_the_mean_cosine() -> None:
    unit = np.eye(4, dtype=np.float32)
    assert objective(unit, unit[:2]) == pytest.approx(0.5)
    assert objective(unit, 3 * unit) == pytest.approx(1)
    assert faiss_kmeans(np.tile(unit, (40, 1)), 4, 5).shape == (4, 4)


def test_it_runs_small(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = "bench --json --sizes 100 1000 --dimensions 32 --centres 30 --queries 20 --brute-force 500 --rounds 1"
    monkeypatch.setattr(sys, "argv", [*small.split(), "--brute-share", "2", "--kmeans-rows", "640"])
    bench_neighbours.main()
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(figures) == 7
    assert [figure["ours"] for figure in figures if "recall" in figure["name"]] == [1.0, 1.0]
    assert all(figure["ours"] > 0 for figure in figures)
