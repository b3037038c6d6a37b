"""The features of a reference: read from its table, or measured from its pictures by a run of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.config import fingerprint
from curation.decode import DecodeConfig
from curation.dedup.feature_rows import FeatureRows
from curation.features import FEATURE_SCHEMA, FeatureFiles, as_features, feature_schema
from curation.policy import Policy, PolicyConfig
from curation.sources import open_source
from curation.sources.base import Source, Unit
from curation.sources.redact import redact_url
from curation.sources.storage import absolute
from curation.vectors import squares
from pipeline.annotate import AnnotateSpec, FindDone, PoolSizes, annotate, chunks_with_parts
from pipeline.fetch import Reader
from pipeline.plan import ListUnit, Plan, UnitListing, load_plan, make_plan
from pipeline.progress import RunProgress
from pipeline.scores import read_scores
from pipeline.select.references import ReferenceConfig, check_rows, find_table
from pipeline.stages import StageSet
from pipeline.storage import Storage
from pipeline.tasks import run_tasks, slices

_NO_RULES = PolicyConfig.model_validate(
    {name: False if name in ("blocked", "opted_out") else None for name in PolicyConfig.model_fields}
)


def reference_fingerprint(config: ReferenceConfig, stages: StageSet) -> str:
    """Identity of a reference's features: of the listing and the stages that measure it, or of the table's bytes.

    Raises:
        SourceError, ValueError: it cannot be listed or read.
    """
    if config.source is None:
        found = find_table(config, stages)
        # A million rows at most: what is wrong with them is found now, not after days of scoring.
        _usable(config, found.read(), 0)
        return _table_fingerprint(found)
    source = open_source(config.source)
    return _source_fingerprint(config, source, source.units(), reference_stages(config, stages))


def reference_stages(config: ReferenceConfig, stages: StageSet) -> StageSet:
    """The stages that measure a reference: header, screen, and embedding where it is compared."""
    wanted = {"read", "header", "screen", *config.compared}
    return StageSet(tuple(stage for stage in stages if stage.name in wanted), stages.header, stages.screen)


def reference_features(
    storage: Storage,
    config: ReferenceConfig,
    stages: StageSet,
    decode: DecodeConfig,
    progress: RunProgress,
    pools: PoolSizes,
    chunk_rows: int = 256,
    retry: frozenset[str] = frozenset(),
) -> pa.Table:
    """The features of a reference: read from its table, or measured from its pictures.

    Measuring is a run of its own in `work/references/FINGERPRINT` (plan, scores per chunk): it continues where it was
    killed, and is not done again while neither the source nor the stages change.

    Args:
        storage: of the run.
        stages: of the run.
        retry: pictures that failed with one of these reason codes are tried again.

    Returns:
        `curation.features.FEATURE_SCHEMA`, the rows that have anything to compare.

    Raises:
        ValueError: no usable row, or more than `pipeline.select.references.MOST_ROWS`.
        SourceError: the source cannot be listed.
    """
    if config.table is not None:
        return _usable(config, find_table(config, stages).read(), 0, progress)
    assert config.source is not None
    source = open_source(config.source)
    units = source.units()
    mine = reference_stages(config, stages)
    child = storage.child(f"work/references/{_source_fingerprint(config, source, units, mine)}")
    plan = load_plan(child) or _list(child, source, units, chunk_rows, config, progress)
    check_rows(config, plan.inputs)
    spec = AnnotateSpec(child, plan, Reader(child, source), mine, Policy(_NO_RULES, mine.names), decode, retry)
    _measure(spec, config, progress, pools)
    parts = dict(run_tasks(_ReadFeatures(spec), list(range(len(plan)))))
    tables = [parts[chunk] for chunk in range(len(plan))]
    schema = feature_schema(mine.fingerprints)
    table = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks().replace_schema_metadata(schema.metadata)
    return _usable(config, table, plan.inputs - len(table), progress)


@dataclass(frozen=True)
class _ReadFeatures:
    spec: AnnotateSpec

    def __call__(self, chunk: int) -> pa.Table:
        """Features of the pictures of a chunk that could be decoded."""
        scores = read_scores(self.spec.storage, chunk, self.spec.stages, FEATURE_SCHEMA.names)
        return as_features(scores.filter(pc.is_valid(scores.column("phash"))), f"chunk {chunk}")


def _list(
    storage: Storage,
    source: Source,
    units: list[Unit],
    chunk_rows: int,
    config: ReferenceConfig,
    progress: RunProgress,
) -> Plan:
    with progress.stage(f"list {config.name}", len(units), "parts") as stage:

        def run_units(items: list[tuple[int, Unit]]) -> Iterator[tuple[int, UnitListing]]:
            for position, rows in run_tasks(ListUnit(storage, source, chunk_rows), items):
                stage.advance(1)
                yield items[position][0], rows

        return make_plan(storage, source, units, chunk_rows, run_units)


def _measure(spec: AnnotateSpec, config: ReferenceConfig, progress: RunProgress, pools: PoolSizes) -> None:
    chunks = slices(chunks_with_parts(spec), 64)
    done = [item for _, found in run_tasks(FindDone(spec), chunks) for item in found]
    pending = sorted(set(range(len(spec.plan))) - {item.chunk for item in done})
    if not pending:
        return
    rows = sum(item.rows for item in done)
    with progress.stage(f"measure {config.name}", spec.plan.inputs, "images", rows) as stage:
        for summary in annotate(spec, pending, pools):
            stage.advance(summary.rows)


def _source_fingerprint(config: ReferenceConfig, source: Source, units: list[Unit], stages: StageSet) -> str:
    assert config.source is not None
    fields = config.source.model_dump(mode="json", include=set(config.source.identity_fields()))
    fields["path"] = redact_url(absolute(config.source.path))
    return fingerprint(fields, source.fingerprint(units), stages.fingerprints)


def _table_fingerprint(found: FeatureFiles) -> str:
    digest = hashlib.sha256(json.dumps([found.names, found.rows]).encode())
    for name in found.names:
        with found.files.open(name) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def _usable(config: ReferenceConfig, table: pa.Table, unreadable: int, progress: RunProgress | None = None) -> pa.Table:
    """The rows with anything that is compared; what is left out is told."""
    rows = FeatureRows.of(table)
    usable = rows.has_sha256 if config.exact else np.zeros(len(rows), dtype=bool)
    if config.radius is not None:
        usable = usable | rows.has_phash | rows.has_mirrored
    if config.threshold is not None:
        square = squares(rows.vectors)
        usable = usable | (np.isfinite(square) & (square > 0))
    left_out = unreadable + int((~usable).sum())
    columns = ", ".join(
        [*(["sha256"] if config.exact else []), *("phash" if stage == "screen" else stage for stage in config.compared)]
    )
    if not usable.any():
        raise ValueError(
            f"reference {config.name} has no usable row: of {left_out:,}, none has any of {columns}, by which it is "
            "compared. Check that its path holds readable pictures, or that its table has these columns."
        )
    if left_out and progress is not None:
        progress.message(
            f"reference {config.name}: {left_out:,} of {left_out + int(usable.sum()):,} rows could not be read or have "
            f"none of {columns}; nothing is compared with them"
        )
    return table.filter(pa.array(usable))
