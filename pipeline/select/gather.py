"""The first pass of selection: which rows take part, and which of them a reference rules out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.mixing import id_keys
from pipeline.select.candidates import HASH_COLUMNS, Layout, ReadScores, hash_usable
from pipeline.select.duplicates import candidates_name
from pipeline.select.marks import MARK_SCHEMA, marks_name
from pipeline.select.references import MatchReferences
from pipeline.storage import Storage

SAMPLED_HASHES = 256
"""Hashes that a batch reports; from all of them the bands are chosen, which changes the speed and not the result."""


@dataclass(frozen=True)
class Gather:
    """Task: the candidates of a batch.

    Attributes:
        extra: columns that later steps want of each candidate.
        references: compares with evaluation sets and block lists; None when there are none.
    """

    storage: Storage
    read: ReadScores
    layout: Layout
    quality: tuple[str, ...]
    extra: frozenset[str]
    references: MatchReferences | None

    def __call__(self, batch: int) -> dict[str, Any]:
        """Publishes `candidates/NNNNNN.parquet`, and `hits/NNNNNN.parquet` where there are references."""
        wanted = self.extra | {"sha256", *HASH_COLUMNS}
        if self.references is not None and self.references.needs_embedding:
            wanted |= {"embedding"}
        tables, hits = [], [MARK_SCHEMA.empty_table()]
        for group in range(*self.layout.batches[batch]):
            table = self.read.passing(group, self.quality, wanted)
            if self.references is not None:
                marks = self.references(table)
                hits.append(marks)
                table = table.filter(pa.array(~np.isin(table.column("row"), marks.column("row"))))
            tables.append(table.drop_columns(["embedding"]) if "embedding" in table.column_names else table)
        table = pa.concat_tables(tables)
        marks = pa.concat_tables(hits)
        self.storage.write_table(candidates_name(batch), table)
        if self.references is not None:
            self.storage.write_table(marks_name("hits", batch), marks)
        usable = hash_usable(table)
        return {
            "rows": len(table),
            "degenerate": int((~usable).sum()),
            "dropped": dict(Counter(marks.column("reason").to_pylist())),
            "hashes": _sample(table, usable),
        }


def _sample(table: pa.Table, usable: npt.NDArray[np.bool_]) -> list[int]:
    """Hashes of a few rows, the same whatever the order."""
    hashes = table.column("phash").fill_null(0).to_numpy().astype(np.uint64)[usable]
    order = np.argsort(id_keys(table.column("id").filter(pa.array(usable))), kind="stable")
    return [int(value) for value in hashes[order[:SAMPLED_HASHES]]]


def hash_sample(summaries: Sequence[dict[str, Any]]) -> npt.NDArray[np.uint64]:
    """The sampled hashes of all batches: uint64 [s]."""
    return np.array([value for summary in summaries for value in summary["hashes"]], dtype=np.uint64)
