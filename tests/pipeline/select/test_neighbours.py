"""Neighbours by embedding: a sample that depends on ids alone, and links that are exact whatever the partitions."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from curation.dedup import NeighbourConfig
from curation.dedup.links import Kind, Links
from pipeline.select import SelectConfig, neighbours
from pipeline.select.corpora import Corpora
from pipeline.select.duplicates import ReadRows, all_rows, links_name
from pipeline.select.marks import KeptRows, mark_table, marks_name
from pipeline.select.neighbours import (
    LinkVectors,
    SampleVectors,
    ShuffleVectors,
    TrainPartitions,
    load_centroids,
    read_sample,
    sample_name,
    vectors_name,
)
from pipeline.select.run import Selector
from tests.fixtures.corpora import corpus
from tests.fixtures.inline import gathered, inline_selector
from tests.fixtures.selection import Picture, Run

THRESHOLD = 0.93
UNUSABLE = (0.0, np.nan, np.inf)


def pool(count: int, seed: int, prefix: str = "now", spread: float = 0.2) -> list[Picture]:
    """Clusters of vectors, equal vectors, vectors of another length, unusable ones, and rows without."""
    centres = np.random.default_rng(99).standard_normal((max(4, count // 8), 12))
    rng = np.random.default_rng(seed)
    pictures: list[Picture] = []
    for number in range(count):
        vector: Any = centres[rng.integers(len(centres))] + rng.standard_normal(12) * spread * rng.random()
        vector = (vector * rng.choice([0.1, 1, 30])).astype(np.float16)
        kind = rng.random()
        if kind < 0.1 and pictures and (old := pictures[rng.integers(len(pictures))]).vector is not None:
            vector = old.vector
        elif kind < 0.2:
            vector = np.full(12, rng.choice(UNUSABLE), np.float16)
        elif kind < 0.3:
            vector = None
        pictures.append(Picture(f"{prefix}{number}", f"{prefix}{number}", vector=vector, size=9 if kind > 0.95 else 50))
    return pictures


def selection(run: Run) -> Selector:
    found = inline_selector(run, SelectConfig())
    gathered(found)
    return found


def cosine_pairs(vectors: dict[int, Any]) -> dict[tuple[int, int], float]:
    """All neighbours, by comparing all with all."""
    exact = {row: np.asarray(one, np.float16).astype(np.float64) for row, one in vectors.items() if one is not None}
    exact = {row: one for row, one in exact.items() if np.isfinite(one).all() and one.any()}
    pairs = {}
    for i, j in combinations(sorted(exact), 2):
        a, b = exact[i], exact[j]
        cosine = 1.0 if (a == b).all() else float(a @ b / np.sqrt((a @ a) * (b @ b)))
        assert abs(cosine - THRESHOLD) > 1e-9
        if cosine >= THRESHOLD:
            pairs[i, j] = cosine
    return pairs


def search(
    selector: Selector, config: NeighbourConfig, partitions: int, corpora: Corpora | None = None
) -> tuple[Links, dict[str, int]]:
    """All links, and counts: partitions trained, rows without a usable vector, files."""
    corpora = corpora or Corpora()
    storage, read, layout = selector.storage, selector.read, selector.layout
    for batch in selector.batches:
        SampleVectors(storage, read, layout, "sample", 1.0, config.seed)(batch)
    trained = TrainPartitions(storage, config, len(selector.batches))(config.partitions or 1)
    everything = all_rows(len(selector.batches), corpora)
    shuffle = ShuffleVectors(storage, read, layout, ReadRows(storage, corpora), config.assignments, partitions)
    files: list[str] = []
    unusable = 0
    for rows in everything:
        record = shuffle(rows)
        files += [vectors_name(rows.number, part) for part in range(record["files"])]
        unusable += record["unusable"]
    link = LinkVectors(storage, tuple(files), config.threshold)
    parts = []
    for partition in range(partitions):
        count = link(partition)["links"]
        parts.append(Links.from_table(storage.read_table(links_name("vectors", partition))))
        assert len(parts[-1]) == count
    counts = {"trained": trained["partitions"], "unusable": unusable, "files": len(files)}
    return Links.concat(parts), counts


def as_list(links: Links) -> list[tuple[int, int, int, float]]:
    return sorted(zip(*(one.tolist() for one in (links.kind, links.a, links.b, links.value)), strict=True))


def related(rows: list[int], links: Links) -> dict[tuple[int, int], float]:
    """Pairs of rows and their cosine, from groups and links between groups."""
    group = {row: row for row in rows}
    near = {}
    for kind, a, b, value in as_list(links):
        if kind == Kind.SAME_VECTOR:
            group[b] = a
        else:
            assert (a, b) not in near, "a link came twice"
            near[a, b] = value
    pairs = {}
    for one, other in combinations(sorted(rows), 2):
        a, b = sorted((group[one], group[other]))
        if a == b or (a, b) in near:
            pairs[one, other] = 1.0 if a == b else near[a, b]
    return pairs


def passing(pictures: list[Picture]) -> dict[int, Any]:
    return {row: one.vector for row, one in enumerate(pictures) if one.size >= 10}


def test_the_sample_is_the_same_rows_whatever_the_batches_and_the_order(tmp_path: Path) -> None:
    pictures = [Picture(str(at), "x", vector=None if at % 7 == 0 else (at + 1, 1)) for at in range(80)]
    samples: list[npt.NDArray[np.float16]] = []
    shuffled = random.Random(0).sample(pictures, len(pictures))
    for name, rows, chunk in (("a", pictures, 80), ("b", pictures, 9), ("c", shuffled, 30)):
        selector = selection(Run(tmp_path / name, rows, chunk))
        task = SampleVectors(selector.storage, selector.read, selector.layout, "sample", 0.4, 3)
        counts = [task(batch)["rows"] for batch in selector.batches]
        samples.append(read_sample(selector.storage, "sample", len(selector.batches)))
        assert sum(counts) == len(samples[-1])
    assert 15 < len(samples[0]) < 50
    assert len(np.unique(samples[0], axis=0)) == len(samples[0])
    for other in samples[1:]:
        assert other.tobytes() == samples[0].tobytes()
    # Another seed, another sample; a share of 1 or more takes all, and 0 none.
    selector = selection(Run(tmp_path / "d", pictures, 80))
    for share, seed, expected in ((0.4, 4, None), (1.0, 0, 68), (7.5, 1, 68), (0.0, 0, 0)):
        SampleVectors(selector.storage, selector.read, selector.layout, "sample", share, seed)(0)
        found = read_sample(selector.storage, "sample", 1)
        assert len(found) == expected if expected is not None else found.tobytes() != samples[0].tobytes()


def test_rows_that_an_earlier_step_dropped_are_not_sampled(tmp_path: Path) -> None:
    selector = selection(Run(tmp_path, [Picture(str(at), "x", vector=(at + 1, 1)) for at in range(6)]))
    marks = mark_table(row=[1, 4, 5], reason=["exact_duplicate", None, "near_duplicate"])
    selector.storage.write_table(marks_name("stars", 0), marks)
    kept = KeptRows(selector.storage, ("stars",))
    task = SampleVectors(selector.storage, selector.read, selector.layout, "left", 1.0, 0, kept)
    assert task(0) == {"rows": 4}
    assert selector.storage.exists(sample_name("left", 0))
    assert sorted(read_sample(selector.storage, "left", 1)[:, 0].tolist()) == [1, 3, 4, 5]


def test_one_partition_finds_every_neighbour(tmp_path: Path) -> None:
    pictures = pool(120, 1)
    selector = selection(Run(tmp_path, pictures, 50))
    links, counts = search(selector, NeighbourConfig(threshold=THRESHOLD, partitions=1), 1)
    vectors = passing(pictures)
    expected = cosine_pairs(vectors)
    found = related(list(vectors), links)
    assert found == pytest.approx(expected, abs=1e-7)
    assert {Kind.SAME_VECTOR, Kind.NEAR_VECTOR} == {*links.kind.tolist()}
    bad = [one for one in vectors.values() if one is not None and not (np.isfinite(one).all() and one.any())]
    assert counts == {"trained": 1, "unusable": len(bad), "files": 3}
    assert bad


def test_several_partitions_find_nearly_all_and_nothing_else(tmp_path: Path) -> None:
    pictures = pool(400, 2, spread=0.15)
    expected = cosine_pairs(passing(pictures))
    config = NeighbourConfig(threshold=THRESHOLD, partitions=12, assignments=3)
    first: list[Any] = []
    for name, chunk, partitions in (("a", 400, 12), ("b", 90, 5), ("c", 170, 1)):
        selector = selection(Run(tmp_path / name, pictures, chunk))
        links, counts = search(selector, config, partitions)
        assert counts["trained"] == 12
        # The k-means partitions decide what is found, not the files that they travel in.
        first = first or as_list(links)
        assert as_list(links) == first
    found = related(list(passing(pictures)), links)
    assert set(found) <= set(expected)
    assert len(found) / len(expected) > 0.95
    assert found == pytest.approx({pair: expected[pair] for pair in found}, abs=1e-7)


def test_a_batch_is_published_in_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = pool(60, 3)
    run = Run(tmp_path, pictures, 10)
    monkeypatch.setattr("pipeline.select.candidates.MOST_BATCHES", 1)
    selector = selection(run)
    assert selector.layout.batches == [(0, 6)]
    config = NeighbourConfig(threshold=THRESHOLD, partitions=3)
    links, counts = search(selector, config, 2)
    monkeypatch.setattr(neighbours, "FILE_ROWS", 15)
    split, more = search(selector, config, 2)
    assert (counts["files"], more["files"]) == (1, 5)
    assert as_list(split) == as_list(links)


def test_rows_of_an_earlier_corpus_take_part_under_negative_numbers(tmp_path: Path) -> None:
    now, before = pool(70, 4), pool(30, 5, "old")
    corpora = corpus(tmp_path / "day1", [before[:20], [], before[20:]])
    selector = selection(Run(tmp_path / "run", now, 30))
    links, _ = search(selector, NeighbourConfig(threshold=THRESHOLD, partitions=1), 1, corpora)
    assert not ((links.a < 0) & (links.b < 0)).any()
    earlier = {-1 - number: one.vector for number, one in enumerate(before)}
    expected = cosine_pairs(passing(now) | earlier)
    found = related([*passing(now), *earlier], links)

    def nearest(pairs: dict[tuple[int, int], float]) -> dict[int, float]:
        best: dict[int, float] = {}
        for (i, j), cosine in pairs.items():
            if i < 0 <= j:
                best[j] = max(cosine, best.get(j, -1))
        return best

    assert nearest(expected)
    assert nearest(found) == pytest.approx(nearest(expected), abs=1e-7)
    ours = {pair for pair in expected if pair[0] >= 0}
    assert {pair for pair in found if pair[0] >= 0} <= ours
    copies = {j for (i, j), cosine in expected.items() if i < 0 <= j and cosine == 1}
    assert {pair for pair in ours if not set(pair) <= copies} <= set(found)


@pytest.mark.parametrize("vector", [None, (0, 0, 0), (np.nan, 1, 1)])
def test_no_embeddings_at_all(tmp_path: Path, vector: Any) -> None:
    selector = selection(Run(tmp_path, [Picture(str(at), "x", vector=vector) for at in range(5)]))
    links, counts = search(selector, NeighbourConfig(partitions=4), 1)
    assert len(links) == 0
    assert counts == {"trained": 0, "unusable": 0 if vector is None else 5, "files": 0}


def test_equal_vectors_are_one_partition_and_one_group(tmp_path: Path) -> None:
    pictures = [Picture(str(at), "x", vector=(1, 2, 3) if at % 2 else (2, 4, 6)) for at in range(40)]
    selector = selection(Run(tmp_path, pictures, 20))
    links, counts = search(selector, NeighbourConfig(partitions=6), 1)
    assert 1 <= counts["trained"] <= 2
    assert len(related(list(range(40)), links)) == 40 * 39 // 2
    assert len(links) == 38 + 1


def test_the_few_embeddings_that_no_sample_met_are_searched_as_one_partition(tmp_path: Path) -> None:
    """One row in ten has an embedding, and the one row that is to train the partitions may be any."""
    pictures = [Picture(str(at), str(at), vector=(1, 1) if at in (3, 30) else None) for at in range(40)]
    run = Run(tmp_path, pictures, 20)
    trained = set()
    for seed in range(8):
        config = NeighbourConfig(train_rows=1, seed=seed)
        choice = SelectConfig(near_duplicates=None, semantic_duplicates=config)
        selector = inline_selector(run, choice, f"seed-{seed}")
        drops = run.drops(selector())
        assert {(reason, similarity) for reason, _, _, similarity, _ in drops.values()} == {("semantic_duplicate", 1.0)}
        assert len(drops) == 1
        trained.add(len(load_centroids(selector.storage)))
    assert 0 in trained
