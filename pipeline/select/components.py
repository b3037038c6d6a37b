"""Connected components of more links than one task resolves, and the bins that they are resolved in.

Large-star and small-star (`curation.dedup.components`) in turns over shuffled edges, until every component is a star
around its smallest node. Then links and nodes travel to the bin of their component. Nothing passes the driver but
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.dedup.components import large_star, small_star, spanning_edges, unsettled
from curation.dedup.links import Links
from pipeline.select.candidates import Layout
from pipeline.select.resolve import Bin, node_info
from pipeline.select.steps import task_name
from pipeline.shuffle import partition_count, partition_of, read_partition, write_partitions
from pipeline.storage import Storage

if TYPE_CHECKING:
    from pipeline.select.run import Selector

EDGE_SCHEMA = pa.schema([("u", pa.int64()), ("v", pa.int64())])
MOST_ROUNDS = 100
"""Rounds are O(log^2 nodes) at most, and fewer than ten in practice."""

Edges = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


def shuffle_components(selector: Selector, links: tuple[str, ...], count: int) -> list[Bin]:
    """Deal all links to bins, whole components together.

    Args:
        links: files of links.
        count: links in all of them.

    Returns:
        The bins, for `pipeline.select.resolve.Resolve`.
    """
    storage, steps = selector.storage, selector.steps
    partitions = selector.partitions or partition_count(count, 32)
    owners = list(range(partitions))
    steps.run("edges-0", "components", SpanningEdges(storage, partitions), list(links))
    files, settled, last = len(links), False, "edges-0"
    for turn in range(1, MOST_ROUNDS):
        left = steps.run(f"large-{turn}", "components", LargeStar(storage, last, turn, files, partitions), owners)
        steps.drop(last)
        settled = not sum(item["unsettled"] for item in left)
        if settled:
            break
        steps.run(f"edges-{turn}", "components", SmallStar(storage, turn, partitions), owners)
        steps.drop(f"large-{turn}")
        files, last = partitions, f"edges-{turn}"
    assert settled, "large-star and small-star did not settle"
    stars = f"large-{turn}"
    bins = max(1, -(-count // max(selector.most_links, 1)))
    bins = min(bins, partitions * 64)
    batches = len(selector.layout.batches)
    # A link's label is that of its smaller end: links travel to the owner of that node first.
    steps.run("links-by-node", "components", LinksByNode(storage, partitions), list(links))
    steps.run("links-by-bin", "components", LinksByBin(storage, stars, len(links), partitions, bins), owners)
    steps.drop("links-by-node")
    nodes = NodesByBatch(storage, selector.layout, stars, partitions, batches)
    steps.run("nodes-by-batch", "components", nodes, owners)
    steps.drop(stars)
    by_bin = NodesByBin(storage, selector.layout, len(selector.config.quality), partitions, bins)
    steps.run("nodes-by-bin", "components", by_bin, list(range(batches)))
    steps.drop("nodes-by-batch")
    shuffled = tuple(f"links-by-bin/{task_name(owner)}.arrow" for owner in owners)
    named = tuple(f"nodes-by-bin/{task_name(batch)}.arrow" for batch in range(batches))
    return [Bin(number, None, shuffled, named) for number in range(bins)]


def _write_edges(storage: Storage, name: str, edges: Edges, partitions: int) -> int:
    table = pa.table([edges[0], edges[1]], schema=EDGE_SCHEMA)
    return write_partitions(storage, name, table, _owner(edges[0], partitions), partitions)


def _owner(nodes: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int64]:
    return partition_of(nodes.astype(np.uint64), partitions)


def _read_edges(storage: Storage, names: Sequence[str], partition: int) -> Edges:
    table = read_partition(storage, names, partition)
    return table.column("u").to_numpy(), table.column("v").to_numpy()


def _both(edges: Edges) -> Edges:
    return np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]])


def _names(step: str, files: int) -> list[str]:
    return [f"{step}/{task_name(number)}.arrow" for number in range(files)]


@dataclass(frozen=True)
class SpanningEdges:
    """Map task: the fewest edges that connect what a file of links connects, in both directions."""

    storage: Storage
    partitions: int

    def __call__(self, name: str) -> dict[str, Any]:
        """Publishes a file of `edges-0`."""
        links = Links.from_table(self.storage.read_table(name))
        number = name.replace("/", "-").removesuffix(".parquet")
        edges = _both(spanning_edges(links.a, links.b))
        return {"edges": _write_edges(self.storage, f"edges-0/{number}.arrow", edges, self.partitions)}


@dataclass(frozen=True)
class LargeStar:
    """Reduce task: one large-star turn; edges go to the owner of their larger end. Settled edges are left as stars."""

    storage: Storage
    before: str
    turn: int
    files: int
    partitions: int

    def __call__(self, partition: int) -> dict[str, Any]:
        """Publishes a file of `large-TURN`. Returns how many nodes are not yet in a star."""
        names = [f"{self.before}/{name}" for name in self.storage.names(self.before) if name.endswith(".arrow")]
        assert len(names) == self.files, f"{self.before} has {len(names)} files, expected {self.files}"
        edges = _read_edges(self.storage, names, partition)
        left = unsettled(*edges)
        _write_edges(
            self.storage, f"large-{self.turn}/{task_name(partition)}.arrow", large_star(*edges), self.partitions
        )
        return {"unsettled": left}


@dataclass(frozen=True)
class SmallStar:
    """Reduce task: one small-star turn; edges go to the owners of both ends."""

    storage: Storage
    turn: int
    partitions: int

    def __call__(self, partition: int) -> dict[str, Any]:
        """Publishes a file of `edges-TURN`."""
        turned = small_star(*_read_edges(self.storage, _names(f"large-{self.turn}", self.partitions), partition))
        # Components within the partition are joined at once, which saves rounds.
        edges = spanning_edges(*turned)
        name = f"edges-{self.turn}/{task_name(partition)}.arrow"
        return {"edges": _write_edges(self.storage, name, _both(edges), self.partitions)}


@dataclass(frozen=True)
class LinksByNode:
    """Map task: links to the owner of their smaller end."""

    storage: Storage
    partitions: int

    def __call__(self, name: str) -> dict[str, Any]:
        """Publishes a file of `links-by-node`."""
        table = self.storage.read_table(name)
        number = name.replace("/", "-").removesuffix(".parquet")
        owner = _owner(table.column("a").to_numpy(), self.partitions)
        return {"links": write_partitions(self.storage, f"links-by-node/{number}.arrow", table, owner, self.partitions)}


def _labels(storage: Storage, stars: str, partitions: int, owner: int) -> Edges:
    """Nodes of an owner and the smallest node of their component; smallest nodes themselves are left out."""
    nodes, labels = _read_edges(storage, _names(stars, partitions), owner)
    order = np.argsort(nodes, kind="stable")
    return nodes[order], labels[order]


def _look_up(nodes: npt.NDArray[np.int64], stars: Edges) -> npt.NDArray[np.int64]:
    known, labels = stars
    if not len(known):
        return nodes
    at = np.minimum(np.searchsorted(known, nodes), len(known) - 1)
    return np.where(known[at] == nodes, labels[at], nodes)


@dataclass(frozen=True)
class LinksByBin:
    """Reduce task: links to the bin of their component."""

    storage: Storage
    stars: str
    files: int
    partitions: int
    bins: int

    def __call__(self, owner: int) -> dict[str, Any]:
        """Publishes a file of `links-by-bin`."""
        folder = "links-by-node"
        names = [f"{folder}/{name}" for name in self.storage.names(folder) if name.endswith(".arrow")]
        assert len(names) == self.files, f"{folder} has {len(names)} files, expected {self.files}"
        table = read_partition(self.storage, names, owner)
        label = _look_up(table.column("a").to_numpy(), _labels(self.storage, self.stars, self.partitions, owner))
        name = f"links-by-bin/{task_name(owner)}.arrow"
        return {"links": write_partitions(self.storage, name, table, _owner(label, self.bins), self.bins)}


@dataclass(frozen=True)
class NodesByBatch:
    """Map task: nodes with their labels to the batch of their row. The centre of a star goes with its rays."""

    storage: Storage
    layout: Layout
    stars: str
    partitions: int
    batches: int

    def __call__(self, owner: int) -> dict[str, Any]:
        """Publishes a file of `nodes-by-batch`."""
        nodes, labels = _labels(self.storage, self.stars, self.partitions, owner)
        centres = np.unique(labels)
        nodes, labels = np.concatenate([nodes, centres]), np.concatenate([labels, centres])
        mine = nodes >= 0
        table = pa.table([nodes[mine], labels[mine]], schema=EDGE_SCHEMA)
        name = f"nodes-by-batch/{task_name(owner)}.arrow"
        batch = self.layout.batch_of(nodes[mine])
        return {"nodes": write_partitions(self.storage, name, table, batch, max(self.batches, 1))}


@dataclass(frozen=True)
class NodesByBin:
    """Task: id and quality of a batch's nodes to the bin of their component."""

    storage: Storage
    layout: Layout
    quality: int
    partitions: int
    bins: int

    def __call__(self, batch: int) -> dict[str, Any]:
        """Publishes a file of `nodes-by-bin`."""
        nodes, labels = _read_edges(self.storage, _names("nodes-by-batch", self.partitions), batch)
        # A centre comes once from every owner that has a ray of it.
        nodes, first = np.unique(nodes, return_index=True)
        info = node_info(self.storage, batch, nodes, self.layout, self.quality)
        at = np.searchsorted(nodes, info.column("row").to_numpy())
        name = f"nodes-by-bin/{task_name(batch)}.arrow"
        owner = _owner(labels[first][at], self.bins)
        return {"nodes": write_partitions(self.storage, name, info, owner, self.bins)}
