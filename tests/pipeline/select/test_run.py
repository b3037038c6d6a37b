"""Selection as a whole, on real Ray: equal to one row after the other, however the work is dealt out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curation.dedup import NeighbourConfig
from pipeline.select import NearDuplicateConfig, SelectConfig
from pipeline.select.run import curve_cosines
from pipeline.tasks import run_tasks
from tests.fixtures.selection import Picture, Run, naive_stars

RADIUS, THRESHOLD = 4, 0.95


def config(mirrored: bool = False, **values: Any) -> SelectConfig:
    settings: dict[str, Any] = {
        "near_duplicates": NearDuplicateConfig(radius=RADIUS, mirrored=mirrored),
        "semantic_duplicates": NeighbourConfig(threshold=THRESHOLD, partitions=1),
    }
    return SelectConfig(**settings | values)


def pool(count: int = 90, seed: int = 0) -> list[Picture]:
    """Families by content, hash, mirrored hash and embedding, that overlap; rows without any; rows that do not pass."""
    rng = random.Random(seed)
    normal = np.random.default_rng(seed)
    hashes = [rng.getrandbits(64) for _ in range(count // 6)]
    mirrors = [rng.getrandbits(64) for _ in hashes]
    directions = normal.standard_normal((count // 8, 16))
    pictures: list[Picture] = []
    for number in range(count):
        if pictures and rng.random() < 0.15:
            old = rng.choice(pictures)
            copy = Picture(f"{number}", old.content, old.phash, old.mirrored, old.flat, old.vector, yaw=old.yaw)
            pictures.append(copy)
            continue
        family = rng.randrange(len(hashes))
        phash, mirrored = hashes[family], mirrors[family]
        for bit in rng.sample(range(64), rng.randrange(6)):
            phash ^= 1 << bit
        if rng.random() < 0.2:
            phash, mirrored = mirrored, phash
        vector = directions[rng.randrange(len(directions))] + normal.standard_normal(16) * rng.choice([0, 0.15, 0.4])
        vector = vector.astype(np.float16)
        if rng.random() < 0.1:
            vector = np.full(16, rng.choice([0.0, np.nan, np.inf]), np.float16)
        kind = rng.random()
        pictures.append(
            Picture(
                f"{number}", f"content {number}", None if kind < 0.05 else phash, None if kind < 0.05 else mirrored,
                0.05 <= kind < 0.15, None if kind > 0.95 else vector, rng.choice([9, 50, 60, 70]), 0.0,
            )
        )  # fmt: skip
    return pictures


@pytest.fixture(scope="module")
def run(ray_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("select"), pool(), chunk_rows=20)


def test_selection_is_the_naive_reading_of_the_rule(run: Run) -> None:
    expected = naive_stars(run.pictures, RADIUS, THRESHOLD)
    assert {reason for reason, *_ in expected.values()} == {"exact_duplicate", "near_duplicate", "semantic_duplicate"}
    selection = run.select(config(), "whole")
    assert run.drops(selection) == expected
    counts = selection.summary["duplicates"]
    assert sum(counts["dropped"].values()) == len(expected)
    sizes = counts["groups_by_size"]
    assert sum((int(size) - 1) * groups for size, groups in sizes.items()) == len(expected)
    # The curves are what each radius alone would remove.
    assert counts["removed_by_radius"] == {
        str(radius): len(naive_stars(run.pictures, radius, None)) for radius in range(RADIUS + 1)
    }
    assert counts["removed_by_cosine"] == {
        str(cosine): len(naive_stars(run.pictures, None, cosine)) for cosine in curve_cosines(THRESHOLD)
    }


def test_mirrored_pictures_are_duplicates_where_the_switch_says_so(run: Run) -> None:
    expected = naive_stars(run.pictures, RADIUS, None, mirrored=True)
    assert len(expected) > len(naive_stars(run.pictures, RADIUS, None))
    assert run.drops(run.select(config(mirrored=True, semantic_duplicates=None), "mirrored")) == expected


@pytest.mark.parametrize(("partitions", "most_links"), [(3, 10**6), (8, 20)])
def test_partitions_and_bins_do_not_matter(run: Run, partitions: int, most_links: int) -> None:
    selection = run.select(config(), f"parts-{partitions}", partitions=partitions, most_links=most_links)
    assert run.drops(selection) == naive_stars(run.pictures, RADIUS, THRESHOLD)
    # With few links to a task, components were found on the cluster and resolved in several bins.
    assert selection.storage.exists("links-by-bin") == (most_links == 20)


def test_the_order_of_rows_and_the_size_of_chunks_do_not_matter(run: Run, tmp_path: Path) -> None:
    pictures = list(run.pictures)
    random.Random(1).shuffle(pictures)
    shuffled = Run(tmp_path, pictures, chunk_rows=37)
    assert shuffled.drops(shuffled.select(config(), partitions=2)) == naive_stars(run.pictures, RADIUS, THRESHOLD)


def test_a_selection_killed_anywhere_continues_to_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = naive_stars(run.pictures, RADIUS, THRESHOLD)
    budget = iter(range(7, 1000, 7))

    class Killed(Exception):
        pass

    def some(*args: Any, **options: Any) -> Any:
        for at, item in enumerate(run_tasks(*args, **options)):
            if next(left, None) is None:
                raise Killed
            yield item
            assert at >= 0

    monkeypatch.setattr("pipeline.select.steps.run_tasks", some)
    kills = 0
    while True:
        left = iter(range(next(budget)))
        try:
            selection = run.select(config(), "killed", partitions=3, most_links=20)
            break
        except Killed:
            kills += 1
    assert kills >= 3
    assert run.drops(selection) == expected


def test_nothing_is_related_and_nothing_is_there(ray_cluster: str, tmp_path: Path) -> None:
    apart = [Picture(str(at), str(at), 0xFFFF << (16 * at), vector=np.eye(4)[at]) for at in range(4)]
    run = Run(tmp_path / "apart", apart)
    assert run.drops(run.select(config())) == {}
    none = Run(tmp_path / "none", [Picture("small", "x", 1, size=5)])
    selection = none.select(config())
    assert none.drops(selection) == {}
    assert selection.summary["candidates"] == 0
