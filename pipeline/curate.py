"""Curate: list, annotate, select, export. Every step finds out what is already there and does the rest."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray

from curation.config import fingerprint
from curation.dataset_card import ModelFact
from curation.policy import Policy
from curation.scorers.config import build_scorers
from curation.scorers.header import HeaderScorer
from curation.scorers.screen import ScreenScorer
from curation.sources import open_source
from curation.sources.base import Source, SourceError, Unit
from curation.sources.unused import unused_message
from pipeline.annotate import AnnotateSpec, FindDone, PoolSizes, annotate, chunks_with_parts
from pipeline.card import known_limits, shown_selection
from pipeline.config import ConfigError, PopulaceConfig
from pipeline.damage import forget_damage
from pipeline.export import MANIFEST, SHARDS, ExportFacts, check_sidecar, export
from pipeline.fetch import Reader
from pipeline.ledger import (
    LEDGER_FORMATS,
    STAGING,
    LedgerPart,
    LedgerWriter,
    complete_record,
    ledger_record,
    publish_ledger,
)
from pipeline.lineage import LINEAGE, lineage, write_lineage
from pipeline.logs import run_log
from pipeline.plan import ListUnit, Plan, UnitListing, load_plan, make_plan
from pipeline.progress import RunProgress
from pipeline.resources import ray_cluster
from pipeline.rundir import RunDirectory
from pipeline.scores import part_name
from pipeline.select import ReadScores, Selector, Steps, check_select
from pipeline.select.corpora import Corpora, load_corpora
from pipeline.select.reference_features import reference_features, reference_fingerprint
from pipeline.select.references import MatchReferences
from pipeline.select.summary import outcome, summary_record, write_summary
from pipeline.source_check import check_source
from pipeline.stages import StageSet, assemble
from pipeline.storage import DamagedFileError, Storage
from pipeline.tasks import run_tasks, slices
from pipeline.verify import Damage, discard, verify

log = logging.getLogger(__name__)

DIRTY = "work/dirty"
SELECT = "work/select"
RETRYABLE = frozenset({"missing", "read_error", "download_failed", "http_error", "scorer_failed", "worker_crashed"})
"""Reasons that another try may change."""


@dataclass(frozen=True)
class CurateResult:
    """What a finished run is."""

    output: str
    inputs: int
    kept: int
    dropped: dict[str, int]
    shards: int
    annotated: int
    """Rows of chunks that were measured in this call."""
    damages: tuple[Damage, ...] = ()
    """What was found damaged, and mended, but for checkpoints of training."""


def curate(
    config: PopulaceConfig, progress: RunProgress, new: bool = False, retry: bool = False, check: bool = False
) -> CurateResult:
    """Bring a run directory to the state that the configuration asks for.

    Args:
        new: set an existing run aside first.
        retry: measure rows again that failed for a reason which another try may change (`RETRYABLE`).
        check: read every byte of what is there first, and make anew what is damaged; else a finished run has a sample
            of its files checked.

    Raises:
        ConfigError, SourceError, MissingWeightsError, RunConflictError: before any work starts.
    """
    # Everything that can be wrong with the set-up is found out before the cluster starts.
    stages = build_stages(config)
    corpora = find_corpora(config, stages)
    references = find_references(config, stages)
    policy = Policy(config.policy, stages.names)
    idle = policy.unmeasured_rules(stages.names)
    if idle:
        raise ConfigError(
            f"policy.{idle[0].value} is set, and no configured scorer measures what it looks at; configured: "
            f"{', '.join(stages.names)}. Configure the scorer, or set the rule to null."
        )
    source = open_source(config.pool)
    units = source.units()
    run = RunDirectory(config.output, config.identity(), new)
    with run.working():
        check_source(run.storage, source, units)
        with run_log(run.log_folder), ray_cluster(config.ray, run.log_folder):
            return _Curate(config, run, stages, policy, source, units, references, corpora, progress, retry, check)()


def build_stages(config: PopulaceConfig) -> StageSet:
    """The stages that a configuration asks for, with weights found and hashed.

    Raises:
        MissingWeightsError: a scorer's weights or package are absent.
        ConfigError: a scorer needs a column that no other gives, or selection orders by a column that there is not.
    """
    header, screen = HeaderScorer(config.decode), ScreenScorer(config.scorers.screen, config.decode)
    try:
        stages = assemble(build_scorers(config.scorers), header, screen, fingerprint(config.decode))
        check_select(config.select, stages)
        check_sidecar(config.export, [name for stage in stages for name in stage.columns])
        return stages
    except ValueError as error:
        raise ConfigError(str(error)) from None


def find_references(config: PopulaceConfig, stages: StageSet) -> dict[str, str]:
    """Name of each reference -> fingerprint of what it holds and of the stages that measure it.

    Raises:
        ConfigError: one cannot be read, or holds nothing to compare with.
    """
    found = {}
    for item in config.select.references:
        try:
            found[item.name] = reference_fingerprint(item, stages)
        except (ValueError, SourceError) as error:
            text = str(error).removeprefix("source.path: ")
            raise ConfigError(f"select.references: {item.name}: {text}") from None
    return found


def find_corpora(config: PopulaceConfig, stages: StageSet) -> Corpora:
    """The earlier corpora that a configuration names.

    Raises:
        ConfigError: one cannot be used.
    """
    try:
        return load_corpora(
            config.select.against,
            stages,
            hashes=config.select.near_duplicates is not None,
            embeddings=config.select.semantic_duplicates is not None,
            output=Storage(config.output),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


@dataclass
class _Curate:
    config: PopulaceConfig
    run: RunDirectory
    stages: StageSet
    policy: Policy
    source: Source
    units: list[Unit]
    references: dict[str, str]
    corpora: Corpora
    progress: RunProgress
    retry: bool
    check: bool

    @property
    def storage(self) -> Storage:
        return self.run.storage

    def __call__(self) -> CurateResult:
        damages = self._check()
        plan = self._plan()
        if plan.inputs == 0:
            self.progress.message(f"{self.config.pool.path} holds no image: the ledger and the corpus will be empty")
        spec = AnnotateSpec(
            self.storage,
            plan,
            Reader(self.storage, self.source),
            self.stages,
            self.policy,
            self.config.decode,
            RETRYABLE if self.retry else frozenset(),
        )
        annotated = self._annotate(spec)
        try:
            record = self._ledger(plan)
        except DamagedFileError:
            # Of columns that no limit looks at, only selection and the ledger find out.
            again = self._annotate(spec, whole=True)
            if not again:
                raise
            annotated += again
            record = self._ledger(plan)
        manifest = self._export(plan, record, spec.reader)
        manifest_bytes = self.storage.read_bytes(f"{SHARDS}/{MANIFEST}")
        write_lineage(
            self.storage,
            lineage(
                self.config,
                plan,
                self.stages,
                record,
                hashlib.sha256(manifest_bytes).hexdigest(),
                self.references,
                self.corpora.corpora,
            ),
        )
        forget_damage(self.storage)
        return CurateResult(
            self.storage.root,
            record["rows"],
            record["kept"],
            record["dropped"],
            len(manifest["shards"]),
            annotated,
            damages,
        )

    def _check(self) -> tuple[Damage, ...]:
        """Look for damage in what is there already: in all of it when that is asked for, else in a sample."""
        storage = self.storage
        if not self.check and not storage.exists(LINEAGE):
            return ()  # nothing was finished yet
        verdict = verify(storage, self.progress, self.check)
        for damage in verdict.damages:
            self.progress.message(f"damaged   {damage}")
        left = discard(storage, verdict.damages)
        what = "every byte of" if verdict.checked == verdict.items else f"a sample, {verdict.checked:,} of"
        found = f"{len(verdict.damages):,} damaged" if verdict.damages else "all whole"
        self.progress.message(f"verify    {what} {verdict.items:,} files: {found}")
        if left:
            self.progress.message(
                "          train again to replace a damaged checkpoint: that goes on from a whole one"
            )
        return verdict.damages

    def _plan(self) -> Plan:
        plan = load_plan(self.storage)
        if plan is not None:
            return plan
        config, storage, source = self.config, self.storage, self.source
        entries = sum(len(unit.entries) for unit in self.units)
        with self.progress.stage("list", entries, "files") as progress:

            def run_units(items: list[tuple[int, Unit]]) -> Iterator[tuple[int, UnitListing]]:
                job = ListUnit(storage, source, config.chunk_rows)
                for position, listing in run_tasks(job, items):
                    progress.advance(len(items[position][1].entries))
                    yield items[position][0], listing

            plan = make_plan(storage, source, self.units, config.chunk_rows, run_units)
        unused = unused_message(plan.ignored, plan.ignored_examples)
        if unused is not None:
            self.progress.message(f"list      {unused}")
        if plan.metadata_problems:
            rows = f"{plan.metadata_problems:,} {'row' if plan.metadata_problems == 1 else 'rows'}"
            self.progress.message(
                f"list      {rows} with metadata that could not be read whole (metadata_problem in the ledger's column "
                f"metadata), such as {'; '.join(plan.problem_examples)}"
            )
        return plan

    def _annotate(self, spec: AnnotateSpec, whole: bool = False) -> int:
        """Measure what is missing or damaged; `whole`: look at every column of the scores for damage."""
        plan, storage = spec.plan, self.storage
        parts = chunks_with_parts(spec)
        found = [item for _, part in run_tasks(FindDone(spec, whole), slices(parts, 256)) for item in part]
        for item in sorted(found, key=lambda item: item.chunk):
            if item.damage:
                self.progress.message(f"damaged   {part_name(item.chunk)}: its rows are measured again")
        done = [item for item in found if not item.damage]
        pending = sorted(set(range(len(plan))) - {item.chunk for item in done})
        rows_done, alive = sum(item.rows for item in done), sum(item.alive for item in done)
        if pending:
            # From here to the new ledger, the old one does not speak for the scores, nor does what was selected.
            storage.write_bytes(DIRTY, b"")
            storage.remove(SELECT)
        if parts and pending and rows_done:
            self.progress.message(f"{rows_done:,} of {plan.inputs:,} inputs have all their scores already")
        with self.progress.stage("annotate", plan.inputs, "images", rows_done) as progress:
            for summary in annotate(spec, pending, self._pools()):
                rows_done += summary.rows
                alive += summary.alive
                progress.advance(summary.rows, f"{alive / max(rows_done, 1):.1%} pass")
        return int(plan.rows[pending].sum()) if pending else 0

    def _pools(self) -> PoolSizes:
        cpus = ray.cluster_resources()
        options = self.config.ray
        return PoolSizes(cpus.get("CPU", 1), cpus.get("GPU", 0), options.max_workers, options.download_workers)

    def _ledger(self, plan: Plan) -> dict[str, Any]:
        storage, config = self.storage, self.config
        decision = fingerprint(
            plan.source_fingerprint,
            config.identity(),
            self.stages.fingerprints,
            config.policy,
            config.select,
            self.references,
            self.corpora.fingerprint,
            LEDGER_FORMATS,
        )
        record = ledger_record(storage)
        current = record is not None and {record["decision"], summary_record(storage).get("decision")} == {decision}
        if record is not None and current and not storage.exists(DIRTY):
            return record
        storage.remove(STAGING)
        selection = self._selector(plan, decision)()
        self.progress.message(f"select    {outcome(selection.summary)}")
        groups = list(range(len(plan.groups)))
        with self.progress.stage("ledger", plan.inputs, "rows") as progress:
            writer = LedgerWriter(storage, plan, self.stages, self.policy, selection.group_marks())
            parts: dict[int, LedgerPart] = {}
            for group, part in run_tasks(writer, groups):
                parts[group] = part
                progress.advance(part.rows)
            record = complete_record([parts[group] for group in groups], decision)
            # Shards of another selection must not stand beside the new ledger as if they belonged to it.
            manifest = storage.read_json(f"{SHARDS}/{MANIFEST}") or {}
            if manifest.get("ledger_sha256") != record["sha256"]:
                storage.remove(SHARDS)
            write_summary(storage, decision, selection.summary)
            publish_ledger(storage, record)
        storage.remove(DIRTY)
        storage.remove(SELECT)
        return record

    def _selector(self, plan: Plan, decision: str) -> Selector:
        """The selection that a decision asks for; what an earlier, other one left is removed."""
        storage, config = self.storage, self.config
        folder = fingerprint(decision, config.ray.shuffle_partitions)
        for name in storage.names(SELECT):
            if name != folder:
                storage.remove(f"{SELECT}/{name}")
        references = config.select.references
        retry = RETRYABLE if self.retry else frozenset[str]()
        tables = [
            reference_features(
                storage, reference, self.stages, config.decode, self.progress, self._pools(), config.chunk_rows, retry
            )
            for reference in references
        ]
        near = config.select.near_duplicates
        match: MatchReferences | None = None
        if references:
            match = MatchReferences(list(zip(references, tables, strict=True)), near is not None and near.mirrored)
        return Selector(
            Steps(storage.child(f"{SELECT}/{folder}"), self.progress),
            ReadScores(storage, plan, self.stages, self.policy),
            config.select,
            match,
            self.corpora,
            config.ray.shuffle_partitions,
        )

    def _export(self, plan: Plan, record: dict[str, Any], reader: Reader) -> dict[str, Any]:
        config = self.config
        facts = ExportFacts(
            ledger=record,
            config_hash=config.result_hash(),
            source_kind=config.pool.kind,
            source_fingerprint=plan.source_fingerprint,
            thresholds={
                "policy": config.policy.model_dump(mode="json"),
                "select": shown_selection(config),
            },
            models=[
                ModelFact(stage.name, item.name, item.sha256, item.bytes)
                for stage in self.stages
                for item in stage.weights
            ],
            limits=known_limits(config),
            feature_fingerprints=self.stages.fingerprints,
        )
        return export(self.storage, config.export, facts, reader, self.progress, self.corpora.corpora)
