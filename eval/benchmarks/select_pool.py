"""Synthetic rows for measuring selection: a run whose scores are written directly, with planted copies.

One row in ten is an exact copy, one in ten has a near hash (0..4 bits off), and with embeddings one in ten a near
embedding. A tenth of the exact copies are of one picture. A copy is of a row that is no copy, and has fewer bytes
than it, so selection must drop the copy and name that row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.config import fingerprint
from curation.decode import DecodeConfig
from curation.mixing import mix64
from curation.policy import Policy, PolicyConfig
from curation.scorers.header import HeaderScorer
from curation.scorers.screen import ScreenScorer
from curation.sources.base import READ_COLUMNS
from eval.benchmarks.bench_neighbours import clustered
from pipeline.plan import Plan
from pipeline.scores import LOCATOR_COLUMNS, META_KEY, PROBLEM_COLUMNS, part_name
from pipeline.select import ReadScores
from pipeline.stages import Stage, StageSet, assemble
from pipeline.storage import Storage

SHARE = 0.1
"""Of the rows for each kind of copy."""

RADIUS = 4
"""Most bits between a near hash and its origin."""

THRESHOLD = 0.95
"""Least cosine of a near embedding with its origin, before rounding to float16."""

MEMBERS = 1000
"""Rows that a source container would hold: only the names follow from it."""


@dataclass(frozen=True)
class Planted:
    """n rows and what is planted among them.

    Attributes:
        id: string [n].
        content: int64 [n], which bytes a row has; equal for exact copies.
        phash: uint64 [n].
        bytes: int64 [n], encoded size: the quality of a row.
        vectors: float16 [n, d], or None.
        origin: int64 [n], the row that a copy is of; -1 for rows that are no copy.
        kind: string [n]: "exact", "hash", "vector", or "" for rows that are no copy.
    """

    id: pa.Array
    content: npt.NDArray[np.int64]
    phash: npt.NDArray[np.uint64]
    bytes: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float16] | None
    origin: npt.NDArray[np.int64]
    kind: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.content)


def plant(n: int, dimensions: int | None = None, seed: int = 0) -> Planted:
    """Make n rows.

    Args:
        n: 20 or more.
        dimensions: of the embeddings; None for none.
    """
    rng = np.random.default_rng((seed, n))
    origin = np.full(n, -1, np.int64)
    kind = np.full(n, "", "<U6")
    free = np.ones(n, bool)
    vectors = None
    if dimensions is not None:
        vectors, pairs = clustered(n, dimensions, THRESHOLD, max(8, min(20_000, n // 50)), seed)
        origin[pairs[:, 0]], kind[pairs[:, 0]] = pairs[:, 1], "vector"
        free[pairs.ravel()] = False
    count = max(1, int(n * SHARE))
    order = rng.permutation(np.flatnonzero(free))
    exact, near, originals = np.split(order, [count, 2 * count])
    origin[exact], kind[exact] = rng.choice(originals, count), "exact"
    origin[exact[: count // 10]] = originals[0]
    origin[near], kind[near] = rng.choice(originals, count), "hash"

    content = np.arange(n)
    content[exact] = origin[exact]
    phash = rng.integers(0, 2**64, n, dtype=np.uint64)
    phash[exact] = phash[origin[exact]]
    phash[near] = phash[origin[near]] ^ _some_bits(rng, count)
    if vectors is not None:
        vectors[exact] = vectors[origin[exact]]
    size = rng.integers(100_000, 1_000_000, n)
    copies = np.flatnonzero(origin >= 0)
    size[copies] = rng.integers(10_000, 100_000, len(copies))
    return Planted(_hex_strings(rng.bytes(16 * n), 32), content, phash, size, vectors, origin, kind)


def _some_bits(rng: np.random.Generator, n: int) -> npt.NDArray[np.uint64]:
    """Masks of 0..RADIUS bits. uint64 [n]."""
    masks = np.zeros(n, np.uint64)
    for _ in range(RADIUS):
        bit = np.uint64(1) << rng.integers(0, 64, n, dtype=np.uint64)
        masks |= np.where(rng.random(n) < 0.5, bit, np.uint64(0))
    return masks


def _hex_strings(data: bytes, length: int) -> pa.Array:
    """Bytes cut into strings of `length` hexadecimal characters."""
    n = 2 * len(data) // length
    offsets = np.arange(n + 1, dtype=np.int32) * length
    return pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data.hex().encode())])


def pool_stages(embedding: bool) -> StageSet:
    """The stages that the scores claim to come from: header, screen, and an embedding."""
    decode = DecodeConfig()
    stages = assemble([], HeaderScorer(decode), ScreenScorer(None, decode), fingerprint(decode))
    if not embedding:
        return stages
    vectors = Stage("embedding", {"embedding": pa.list_(pa.float16())}, fingerprint("synthetic embedding"))
    return StageSet((*stages, vectors), stages.header, stages.screen)


def pool_plan(storage: Storage, rows: int, chunk_rows: int) -> Plan:
    """The plan of a pool: chunks of `chunk_rows`."""
    starts = np.arange(0, rows, chunk_rows, dtype=np.int64)
    counts = np.minimum(chunk_rows, rows - starts)
    return Plan(storage, np.zeros(len(starts), np.int64), np.arange(len(starts)), counts, "synthetic", {})


def pool_scores(folder: Path, rows: int, chunk_rows: int, embedding: bool) -> ReadScores:
    """What selection reads the pool through; every row passes the policy."""
    storage = Storage(folder)
    stages = pool_stages(embedding)
    limits = PolicyConfig(no_person=None, person_too_small=None, person_score=None, head_pose=None)
    policy = Policy(limits, stages.names)
    return ReadScores(storage, pool_plan(storage, rows, chunk_rows), stages, policy)


def write_pool(folder: Path, rows: Planted, chunk_rows: int) -> None:
    """Publish the rows as the score parts of a run in `folder`."""
    stages = pool_stages(rows.vectors is not None)
    plan = pool_plan(Storage(folder), len(rows), chunk_rows)
    rng = np.random.default_rng(1)
    # A SHA-256 for every content that there may be; copies share their origin's.
    digests = _hex_strings(rng.bytes(32 * len(rows)), 64)
    for chunk, (first, count) in enumerate(zip(plan.first_row.tolist(), plan.rows.tolist(), strict=True)):
        part = slice(first, first + count)
        plan.storage.write_table(part_name(chunk), _part(rows, part, digests, stages))


def _part(rows: Planted, part: slice, digests: pa.Array, stages: StageSet) -> pa.Table:
    """Some rows as `pipeline.scores.ScoreTable.to_table` has them."""
    number = np.arange(part.start, part.stop)
    n = len(number)
    values: dict[str, Any] = {
        "id": rows.id.slice(part.start, n),
        "uri": pa.array([f"shard-{at // MEMBERS:06d}.tar" for at in number.tolist()]),
        "member": pa.array([f"{at % MEMBERS:04d}.jpg" for at in number.tolist()]),
        "offset": number % MEMBERS * 500_000,
        "size": rows.bytes[part],
        "format": pa.array(["JPEG"] * n),
        "mode": pa.array(["RGB"] * n),
        "width": np.full(n, 1024), "height": np.full(n, 1024), "short_side": np.full(n, 1024),
        "long_side": np.full(n, 1024), "aspect": np.ones(n), "orientation": np.ones(n), "frames": np.ones(n),
        "bytes": rows.bytes[part],
        "sha256": digests.take(pa.array(rows.content[part])),
        "phash": rows.phash[part],
        "phash_mirrored": ~rows.phash[part],
        "phash_degenerate": np.zeros(n, bool),
        "sharpness": np.full(n, 100.0), "brightness": _spread(number, 0), "contrast": _spread(number, 1),
        "entropy": 6 + _spread(number, 2), "dark_share": _spread(number, 3), "bright_share": _spread(number, 4),
        "colourfulness": _spread(number, 5),
    }  # fmt: skip
    if rows.vectors is not None:
        values["embedding"] = _lists(rows.vectors[part])
    types = {**LOCATOR_COLUMNS, **READ_COLUMNS}
    for columns in stages.columns.values():
        types.update(columns)
    types.update(PROBLEM_COLUMNS)
    arrays = [
        pa.array(values[name]).cast(type_) if name in values else pa.nulls(n, type_) for name, type_ in types.items()
    ]
    arrays += [pa.array(np.full(n, stage.name != "read")) for stage in stages]
    names = [*types, *(f"scored_{stage.name}" for stage in stages)]
    fields = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
    meta = {META_KEY: json.dumps({"fingerprints": stages.fingerprints}, sort_keys=True).encode()}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=meta))


def _lists(vectors: npt.NDArray[np.float16]) -> pa.Array:
    """A matrix as a column of lists."""
    offsets = pa.array(np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1])
    return pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel()), type=pa.list_(pa.float16()))


def _spread(number: npt.NDArray[np.int64], salt: int) -> npt.NDArray[np.float64]:
    """A statistic of each row, 0..1: full precision, as measured values have, so that it does not compress."""
    return mix64(number.astype(np.uint64) * np.uint64(16) + np.uint64(salt)).astype(np.float64) / 2.0**64
