"""The pool that selection is measured on is a run like any other, and holds the copies that it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from curation.vectors import cosines
from eval.benchmarks.select_pool import RADIUS, THRESHOLD, Planted, plant, pool_scores, write_pool
from pipeline.scores import ScoreTable, part_name, read_scores
from tests.fixtures.counting import locator_table, locators


@pytest.fixture(scope="module")
def rows() -> Planted:
    return plant(500, 32)


def test_copies_are_what_they_are_planted_as(rows: Planted) -> None:
    copies = {kind: np.flatnonzero(rows.kind == kind) for kind in ("exact", "hash", "vector")}
    assert {kind: len(found) for kind, found in copies.items()} == {"exact": 50, "hash": 50, "vector": 50}
    every = np.flatnonzero(rows.origin >= 0)
    assert len(every) == 150
    assert (rows.kind[rows.origin[every]] == "").all()
    assert (rows.bytes[every] < rows.bytes[rows.origin[every]]).all()
    assert rows.vectors is not None
    exact, origin = copies["exact"], rows.origin[copies["exact"]]
    assert (rows.content[exact] == rows.content[origin]).all()
    assert (rows.phash[exact] == rows.phash[origin]).all()
    assert (rows.vectors[exact] == rows.vectors[origin]).all()
    assert len(np.unique(rows.content)) == 450
    # One picture is everywhere.
    assert np.bincount(origin).max() >= 5
    bits = np.bitwise_count(rows.phash[copies["hash"]] ^ rows.phash[rows.origin[copies["hash"]]])
    assert bits.max() <= RADIUS
    assert len(np.unique(bits)) >= 4
    near = copies["vector"]
    assert cosines(rows.vectors[near], rows.vectors[rows.origin[near]]).min() > THRESHOLD - 1e-3


def test_rows_without_embeddings_differ_by_seed_only() -> None:
    one, again, other = plant(100), plant(100), plant(100, seed=1)
    assert one.vectors is None
    assert set(one.kind.tolist()) == {"exact", "hash", ""}
    assert one.id.equals(again.id)
    assert not one.id.equals(other.id)


@pytest.mark.parametrize("dimensions", [None, 32])
def test_parts_are_as_the_pipeline_writes_them(tmp_path: Path, dimensions: int | None) -> None:
    rows = plant(300, dimensions)
    write_pool(tmp_path, rows, 128)
    read = pool_scores(tmp_path, 300, 128, dimensions is not None)
    table = ScoreTable(locator_table(locators(1)), read.stages.columns)
    read.storage.write_table("one", table.to_table({"fingerprints": read.stages.fingerprints}))
    expected = read.storage.read_table("one").schema
    assert read.storage.read_table(part_name(0)).schema.equals(expected, check_metadata=True)
    assert len(read.plan) == 3
    scores = read_scores(read.storage, 2, read.stages)
    assert scores.column("phash").to_numpy().tolist() == rows.phash[256:].tolist()
    assert scores.column("scored_screen").to_pylist() == [True] * 44
    if rows.vectors is not None:
        assert np.array_equal(np.array(scores.column("embedding").to_pylist(), np.float16), rows.vectors[256:])
    passing = read.passing(0, ("bytes",), frozenset({"sha256"}))
    assert passing.column("row").to_pylist() == list(range(300))
    assert passing.column("id").combine_chunks().equals(rows.id)
    # Equal content, equal SHA-256, and nothing else is equal.
    digests = np.array(passing.column("sha256").to_pylist())
    assert len(np.unique(digests)) == len(np.unique(rows.content))
    copies = np.flatnonzero(rows.kind == "exact")
    assert (digests[copies] == digests[rows.origin[copies]]).all()
