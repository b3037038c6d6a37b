"""What the partitions find together is what comparing all rows with all rows finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curation.dedup import NeighbourConfig, plan_bands
from curation.dedup.links import Kind, Links
from pipeline.select import NearDuplicateConfig, SelectConfig
from pipeline.select.corpora import Corpora
from pipeline.select.duplicates import (
    LinkBytes,
    LinkHashes,
    ReadRows,
    Rows,
    ShuffleKeys,
    all_rows,
    hash_bands,
    links_name,
    write_links,
)
from pipeline.select.gather import hash_sample
from pipeline.select.run import Selector
from pipeline.storage import Storage
from tests.fixtures.corpora import corpus
from tests.fixtures.inline import gathered, inline_select, inline_selector
from tests.fixtures.selection import Picture, Run

RADIUS = 4


def pool(count: int, seed: int, prefix: str) -> list[Picture]:
    """Rows that share contents and hashes, near hashes, mirrored hashes, and rows without."""
    families = np.random.default_rng(7).integers(0, 2**64, 8, dtype=np.uint64).tolist()
    rng = random.Random(seed)
    pictures = []
    for number in range(count):
        near = [families[rng.randrange(8)], families[rng.randrange(8)]]
        for side in (0, 1):
            for bit in rng.sample(range(64), rng.choice([0, 0, 1, 2, 3, 5])):
                near[side] ^= 1 << bit
        phash = None if rng.random() < 0.1 else near[0]
        content = f"content {rng.randrange(60)}"
        pictures.append(Picture(f"{prefix}{number}", content, phash, near[1], flat=rng.random() < 0.1))
    return pictures


@pytest.fixture(scope="module")
def selector(tmp_path_factory: pytest.TempPathFactory) -> Selector:
    run = Run(tmp_path_factory.mktemp("run"), pool(60, 1, "now"), chunk_rows=25)
    config = SelectConfig(near_duplicates=NearDuplicateConfig(radius=RADIUS))
    found = inline_selector(run, config)
    gathered(found)
    return found


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpora, dict[int, Picture]]:
    """An earlier corpus of three shards, one of them empty, and its pictures by row number."""
    pictures = pool(14, 2, "old")
    corpora = corpus(tmp_path_factory.mktemp("before") / "day1", [pictures[:9], [], pictures[9:]])
    return corpora, {-1 - number: picture for number, picture in enumerate(pictures)}


def search(
    selector: Selector,
    corpora: Corpora,
    partitions: int,
    mirrored: bool = False,
    bands: tuple[int, ...] | None = None,
) -> tuple[Links, Links]:
    """All links of equal bytes and all of hashes."""
    storage = selector.storage
    everything = all_rows(len(selector.batches), corpora)
    bands = bands or hash_bands(selector.config, hash_sample(gathered(selector)))
    keys = ShuffleKeys(storage, ReadRows(storage, corpora), True, mirrored, bands, partitions)
    for rows in everything:
        keys(rows)
    found: dict[str, list[Links]] = {}
    tasks: dict[str, LinkBytes | LinkHashes] = {
        "bytes": LinkBytes(storage, len(everything)),
        "bands": LinkHashes(storage, len(everything), bands, RADIUS, mirrored),
    }
    for kind, task in tasks.items():
        parts = []
        for partition in range(partitions):
            counts = task(partition)
            parts.append(Links.from_table(storage.read_table(links_name(kind, partition))))
            assert counts == {"links": len(parts[-1])}
        found[kind] = parts
    return Links.concat(found["bytes"]), Links.concat(found["bands"])


def as_set(links: Links) -> dict[tuple[int, int, int], float]:
    """(kind, a, b) -> the smallest value."""
    least: dict[tuple[int, int, int], float] = {}
    for *name, value in zip(*(column.tolist() for column in (links.kind, links.a, links.b, links.value)), strict=True):
        key = (name[0], name[1], name[2])
        least[key] = min(value, least.get(key, value))
    return least


def related(rows: list[int], links: Links) -> dict[tuple[int, int], int]:
    """Pairs of rows and their distance, from groups and links between groups."""
    group = {row: row for row in rows}
    near: dict[tuple[int, int], int] = {}
    for (kind, a, b), value in as_set(links).items():
        if kind == Kind.NEAR_HASH:
            near[a, b] = int(value)
        else:
            group[b] = a
    pairs: dict[tuple[int, int], int] = {}
    for one, other in combinations(sorted(rows), 2):
        a, b = sorted((group[one], group[other]))
        if a == b:
            pairs[one, other] = near.get((a, b), 0)
        elif (a, b) in near:
            pairs[one, other] = near[a, b]
    return pairs


def hash_pairs(pictures: dict[int, Picture], mirrored: bool) -> dict[tuple[int, int], int]:
    """All pairs within the radius, by comparing all with all."""
    usable = {row: one for row, one in pictures.items() if one.phash is not None and not one.flat}
    pairs = {}
    for (i, one), (j, other) in combinations(sorted(usable.items()), 2):
        sides: list[tuple[Any, Any]] = [(one.phash, other.phash)]
        if mirrored:
            sides += [(one.phash, other.mirrored), (one.mirrored, other.phash)]
        distance = min((a ^ b).bit_count() for a, b in sides)
        if distance <= RADIUS:
            pairs[i, j] = distance
    return pairs


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_partitions_together_find_every_pair(selector: Selector, mirrored: bool) -> None:
    run = pool(60, 1, "now")
    pictures = dict(enumerate(run))
    hashes = hash_pairs(pictures, mirrored)
    assert len(set(hashes.values())) == RADIUS + 1
    contents = {(i, j) for i, j in combinations(range(60), 2) if run[i].content == run[j].content}
    first: Any = None
    for partitions in (1, 3, 8):
        same, near = search(selector, Corpora(), partitions, mirrored)
        assert related(list(pictures), near) == hashes
        assert set(related(list(pictures), same)) == contents
        if not mirrored:
            assert len(as_set(near)) == len(near)  # each link once, whatever the bands
        first = first or (as_set(same), as_set(near))
        assert (as_set(same), as_set(near)) == first


def test_rows_of_an_earlier_corpus_take_part_under_negative_numbers(
    selector: Selector, before: tuple[Corpora, dict[int, Picture]]
) -> None:
    corpora, earlier = before
    now = dict(enumerate(pool(60, 1, "now")))
    hashes = hash_pairs(now | earlier, False)
    first: Any = None
    for partitions in (1, 3, 8):
        same, near = search(selector, corpora, partitions)
        assert not ((near.a < 0) & (near.b < 0)).any()
        found = related([*now, *earlier], near)
        # A row of this run is as near to the earlier corpus as comparing with all of it says.
        for row in now:
            nearest = min((bits for (i, j), bits in hashes.items() if j == row and i < 0), default=None)
            assert min((bits for (i, j), bits in found.items() if j == row and i < 0), default=None) == nearest
            copies = {i for i, one in earlier.items() if one.content == now[row].content}
            assert bool(copies) == any(j == row and i < 0 for i, j in related([*now, *earlier], same))
        # Two rows that are both copies of earlier ones need no link to each other; all others have theirs.
        copied = {j for (i, j), bits in hashes.items() if i < 0 <= j and bits == 0}
        for (i, j), bits in hashes.items():
            if i >= 0 and not {i, j} <= copied:
                assert found[i, j] == bits
        assert {pair for pair in found if pair[0] >= 0} <= set(hashes)
        first = first or (as_set(same), as_set(near))
        assert (as_set(same), as_set(near)) == first


def test_rows_come_with_the_columns_asked_for(selector: Selector, before: tuple[Corpora, dict[int, Picture]]) -> None:
    corpora, earlier = before
    everything = all_rows(3, corpora)
    assert everything == [
        Rows(0, batch=0), Rows(1, batch=1), Rows(2, batch=2), Rows(3, corpus=0), Rows(4, corpus=1), Rows(5, corpus=2),
    ]  # fmt: skip
    read = ReadRows(selector.storage, corpora)
    now = read(everything[2], ["id", "phash_mirrored", "embedding"])
    assert now.column_names == ["row", "id", "phash_mirrored", "embedding"]
    assert now.column("row").to_pylist() == list(range(50, 60))
    assert now.column("embedding").null_count == 10  # candidates do not carry it
    assert now.schema.field("embedding").type == pa.list_(pa.float16())
    old = read(everything[5], ["id", "phash"])
    assert old.column("row").to_pylist() == list(range(-10, -15, -1))
    assert old.column("id").to_pylist() == [earlier[row].id for row in range(-10, -15, -1)]
    assert len(read(everything[4], ["sha256"])) == 0


def test_a_radius_has_its_bands_and_off_has_none() -> None:
    sample = np.random.default_rng(0).integers(0, 2**64, 100, dtype=np.uint64)
    assert hash_bands(SelectConfig(near_duplicates=None), sample) == ()
    for radius in (0, 8):
        bands = hash_bands(SelectConfig(near_duplicates=NearDuplicateConfig(radius=radius)), sample[: radius * 5])
        assert len(bands) == radius + 1
        assert sum(bands) == 2**64 - 1


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_pair_that_agrees_on_one_band_only_is_found(tmp_path: Path, partitions: int) -> None:
    bands = plan_bands(np.empty(0, np.uint64), RADIUS)
    pictures = []
    for hash_, band in zip(
        np.random.default_rng(5).integers(0, 2**64, 5, dtype=np.uint64).tolist(), bands, strict=True
    ):
        other = hash_
        for mask in bands:
            other ^= mask & -mask if mask != band else 0
        pictures += [Picture(f"{band}", f"{band}", hash_), Picture(f"{band} near", f"{band} near", other)]
    selector = inline_selector(Run(tmp_path, pictures, 3), SelectConfig())
    gathered(selector)
    _, near = search(selector, Corpora(), partitions, bands=bands)
    assert as_set(near) == {(Kind.NEAR_HASH, 2 * at, 2 * at + 1): 4 for at in range(5)}


def test_one_giant_bucket(tmp_path: Path) -> None:
    run = Run(tmp_path, [Picture(str(at), "same", 5) for at in range(300)], chunk_rows=100)
    selector = inline_selector(run, SelectConfig())
    gathered(selector)
    same, near = search(selector, Corpora(), 3)
    for links in (same, near):
        assert links.a.tolist() == [0] * 299
        assert sorted(links.b.tolist()) == list(range(1, 300))


def test_links_are_written_as_they_come(tmp_path: Path) -> None:
    storage = Storage(tmp_path)

    def parts() -> Iterator[Links]:
        yield Links.none()
        yield Links.of(Kind.NEAR_HASH, [1], [2], 3)
        yield Links.of(Kind.SAME_HASH, [4, 5], [6, 7], 0)

    assert write_links(storage, "links", parts()) == {"links": 3}
    assert Links.from_table(storage.read_table("links")).b.tolist() == [2, 6, 7]
    assert write_links(storage, "none", []) == {"links": 0}
    assert len(Links.from_table(storage.read_table("none"))) == 0

    def broken() -> Iterator[Links]:
        yield Links.of(Kind.NEAR_HASH, [1], [2], 3)
        raise MemoryError

    with pytest.raises(MemoryError):
        write_links(storage, "half", broken())
    assert storage.names() == ["links", "none"]


def test_a_source_without_a_picture_has_no_duplicates(tmp_path: Path) -> None:
    run = Run(tmp_path, [])
    for name, most_links in (("one", 10), ("bins", 0)):
        choice = SelectConfig(semantic_duplicates=NeighbourConfig())
        selection = inline_select(run, choice, name, most_links=most_links)
        assert run.marks(selection) == []
        assert selection.summary == {"candidates": 0, "degenerate_hashes": 0, "references": {}}
