"""References: evaluation sets and block lists. A row that is too near to one of their pictures is dropped.

A reference is a source of pictures, which are measured as the run's own are (`pipeline.select.reference_features`), or
a table of hashes and embeddings (`curation.features`). It is held in memory and sent to every worker, so it is small;
an earlier corpus, which is not, goes into `select.against` (`pipeline.select.corpora`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from curation.config import Config
from curation.dedup.feature_rows import FeatureRows
from curation.dedup.links import Kind
from curation.dedup.references import Reference
from curation.features import FeatureFiles, check_fingerprints, find_features
from curation.sources import AnySourceConfig
from curation.sources.storage import SecretOptions, absolute
from pipeline.select.marks import MARK_SCHEMA, mark_table
from pipeline.stages import StageSet

MOST_ROWS = 1_000_000
"""Rows of a reference: a few gigabytes with embeddings, in every worker."""

_HOW = {
    "screen": "Make the table with this version and configuration of the screen and of decode, or set radius to null.",
    "embedding": "Compute the table with the embedding scorer of this run, or set threshold to null.",
}


class ReferenceConfig(Config):
    """A set of pictures that the corpus must not contain."""

    name: str = Field(min_length=1, max_length=100, description="what the ledger calls it; unique")
    source: AnySourceConfig | None = Field(
        None, description="its pictures, as in the source section; this or table. They are measured in this run"
    )
    table: str | None = Field(
        None,
        min_length=1,
        description="its features: a Parquet file, or a folder of them, with some of the columns id, sha256, phash, "
        "phash_mirrored, phash_degenerate, embedding; this or source. Where the table does not state which stages "
        "measured them, you vouch that they are those of this run",
    )
    table_options: SecretOptions = Field(default_factory=dict, description="fsspec options for table; never stored")
    reason: Literal["contamination", "blocked"] = Field(
        "contamination", description="the reason code of dropped rows: contamination (evaluation set) or blocked"
    )
    exact: bool = Field(True, description="drop rows with the same bytes")
    radius: int | None = Field(
        8, ge=0, le=8, description="largest Hamming distance, bits of 64, of rows that are dropped; null: off"
    )
    threshold: float | None = Field(
        0.9,
        gt=0,
        le=1,
        description="smallest cosine of embeddings of rows that are dropped; null: off. It depends on the embedding: "
        "DINOv2 dropped from 0.45 on (arXiv:2304.07193, appendix A), with embeddings trained to find copies",
    )

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.isprintable() or name != name.strip():
            raise ValueError("a name has printable characters only, and no space at its ends")
        return name

    @model_validator(mode="after")
    def _one_origin(self) -> ReferenceConfig:
        if (self.source is None) == (self.table is None):
            raise ValueError(
                f"reference {self.name}: give exactly one of source (its pictures) and table (its features)"
            )
        if not self.exact and self.radius is None and self.threshold is None:
            raise ValueError(f"reference {self.name}: exact, radius and threshold are all off, so nothing is compared")
        return self

    @property
    def compared(self) -> list[str]:
        """The stages whose columns are compared, beside the bytes."""
        return [stage for stage, limit in (("screen", self.radius), ("embedding", self.threshold)) if limit is not None]


def check_references(configs: Sequence[ReferenceConfig], stages: StageSet) -> None:
    """Find out before the run that the references are there and that the run measures what they are compared by.

    Raises:
        ValueError: two of one name, a threshold without an embedding scorer, or a table that cannot be used: missing,
            too large, of wrong columns, or of another model.
    """
    names = [config.name for config in configs]
    for config in configs:
        shown = f"select.references: {config.name}"
        if names.count(config.name) > 1:
            raise ValueError(f"{shown} is given twice; give each reference its own name")
        if config.threshold is not None and "embedding" not in stages.names:
            raise ValueError(
                f"{shown} has threshold {config.threshold}, and no scorer gives embeddings: configure "
                "scorers.embedding (kind: efficientnet_lite0 or open_clip), or set threshold to null."
            )
        if config.table is not None:
            try:
                find_table(config, stages)
            except ValueError as error:
                raise ValueError(f"{shown}: {error}") from None


def find_table(config: ReferenceConfig, stages: StageSet) -> FeatureFiles:
    """The table of a reference, looked at and not read.

    Raises:
        ValueError: see `check_references`.
    """
    assert config.table is not None
    found = find_features(absolute(config.table), config.table_options)
    check_rows(config, found.num_rows)
    check_fingerprints(found.fingerprints, stages.fingerprints, config.compared, found.shown, _HOW)
    return found


def check_rows(config: ReferenceConfig, rows: int) -> None:
    """Raise a ValueError for more than `MOST_ROWS`."""
    if rows > MOST_ROWS:
        raise ValueError(
            f"reference {config.name} has {rows:,} rows; a reference is sent to every worker and holds at most "
            f"{MOST_ROWS:,}. Export it as a corpus and list its manifest in select.against, or split it."
        )


@dataclass(frozen=True)
class _Loaded:
    config: ReferenceConfig
    rows: Reference
    ids: pa.Array


class MatchReferences:
    """Compares rows of a run with all its references. Picklable: send it to a worker once, call it per group of rows.

    Args:
        references: their configurations and features (`pipeline.select.reference_features`). They are looked at in this
            order, and the first that has a row takes it.
        mirrored: mirrored pictures count as the same.
    """

    def __init__(self, references: Sequence[tuple[ReferenceConfig, pa.Table]], mirrored: bool = False) -> None:
        self.mirrored = mirrored
        self._loaded = []
        for config, table in references:
            rows = FeatureRows.of(table)
            self._loaded.append(_Loaded(config, Reference(rows), rows.id))

    @property
    def needs_embedding(self) -> bool:
        """Whether rows must come with their embedding."""
        return any(loaded.config.threshold is not None for loaded in self._loaded)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Which rows must be dropped.

        Args:
            rows: `row`, and what there is of sha256, phash, phash_mirrored, phash_degenerate, embedding.

        Returns:
            `pipeline.select.marks.MARK_SCHEMA`, in the order of `rows`: the reason, the reference's name, the id of the
            nearest of its rows, and the distance (0 for equal bytes) or the similarity.

        Raises:
            ValueError: embeddings of another length than a reference's.
        """
        left = FeatureRows.of(rows)
        numbers = rows.column("row").to_numpy()
        taken = np.zeros(len(rows), dtype=bool)
        marks = [MARK_SCHEMA.empty_table()]
        order = [np.empty(0, dtype=np.int64)]
        for loaded in self._loaded:
            config = loaded.config
            try:
                hits = loaded.rows.hits(
                    left.take(~taken),
                    exact=config.exact,
                    radius=config.radius,
                    mirrored=self.mirrored,
                    threshold=config.threshold,
                )
            except ValueError as error:
                raise ValueError(f"reference {config.name}: {error}") from error
            at = np.flatnonzero(~taken)[hits.row]
            taken[at] = True
            order.append(at)
            vector = hits.kind == Kind.NEAR_VECTOR
            marks.append(
                mark_table(
                    row=numbers[at],
                    reason=pa.array([config.reason] * len(at), pa.string()),
                    duplicate_of=loaded.ids.take(pa.array(hits.reference)),
                    distance=pa.array(np.where(vector, 0, hits.value).astype(np.int16), mask=vector),
                    similarity=pa.array(hits.value.astype(np.float32), mask=~vector),
                    reference=pa.array([config.name] * len(at), pa.string()),
                )
            )
        return pa.concat_tables(marks).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))
