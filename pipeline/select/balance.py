"""A budget of rows, spread over clusters of embeddings and strata of columns.

The hierarchy is fitted on a sample, every row that is left is assigned to a leaf and a stratum, budgets flow down by
water-filling over the counts of these cells, and rows are shuffled by cell to pick each cell's share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.balance import (
    NO_LEAF,
    BalanceConfig,
    Hierarchy,
    cell_quotas,
    hierarchical_kmeans,
    pick_rows,
    strata,
    stratum_names,
    summarise,
)
from curation.mixing import id_keys
from curation.reasons import Reason
from curation.vectors import cosines, unit_rows
from pipeline.select.candidates import Layout, ReadScores
from pipeline.select.duplicates import candidates_name
from pipeline.select.marks import KeptRows, mark_table, marks_name
from pipeline.select.neighbours import SampleVectors, load_arrays, read_sample, save_arrays
from pipeline.select.steps import task_name
from pipeline.shuffle import partition_of, read_partition, write_partitions
from pipeline.storage import Storage

if TYPE_CHECKING:
    from pipeline.select.run import Selector

HIERARCHY = "hierarchy.npz"
QUOTAS = "quotas.npz"
CELL_SCHEMA = pa.schema(
    [
        ("row", pa.int64()), ("leaf", pa.int64()), ("stratum", pa.int64()), ("key_0", pa.uint64()),
        ("key_1", pa.uint64()), ("cosine", pa.float64()),
    ]
)  # fmt: skip
PICK_SCHEMA = pa.schema([("row", pa.int64()), ("cell", pa.int64()), ("picked", pa.bool_())])


def balance(selector: Selector, dropped: tuple[str, ...]) -> dict[str, Any]:
    """Run the steps of balancing; marks go to `cells`.

    Args:
        selector: the selection.
        dropped: folders of marks of earlier steps.

    Returns:
        The summary of `curation.balance.summarise`, with budget and rows.
    """
    config = selector.config.balance
    assert config is not None
    storage, steps, batches = selector.storage, selector.steps, selector.batches
    kept = KeptRows(storage, dropped)
    rows = sum(item["rows"] for item in steps.run("left", "balance", CountKept(storage, kept), batches))
    train_rows = config.train_rows or 256 * config.levels[0]
    share = train_rows / max(rows, 1)
    sample = SampleVectors(storage, selector.read, selector.layout, "balance-sample", share, config.seed, kept)
    steps.run("balance-sample", "sample", sample, batches)
    threads = selector.threads()
    fit = FitHierarchy(storage, config, len(batches))
    (fitted,) = steps.run("balance-fit", "clusters", fit, [None], num_cpus=threads, threads=threads)
    if rows and not fitted["trained_on"]:
        steps.progress.message("balance: no sampled row has an embedding, so that only strata are balanced")
    steps.drop("balance-sample")
    partitions = selector.shuffle_partitions(rows, 60)
    assign = AssignCells(storage, selector.read, selector.layout, config, kept, partitions)
    steps.run("assigned", "clusters", assign, batches)
    (summary,) = steps.run("quotas", "balance", FillQuotas(storage, config, len(batches)), [rows])
    pick = PickRows(storage, selector.layout, config, len(batches))
    steps.run("picked", "balance", pick, list(range(partitions)))
    steps.run("cells", "balance", MarkCells(storage, config, partitions), batches)
    steps.drop("assigned", "picked")
    return summary


@dataclass(frozen=True)
class CountKept:
    """Task: how many candidates of a batch are left."""

    storage: Storage
    kept: KeptRows

    def __call__(self, batch: int) -> dict[str, Any]:
        """Returns `rows`."""
        return {"rows": len(self.kept(batch, self.storage.read_table(candidates_name(batch), ["row"])))}


@dataclass(frozen=True)
class FitHierarchy:
    """One task: hierarchical k-means on the sample."""

    storage: Storage
    config: BalanceConfig
    batches: int

    def __call__(self, _: None) -> dict[str, Any]:
        """Publishes `hierarchy.npz`."""
        vectors, usable = unit_rows(read_sample(self.storage, "balance-sample", self.batches))
        hierarchy = hierarchical_kmeans(
            vectors[usable],
            self.config.levels,
            seed=self.config.seed,
            iterations=self.config.iterations,
            train_rows=max(len(vectors), 1),
            resample=self.config.resample,
            resample_members=self.config.resample_members,
        )
        self.storage.write_bytes(HIERARCHY, hierarchy.to_bytes())
        return {"clusters": [len(level) for level in hierarchy.centroids], "trained_on": int(usable.sum())}


def load_hierarchy(storage: Storage) -> Hierarchy:
    """The fitted hierarchy."""
    return Hierarchy.from_bytes(storage.read_bytes(HIERARCHY))


@dataclass(frozen=True)
class AssignCells:
    """Map task: leaf and stratum of every row that is left, sent to the partition of the cell."""

    storage: Storage
    read: ReadScores
    layout: Layout
    config: BalanceConfig
    kept: KeptRows
    partitions: int

    def __call__(self, batch: int) -> dict[str, Any]:
        """Publishes `assigned/NNNNNN.arrow`, and the counts of its cells as `assigned/NNNNNN.npz`."""
        table = self.kept(batch, self.storage.read_table(candidates_name(batch)))
        rows = table.column("row").to_numpy()
        leaf = np.full(len(rows), NO_LEAF, np.int64)
        cosine = np.full(len(rows), np.nan)
        hierarchy = load_hierarchy(self.storage)
        for found, vectors in self.read.embeddings(self.layout.batches[batch], rows):
            unit, usable = unit_rows(vectors)
            at = np.searchsorted(rows, found[usable])
            if len(at) and hierarchy.leaves:
                leaf[at] = hierarchy.assign(unit[usable])
                if self.config.pick != "random":
                    cosine[at] = cosines(unit[usable], hierarchy.centroids[0][leaf[at]])
        codes, names = strata(table, self.config.strata)
        stratum = codes.astype(np.int64)
        # Other keys than those of the training sample, so that it is not the rows that were trained on which stay.
        keys = [id_keys(table.column("id"), self.config.seed + offset) for offset in (1, 2)]
        cell = cell_codes(leaf, stratum, len(names))
        records = pa.table([rows, leaf, stratum, *keys, cosine], schema=CELL_SCHEMA)
        partition = partition_of(cell.astype(np.uint64), self.partitions)
        write_partitions(self.storage, f"assigned/{task_name(batch)}.arrow", records, partition, self.partitions)
        distinct, counts = np.unique(cell, return_counts=True)
        save_arrays(self.storage, f"assigned/{task_name(batch)}.npz", cell=distinct, count=counts)
        return {"rows": len(rows)}


def cell_codes(leaf: npt.NDArray[np.int64], stratum: npt.NDArray[np.int64], strata: int) -> npt.NDArray[np.int64]:
    """One number, 0 or more, for each (leaf, stratum)."""
    return (leaf + 1) * strata + stratum


@dataclass(frozen=True)
class FillQuotas:
    """One task: budgets of all cells."""

    storage: Storage
    config: BalanceConfig
    batches: int

    def __call__(self, rows: int) -> dict[str, Any]:
        """Publishes `quotas.npz`. Returns the summary."""
        parts = [load_arrays(self.storage, f"assigned/{task_name(batch)}.npz") for batch in range(self.batches)]
        cell, where = np.unique(np.concatenate([part["cell"] for part in parts]), return_inverse=True)
        count = np.zeros(len(cell), np.int64)
        np.add.at(count, where, np.concatenate([part["count"] for part in parts]))
        names = stratum_names(self.config.strata)
        leaf, stratum = cell // len(names) - 1, cell % len(names)
        parents = load_hierarchy(self.storage).parents
        budget = self.config.rows(rows)
        quota = cell_quotas(
            leaf, stratum, count, parents, budget, order=self.config.strata_order, seed=self.config.seed
        )
        save_arrays(self.storage, QUOTAS, cell=cell, count=count, quota=quota)
        return {
            "budget": budget,
            "rows": {"before": rows, "after": int(quota.sum())},
            **summarise(leaf, stratum, count, quota, parents, names),
        }


@dataclass(frozen=True)
class PickRows:
    """Reduce task: the rows of each cell that stay."""

    storage: Storage
    layout: Layout
    config: BalanceConfig
    batches: int

    def __call__(self, partition: int) -> dict[str, Any]:
        """Publishes `picked/PPPPPP.arrow`, sent to the batches of the rows."""
        files = [f"assigned/{task_name(batch)}.arrow" for batch in range(self.batches)]
        table = read_partition(self.storage, files, partition)
        quotas = load_arrays(self.storage, QUOTAS)
        leaf, stratum = table.column("leaf").to_numpy(), table.column("stratum").to_numpy()
        cell = np.searchsorted(quotas["cell"], cell_codes(leaf, stratum, len(stratum_names(self.config.strata))))
        # Numbered from 0 within the partition, whose cells are all here.
        present, local = np.unique(cell, return_inverse=True)
        keys = np.stack([table.column("key_0").to_numpy(), table.column("key_1").to_numpy()], axis=1)
        picked = pick_rows(local, quotas["quota"][present], keys, self.config.pick, table.column("cosine").to_numpy())
        rows = table.column("row").to_numpy()
        records = pa.table([rows, cell, picked], schema=PICK_SCHEMA)
        name = f"picked/{task_name(partition)}.arrow"
        write_partitions(self.storage, name, records, self.layout.batch_of(rows), max(self.batches, 1))
        return {"rows": int(picked.sum())}


@dataclass(frozen=True)
class MarkCells:
    """Task: cluster and stratum of the rows of a batch, and which of them are over their share."""

    storage: Storage
    config: BalanceConfig
    partitions: int

    def __call__(self, batch: int) -> dict[str, Any]:
        """Publishes `cells/NNNNNN.parquet`. Returns the number of rows dropped."""
        files = [f"picked/{task_name(partition)}.arrow" for partition in range(self.partitions)]
        table = read_partition(self.storage, files, batch).combine_chunks().sort_by("row")
        quotas = load_arrays(self.storage, QUOTAS)
        names = np.array(stratum_names(self.config.strata), dtype=object)
        cell = table.column("cell").to_numpy()
        leaf, stratum = quotas["cell"][cell] // len(names) - 1, quotas["cell"][cell] % len(names)
        over = ~table.column("picked").to_numpy(zero_copy_only=False)
        detail = np.full(len(cell), None, dtype=object)
        for at in np.flatnonzero(over).tolist():
            detail[at] = f"{quotas['quota'][cell[at]]} of the {quotas['count'][cell[at]]} rows of its cell stay"
        marks = mark_table(
            row=table.column("row").to_numpy(),
            reason=pa.array(np.full(len(cell), str(Reason.OVER_REPRESENTED)), pa.string(), mask=~over),
            detail=pa.array(detail, pa.string()),
            cluster=leaf,
            stratum=pa.array(names[stratum], pa.string()),
        )
        self.storage.write_table(marks_name("cells", batch), marks)
        return {"dropped": int(over.sum())}
