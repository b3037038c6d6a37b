"""From links to survivors: stars among the rows that have any link, in order of quality.

When the links fit one task they are resolved in one; beyond, connected components are found on the cluster
(`pipeline.select.components`), packed into bins, and the bins resolved in parallel. Rows of different components have
nothing to do with each other, so both give the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curation.dedup import quality_order
from curation.dedup.links import Kind, Links
from curation.dedup.stars import Stars, removed_curve, resolve_links
from curation.reasons import Reason
from pipeline.select.candidates import Layout
from pipeline.select.corpora import Corpora
from pipeline.select.duplicates import candidates_name
from pipeline.select.marks import mark_table, marks_name
from pipeline.select.steps import task_name
from pipeline.shuffle import read_partition, write_partitions
from pipeline.storage import Storage

REASONS = {
    Kind.SAME_BYTES: Reason.EXACT_DUPLICATE,
    Kind.NEAR_HASH: Reason.NEAR_DUPLICATE,
    Kind.NEAR_VECTOR: Reason.SEMANTIC_DUPLICATE,
}
RESOLVED_SCHEMA = pa.schema(
    [
        ("row", pa.int64()), ("kind", pa.int8()), ("value", pa.float32()), ("duplicate_of", pa.string()),
        ("reference", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Curves:
    """At which radii and cosines it is counted how many rows would go.

    Attributes:
        radii: Hamming distances, bits.
        cosines: thresholds.
    """

    radii: tuple[int, ...]
    cosines: tuple[float, ...]


@dataclass(frozen=True)
class Bin:
    """What one resolving task reads.

    Attributes:
        number: of the bin.
        links: files of links; None for the bin's partition of the shuffled ones (`pipeline.select.components`).
        shuffled: files that `links` and the nodes were shuffled into.
    """

    number: int
    links: tuple[str, ...] | None
    shuffled: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resolve:
    """Task: the stars of a bin, sent to the batches of their rows."""

    storage: Storage
    layout: Layout
    corpora: Corpora
    quality: int
    curves: Curves

    def __call__(self, work: Bin) -> dict[str, Any]:
        """Publishes `resolved/BBBBBB.arrow`. Returns counts for the summary."""
        links = self._links(work)
        nodes = np.unique(np.concatenate([links.a, links.b]))
        info = self._info(work, nodes)
        rank = np.zeros(len(nodes), np.int64)
        own = nodes >= 0
        order = quality_order(qualities(info, self.quality), np.array(info.column("id").to_pylist(), dtype=np.bytes_))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        rank[own] = ranks
        stars = resolve_links(links, nodes, rank)
        self._publish(work.number, stars, info)
        return {
            "dropped": len(stars.row),
            "group_sizes": _group_sizes(stars),
            "curve_radii": removed_curve(links, nodes, rank, "hash", self.curves.radii).tolist(),
            "curve_cosines": removed_curve(links, nodes, rank, "vector", self.curves.cosines).tolist(),
        }

    def _links(self, work: Bin) -> Links:
        if work.links is not None:
            return Links.concat(Links.from_table(self.storage.read_table(name)) for name in work.links)
        return Links.from_table(read_partition(self.storage, work.shuffled, work.number))

    def _info(self, work: Bin, nodes: npt.NDArray[np.int64]) -> pa.Table:
        """Id and quality of the nodes of this run, ascending by row."""
        if work.nodes:
            return read_partition(self.storage, work.nodes, work.number).combine_chunks().sort_by("row")
        return pa.concat_tables(
            [node_info(self.storage, batch, nodes, self.layout, self.quality) for batch in range(self._batches)]
        ).combine_chunks()

    @property
    def _batches(self) -> int:
        return len(self.layout.batches)

    def _publish(self, number: int, stars: Stars, info: pa.Table) -> None:
        ids = info.column("id")
        position = np.searchsorted(info.column("row").to_numpy(), np.maximum(stars.keeper, 0))
        earlier = stars.keeper < 0
        position[earlier] = 0
        names = ids.take(pa.array(position)).to_pylist()
        references: list[str | None] = [None] * len(names)
        if earlier.any():
            where = np.flatnonzero(earlier)
            found = self.corpora.row_names(-1 - stars.keeper[where])
            for at, (corpus, name) in zip(where.tolist(), found, strict=True):
                names[at], references[at] = name, corpus
        table = pa.table(
            [stars.row, stars.kind, stars.value, pa.array(names, pa.string()), pa.array(references, pa.string())],
            schema=RESOLVED_SCHEMA,
        )
        write_partitions(
            self.storage, resolved_name(number), table, self.layout.batch_of(stars.row), max(self._batches, 1)
        )


def qualities(info: pa.Table, count: int) -> npt.NDArray[np.float64]:
    """The quality columns: float64 [n, k]."""
    if not count:
        return np.zeros((len(info), 1))
    return np.stack([info.column(f"quality_{position}").to_numpy() for position in range(count)], axis=1)


def node_info(storage: Storage, batch: int, nodes: npt.NDArray[np.int64], layout: Layout, quality: int) -> pa.Table:
    """Row, id and quality of a batch's candidates that are among `nodes` (ascending)."""
    low, high = np.searchsorted(nodes, layout.first_row[batch : batch + 2])
    columns = ["row", "id", *(f"quality_{position}" for position in range(quality))]
    table = storage.read_table(candidates_name(batch), columns)
    if low == high:
        return table.slice(0, 0)
    return table.filter(pc.is_in(table.column("row"), pa.array(nodes[low:high])))


