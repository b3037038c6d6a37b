"""Annotate: every chunk of the plan through the scorers, on Ray Data.

The graph has one operator per group of neighbouring stages with equal resources. On a CPU-only machine that is a
single actor pool which reads, screens, scores and writes: nothing but chunk numbers crosses the object store. Where
scorers ask for GPUs, a CPU pool screens and hands working-size pictures of rows that are still alive to the GPU
pool; the last operator writes the chunk's part. Downloading, where the source needs it, is an operator of its own in
front.

A chunk is done when its part is published. Resume is the set difference.
"""

from __future__ import annotations

import logging
import math
import pickle
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from curation.config import fingerprint
from curation.decode import DecodeConfig
from curation.parquet_files import open_parquet
from curation.policy import Policy
from curation.reasons import Reason
from pipeline.attempts import Attempt
from pipeline.chunk import ChunkScorer, ChunkState
from pipeline.fetch import Reader
from pipeline.plan import Plan, to_locators
from pipeline.resources import limit_native_threads
from pipeline.scores import ScoreTable, missing_scores, part_meta, part_name, read_scores
from pipeline.stages import StageSet
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

log = logging.getLogger(__name__)


MOST_BLOCKS = 20_000
"""Ray Data keeps a record of each block on the driver; beyond this many chunks, a block holds several."""


@dataclass(frozen=True)
class AnnotateSpec:
    """All that a worker needs; pickled into it."""

    storage: Storage
    plan: Plan
    reader: Reader
    stages: StageSet
    policy: Policy
    decode: DecodeConfig
    retry: frozenset[str] = field(default_factory=frozenset)
    session: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def complete_for(self) -> str:
        """Stamp of a part that has all scores which this policy and these stages ask for."""
        return fingerprint(self.policy.config, self.stages.fingerprints)

    def load(self, chunk: int) -> ChunkState:
        """A chunk with the scores that it has and that are still valid."""
        locators = self.plan.locators(chunk)
        table = ScoreTable(locators, self.stages.columns)
        name = part_name(chunk)
        if self.storage.exists(name):
            try:
                part = self.storage.read_table(name)
            except UNREADABLE as error:
                log.warning("%s is damaged, its rows are measured again: %s", name, error)
            else:
                table.load(part, self.stages.fingerprints, self.retry)
        return ChunkState.start(chunk, table, to_locators(locators))

    def publish(self, state: ChunkState) -> None:
        """Write the chunk's part."""
        meta = {
            "chunk": state.chunk,
            "rows": state.table.rows,
            "fingerprints": self.stages.fingerprints,
            "complete_for": self.complete_for,
        }
        self.storage.write_table(part_name(state.chunk), state.table.to_table(meta))


@dataclass
class Summary:
    """What a finished chunk reports to the driver."""

    chunk: int
    rows: int
    alive: int
    seconds: float
    damage: str = ""
    """Why the scores that a chunk had cannot be used: it is measured again."""


class Operator:
    """One actor of the graph: runs its stages over chunks, one after the other."""

    def __init__(self, spec: AnnotateSpec, mine: list[str], position: int, last: bool, num_cpus: float) -> None:
        limit_native_threads(max(1, math.floor(num_cpus)))
        self.spec = spec
        self.position = position
        self.last = last
        self.scorer = ChunkScorer(spec.stages, mine, spec.policy, spec.reader, spec.decode)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        """Handle a batch of one chunk: a chunk number, or the pickled state that the operator before left."""
        started = time.perf_counter()
        spec = self.spec
        chunk = int(batch["chunk"][0])
        handed_over = "state" in batch
        # The state was pickled by this run's own worker and came through Ray's object store.
        state = pickle.loads(batch["state"][0]) if handed_over else spec.load(chunk)  # noqa: S301
        attempt = Attempt(spec.storage, chunk, self.position, spec.session)
        for row in attempt.crashed:
            if state.table.columns["problem"][row] is None:
                state.table.fail(row, "read", Reason.WORKER_CRASHED, "the worker died twice on this row")
                state.alive[row] = False
                state.dirty = True
        self.scorer.run(state, attempt)
        if not self.last:
            attempt.close()
            payload = np.empty(1, dtype=object)
            payload[0] = pickle.dumps(state, protocol=5)
            return {"chunk": [chunk], "state": payload}
        spec.publish(state)
        attempt.close()
        seconds = time.perf_counter() - started
        return {
            "chunk": [chunk],
            "rows": [state.table.rows],
            "alive": [int(state.alive.sum())],
            "seconds": [seconds],
        }


