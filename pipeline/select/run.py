"""The steps of selection in order. Each finds out what is there already and does the rest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ray

from curation.balance import required_columns
from curation.dedup.neighbours import partitions_for, training_rows
from pipeline.plan import Plan
from pipeline.select.balance import balance
from pipeline.select.candidates import Layout, ReadScores
from pipeline.select.components import shuffle_components
from pipeline.select.config import SelectConfig
from pipeline.select.corpora import Corpora
from pipeline.select.duplicates import (
    LinkBytes,
    LinkHashes,
    ReadRows,
    ShuffleKeys,
    all_rows,
    hash_bands,
    links_name,
)
from pipeline.select.gather import Gather, hash_sample
from pipeline.select.marks import GroupMarks
from pipeline.select.neighbours import (
    LinkVectors,
    SampleCorpora,
    SampleVectors,
    ShuffleVectors,
    TrainPartitions,
    vectors_name,
)
from pipeline.select.references import MatchReferences
from pipeline.select.resolve import Bin, Curves, MarkStars, Resolve, sum_summaries
from pipeline.select.steps import Steps
from pipeline.shuffle import partition_count
from pipeline.storage import Storage

MOST_LINKS = 4_000_000
"""Links that one task resolves (about a gigabyte of working memory); beyond, components are resolved in parallel."""

CURVE_COSINES = 6
"""Points of the curve over cosines, from the threshold to 1."""


@dataclass(frozen=True)
class Selection:
    """A finished selection.

    Attributes:
        storage: its folder, `work/select/KEY`.
        marks: folders in it that hold what it says of rows, per batch.
        summary: counts for `selection/summary.json`.
    """

    storage: Storage
    layout: Layout
    marks: tuple[str, ...]
    summary: dict[str, Any]

    def group_marks(self) -> GroupMarks:
        """What the ledger reads."""
        return GroupMarks(self.storage, self.layout.first_row, self.marks)


@dataclass(frozen=True)
class Selector:
    """Selects among the rows of a run.

    Attributes:
        steps: runs steps in the folder of this selection.
        read: reads the run's scores.
        partitions: of each shuffle; None for what the data ask for. Changes no result.
        most_links: see `MOST_LINKS`.
    """

    steps: Steps
    read: ReadScores
    config: SelectConfig
    references: MatchReferences | None
    corpora: Corpora
    partitions: int | None = None
    most_links: int = MOST_LINKS

    @property
    def storage(self) -> Storage:
        """The folder of the selection."""
        return self.steps.storage

    @property
    def plan(self) -> Plan:
        """The rows of the run."""
        return self.read.plan

    @cached_property
    def layout(self) -> Layout:
        """How rows are dealt to tasks."""
        return Layout(self.plan)

    @property
    def batches(self) -> list[int]:
        """The batches of rows."""
        return list(range(len(self.layout.batches)))

    def __call__(self) -> Selection:
        """Bring the selection to its end."""
        config = self.config
        if not self.batches:  # a source without a picture: nothing to select among, and no table to read
            return Selection(self.storage, self.layout, (), {"candidates": 0, "degenerate_hashes": 0, "references": {}})
        columns = frozenset(required_columns(config.balance.strata)) if config.balance is not None else frozenset()
        gather = Gather(self.storage, self.read, self.layout, config.quality, columns, self.references)
        gathered = self.steps.run("candidates", "select", gather, self.batches)
        rows = sum(item["rows"] for item in gathered)
        links = [*self._same_and_near(gathered, rows), *self._neighbours(rows)]
        summary: dict[str, Any] = {
            "candidates": rows,
            "degenerate_hashes": sum(item["degenerate"] for item in gathered),
            "references": _sum_counts([item["dropped"] for item in gathered]),
        }
        folders: list[str] = ["hits"] if self.references is not None else []
        if links:
            summary["duplicates"] = self._resolve(links)
            folders.append("stars")
        if config.balance is not None:
            summary["balance"] = balance(self, tuple(folders))
            folders.append("cells")
        return Selection(self.storage, self.layout, tuple(folders), summary)

    def shuffle_partitions(self, rows: int, bytes_per_row: float) -> int:
        """How many partitions to shuffle into."""
        return self.partitions or partition_count(rows, bytes_per_row)

    def threads(self) -> int:
        """Threads of a task that has a machine for itself."""
        return cores_of_a_node()

    def _same_and_near(self, gathered: list[dict[str, Any]], rows: int) -> list[str]:
        """Links of equal bytes and near hashes: names of their files."""
        config = self.config
        near = config.near_duplicates
        bands = hash_bands(config, hash_sample(gathered))
        if not (config.exact_duplicates or bands):
            return []
        mirrored = near is not None and near.mirrored
        everything = all_rows(len(self.batches), self.corpora)
        record_bytes = 24 + (2 * 26 if mirrored else 17) * len(bands)
        partitions = self.shuffle_partitions(rows + self.corpora.rows, record_bytes)
        keys = ShuffleKeys(
            self.storage, ReadRows(self.storage, self.corpora), config.exact_duplicates, mirrored, bands, partitions
        )
        self.steps.run("keys", "hashes", keys, everything)
        files = len(everything)
        work = list(range(partitions))
        names: list[str] = []
        if config.exact_duplicates:
            self.steps.run("links-bytes", "copies", LinkBytes(self.storage, files), work)
            names += [links_name("bytes", partition) for partition in work]
        if near is not None:
            search = LinkHashes(self.storage, files, bands, near.radius, mirrored)
            self.steps.run("links-bands", "near", search, work)
            names += [links_name("bands", partition) for partition in work]
        self.steps.drop("keys")
        return names

    def _neighbours(self, rows: int) -> list[str]:
        """Links of near embeddings: names of their files."""
        config = self.config.semantic_duplicates
        if config is None:
            return []
        everything = all_rows(len(self.batches), self.corpora)
        total = rows + self.corpora.rows
        wanted = partitions_for(total, config)
        share = training_rows(wanted, config.train_rows) / max(total, 1)
        sample = SampleVectors(self.storage, self.read, self.layout, "sample", share, config.seed)
        self.steps.run("sample", "sample", sample, self.batches)
        earlier = SampleCorpora(self.storage, self.corpora, "sample", share, config.seed, len(self.batches))
        self.steps.run("sample-corpora", "sample", earlier, list(range(len(self.corpora.files))))
        threads = self.threads()
        train = TrainPartitions(self.storage, config, len(everything))
        (trained,) = self.steps.run("train", "k-means", train, [wanted], num_cpus=threads, threads=threads)
        self.steps.drop("sample")
        record_bytes = 2 * trained["dimensions"] + 4 * config.assignments + 12
        partitions = min(
            self.shuffle_partitions(total * config.assignments, record_bytes), max(1, trained["partitions"])
        )
        reader = ReadRows(self.storage, self.corpora)
        shuffle = ShuffleVectors(self.storage, self.read, self.layout, reader, config.assignments, partitions)
        shuffled = self.steps.run("vectors", "vectors", shuffle, everything)
        files = tuple(
            vectors_name(rows.number, part)
            for rows, item in zip(everything, shuffled, strict=True)
            for part in range(item["files"])
        )
        search = LinkVectors(self.storage, files, config.threshold)
        self.steps.run("links-vectors", "neighbours", search, list(range(partitions)))
        self.steps.drop("vectors")
        return [links_name("vectors", partition) for partition in range(partitions)]

    def _resolve(self, links: list[str]) -> dict[str, Any]:
        config = self.config
        curves = Curves(
            tuple(range(config.near_duplicates.radius + 1)) if config.near_duplicates is not None else (),
            curve_cosines(config.semantic_duplicates.threshold) if config.semantic_duplicates is not None else (),
        )
        counts = self._link_counts()
        if sum(counts.values()) <= self.most_links:
            bins = [Bin(0, tuple(links))]
        else:
            bins = shuffle_components(self, tuple(links), sum(counts.values()))
        resolve = Resolve(self.storage, self.layout, self.corpora, len(config.quality), curves)
        summaries = self.steps.run("resolved", "resolve", resolve, bins)
        marked = self.steps.run("stars", "resolve", MarkStars(self.storage, len(bins)), self.batches)
        self.steps.drop("links-bytes", "links-bands", "links-vectors", "resolved")
        total = sum_summaries(summaries)
        return {
            "links": counts,
            "dropped": _sum_counts(marked),
            "groups_by_size": total["group_sizes"],
            "removed_by_radius": dict(zip(map(str, curves.radii), total["curve_radii"], strict=True)),
            "removed_by_cosine": dict(zip(map(str, curves.cosines), total["curve_cosines"], strict=True)),
        }

    def _link_counts(self) -> dict[str, int]:
        counts = {}
        for kind in ("bytes", "bands", "vectors"):
            record = self.storage.read_json(f"links-{kind}/complete.json")
            if record is not None:
                counts[kind] = sum(item["links"] for item in record["tasks"])
        return counts


def curve_cosines(threshold: float) -> tuple[float, ...]:
    """Thresholds of the curve over cosines: from the configured one to 1."""
    step = (1 - threshold) / (CURVE_COSINES - 1)
    return tuple(round(threshold + step * position, 6) for position in range(CURVE_COSINES))


def cores_of_a_node() -> int:
    """Cores of the largest node: what one task may ask for."""
    return max(1, int(max(node.get("Resources", {}).get("CPU", 1) for node in ray.nodes() if node.get("Alive", True))))


def _sum_counts(records: list[dict[str, int]]) -> dict[str, int]:
    names = sorted({name for record in records for name in record})
    return {name: sum(record.get(name, 0) for record in records) for name in names}