def resolved_name(number: int) -> str:
    """Where a bin's stars are."""
    return f"resolved/{task_name(number)}.arrow"


def _group_sizes(stars: Stars) -> dict[str, int]:
    """Rows in a group (the kept one included) -> number of groups; groups around a row of an earlier corpus apart."""
    _, counts = np.unique(stars.keeper[stars.keeper >= 0], return_counts=True)
    return {str(size): number for size, number in sorted(Counter((counts + 1).tolist()).items())}


@dataclass(frozen=True)
class MarkStars:
    """Task: the stars of a batch as marks."""

    storage: Storage
    bins: int

    def __call__(self, batch: int) -> dict[str, Any]:
        """Publishes `stars/NNNNNN.parquet`. Returns rows per reason."""
        table = read_partition(self.storage, [resolved_name(number) for number in range(self.bins)], batch)
        marks = star_marks(table.combine_chunks())
        self.storage.write_table(marks_name("stars", batch), marks)
        return dict(Counter(marks.column("reason").to_pylist()))


def star_marks(table: pa.Table) -> pa.Table:
    """Marks of dropped rows (`RESOLVED_SCHEMA`)."""
    kind = table.column("kind").to_numpy()
    value = table.column("value").to_numpy()
    reference = table.column("reference")
    by_kind = np.array([REASONS.get(one) for one in Kind], dtype=object)
    reasons = by_kind[kind]
    reasons[reference.is_valid().to_numpy(zero_copy_only=False)] = str(Reason.IN_CORPUS)
    vector = kind == Kind.NEAR_VECTOR
    return mark_table(
        row=table.column("row").to_numpy(),
        reason=pa.array(reasons, pa.string()),
        duplicate_of=table.column("duplicate_of").combine_chunks(),
        distance=pa.array(np.where(vector, 0, value).astype(np.int16), mask=vector),
        similarity=pa.array(value, pa.float32(), mask=~vector),
        reference=reference.combine_chunks(),
    ).sort_by("row")


def sum_summaries(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts of all bins together."""
    sizes: Counter[str] = Counter()
    for summary in summaries:
        sizes.update(summary["group_sizes"])
    return {
        "dropped": sum(summary["dropped"] for summary in summaries),
        "group_sizes": dict(sorted(sizes.items(), key=lambda item: int(item[0]))),
        **{
            name: np.sum([summary[name] for summary in summaries], axis=0).astype(int).tolist()
            for name in ("curve_radii", "curve_cosines")
            if summaries
        },
    }
