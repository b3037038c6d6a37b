"""Links that do not fit one task are dealt to bins, whole components together, as on one machine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from curation.dedup.components import local_components
from curation.dedup.links import Kind, Links
from pipeline.select import SelectConfig
from pipeline.select.components import shuffle_components
from pipeline.select.duplicates import write_links
from pipeline.select.run import Selector
from pipeline.shuffle import partition_of, read_partition
from tests.fixtures.inline import gathered, inline_selector
from tests.fixtures.selection import Picture, Run

COUNT, EARLIER = 64, 6


def graph(name: str) -> np.ndarray:
    """Edges [m, 2] between rows -EARLIER..COUNT - 1, a < b."""
    rng = np.random.default_rng(len(name))
    nodes = rng.permutation(np.arange(-EARLIER, COUNT))
    if name == "path":
        edges = np.stack([nodes[:-1], nodes[1:]], axis=1)
    elif name == "star":
        edges = np.stack([np.full(len(nodes) - 1, nodes[0]), nodes[1:]], axis=1)
    elif name == "pairs":
        edges = nodes.reshape(-1, 2)
    elif name == "clique and pairs":
        few = nodes[:9]
        edges = np.concatenate([np.stack(np.triu_indices(9, 1), axis=1), np.arange(10, 40).reshape(-1, 2)])
        edges = np.concatenate([few[edges[:36]], nodes[edges[36:]]])
    elif name == "none":
        edges = np.empty((0, 2), np.int64)
    else:
        edges = rng.choice(nodes, (45, 2))
        edges = np.concatenate([edges[edges[:, 0] != edges[:, 1]]] * 2)  # each link twice
    return np.sort(edges, axis=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("run"), [Picture(str(at), "x", size=50 + at) for at in range(COUNT)], 13)


def deal(run: Run, name: str, partitions: int, most_links: int) -> tuple[Selector, Links, int]:
    """A selector whose links are the graph, in three files; the links, and how many there are."""
    selector = inline_selector(
        run, SelectConfig(), f"{name}-{partitions}-{most_links}", partitions=partitions, most_links=most_links
    )
    gathered(selector)
    edges = graph(name)
    kinds = [Kind.SAME_BYTES, Kind.NEAR_HASH, Kind.NEAR_VECTOR]
    parts = [Links.of(kind, edges[at::3, 0], edges[at::3, 1], at) for at, kind in enumerate(kinds)]
    for number, part in enumerate(parts):
        write_links(selector.storage, f"links-some/{number}.parquet", [part])
    return selector, Links.concat(parts), len(edges)


@pytest.mark.parametrize(
    ("name", "partitions", "most_links"),
    [
        *((name, 3, 7) for name in ("path", "star", "pairs", "clique and pairs", "random", "none")),
        *((name, 1, 10) for name in ("path", "random", "none")),
        *((name, 8, 2) for name in ("star", "random")),
    ],
)
def test_components_are_those_of_one_machine_and_stay_together(
    run: Run, name: str, partitions: int, most_links: int
) -> None:
    selector, links, count = deal(run, name, partitions, most_links)
    names = tuple(f"links-some/{number}.parquet" for number in range(3))
    bins = shuffle_components(selector, names, count)
    storage = selector.storage
    assert [one.number for one in bins] == list(range(len(bins)))
    assert len(bins) == min(max(1, -(-count // most_links)), 64 * partitions)
    nodes, label = local_components(links)
    home = dict(zip(nodes.tolist(), partition_of(label, len(bins)).tolist(), strict=True))
    ours: Counter[int] = Counter()
    seen: Counter[tuple[float, ...]] = Counter()
    for one in bins:
        assert one.links is None
        part = Links.from_table(read_partition(storage, one.shuffled, one.number))
        seen.update(zip(*(column.tolist() for column in (part.kind, part.a, part.b, part.value)), strict=True))
        ends = {*part.a.tolist(), *part.b.tolist()}
        assert {home[row] for row in ends} <= {one.number}
        info = read_partition(storage, one.nodes, one.number)
        rows = info.column("row").to_pylist()
        ours.update(rows)
        # All that resolving looks up, and nothing else.
        assert set(rows) == {row for row in ends if row >= 0}
        assert info.column("id").to_pylist() == [run.pictures[row].id for row in rows]
        assert info.column("quality_0").to_pylist() == [run.pictures[row].size ** 2 for row in rows]
    everything = (links.kind, links.a, links.b, links.value)
    assert seen == Counter(zip(*(column.tolist() for column in everything), strict=True))
    assert ours == Counter({row: 1 for row in nodes.tolist() if row >= 0})
    # What the turns moved is gone; what resolving reads is there.
    left = {entry for entry in storage.names() if storage.names(entry) not in ([], ["complete.json"])}
    assert left == {"candidates", "links-some", "links-by-bin", "nodes-by-bin"}


def test_pairs_are_spread_over_the_bins(run: Run) -> None:
    selector, links, count = deal(run, "pairs", 2, 5)
    names = tuple(f"links-some/{number}.parquet" for number in range(3))
    bins = shuffle_components(selector, names, count)
    held = [len(read_partition(selector.storage, one.shuffled, one.number)) for one in bins]
    assert len(bins) == 7
    assert sum(held) == len(links) == 35
    assert max(held) <= 12