class Fetcher:
    """Downloads chunks of a source whose bytes must be kept."""

    def __init__(self, spec: AnnotateSpec) -> None:
        limit_native_threads(1)
        self.spec = spec

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        """Fetch one chunk."""
        chunk = int(batch["chunk"][0])
        locators = to_locators(self.spec.plan.locators(chunk))
        self.spec.reader.fetch(chunk, locators, self.spec.retry)
        return {"chunk": [chunk]}


@dataclass(frozen=True)
class FindDone:
    """Tells which chunks have all scores that are asked for, and how many of their rows pass the policy.

    Called with a slice of chunk numbers that have a part; returns the summaries of those that are done, and of those
    whose part is damaged.

    Args:
        whole: read every column, and not only those that the policy looks at.
    """

    spec: AnnotateSpec
    whole: bool = False

    def __call__(self, chunks: list[int]) -> list[Summary]:
        spec = self.spec
        done = []
        for chunk in chunks:
            try:
                with spec.storage.open_read(part_name(chunk)) as file:
                    parquet = open_parquet(file)
                    stamped = part_meta(parquet.schema_arrow).get("complete_for") == spec.complete_for
                    if parquet.metadata.num_rows != int(spec.plan.rows[chunk]):
                        continue
                columns = None if self.whole else spec.policy.columns
                table = read_scores(spec.storage, chunk, spec.stages, columns)
            except (DamagedFileError, *UNREADABLE) as error:
                log.warning("%s is damaged, its rows are measured again: %s", part_name(chunk), error)
                done.append(Summary(chunk, 0, 0, 0.0, " ".join(str(error).split())))
                continue
            reasons = set(table.column("problem").to_pylist())
            if spec.retry & reasons or (not stamped and missing_scores(table, spec.policy)):
                continue
            passed = int(spec.policy.decide(table).passed.sum())
            done.append(Summary(chunk, len(table), passed, 0.0))
        return done


def chunks_with_parts(spec: AnnotateSpec) -> list[int]:
    """Chunks whose part exists, ascending."""
    existing = set(spec.storage.names("work/scores"))
    return [chunk for chunk in range(len(spec.plan)) if part_name(chunk).rsplit("/", 1)[1] in existing]


def annotate(spec: AnnotateSpec, pending: list[int], pools: PoolSizes) -> Iterator[Summary]:
    """Run the graph over the pending chunks; yields a summary as each part is published."""
    if not pending:
        return
    slices = np.array_split(np.array(pending, dtype=np.int64), min(len(pending), MOST_BLOCKS))
    blocks: list[Any] = [ray.put(pa.table({"chunk": pa.array(part, pa.int64())})) for part in slices]
    dataset: Any = ray.data.from_arrow_refs(blocks)
    if spec.reader.source.fetches:
        dataset = dataset.map_batches(
            Fetcher,
            fn_constructor_args=(spec,),
            batch_size=1,
            num_cpus=pools.fetch_cpus,
            compute=ray.data.ActorPoolStrategy(size=max(1, min(pools.fetch_workers, len(pending)))),
        )
    groups = spec.stages.groups()
    for position, group in enumerate(groups):
        resources = group[0].resources
        smallest, largest = pools.size(resources.num_cpus, resources.num_gpus, len(groups), len(pending))
        dataset = dataset.map_batches(
            Operator,
            fn_constructor_args=(
                spec,
                [stage.name for stage in group],
                position,
                position == len(groups) - 1,
                resources.num_cpus,
            ),
            batch_size=1,
            num_cpus=resources.num_cpus,
            num_gpus=resources.num_gpus or None,
            compute=ray.data.ActorPoolStrategy(min_size=smallest, max_size=largest, max_tasks_in_flight_per_actor=2),
        )
    for row in dataset.iter_rows():
        yield Summary(int(row["chunk"]), int(row["rows"]), int(row["alive"]), float(row["seconds"]))


@dataclass(frozen=True)
class PoolSizes:
    """How many workers each operator gets."""

    cpus: float
    gpus: float
    max_workers: int | None = None
    fetch_workers: int = 4
    fetch_cpus: float = 0.25

    def size(self, num_cpus: float, num_gpus: float, operators: int, chunks: int) -> tuple[int, int]:
        """Smallest and largest number of workers for an operator.

        Pools start at the width that the cluster has now, since waiting for Ray to widen them one by one costs minutes;
        on an autoscaling cluster they may grow to `max_workers`.
        """
        if num_gpus > 0:
            now = int(self.gpus / num_gpus)
        else:
            share = self.cpus if operators == 1 else self.cpus / 2
            now = int(share / num_cpus)
        largest = max(now, 1) if self.max_workers is None else self.max_workers
        largest = max(1, min(largest, chunks))
        return max(1, min(now, largest)), largest
