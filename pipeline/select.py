"""Select: what is removed because of other rows. Global: over all chunks of the run.

Exact duplicates by SHA-256, then perceptual duplicates within a Hamming radius, among the rows that pass the policy.
Stars, not chains (`curation/dedup/`): every dropped row names a kept row within the radius, and no two kept rows are
within it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from curation.config import Config
from curation.dedup import exact_duplicates, near_duplicates
from curation.policy import Policy
from curation.reasons import Reason
from pipeline.ledger import Drops
from pipeline.plan import Plan
from pipeline.scores import read_scores
from pipeline.stages import StageSet
from pipeline.storage import Storage

DERIVED = {"pixels": ("width", "height")}
"""Quality columns computed from others."""


class NearDuplicateConfig(Config):
    """Perceptual duplicates by 64-bit DCT hash."""

    radius: int = Field(
        4, ge=0, le=8, description="largest Hamming distance, bits of 64, at which two rows are the same picture"
    )


class SelectConfig(Config):
    """Selection across the whole run. null switches a step off."""

    exact_duplicates: bool = Field(True, description="drop rows with the same bytes as a kept row")
    near_duplicates: NearDuplicateConfig | None = Field(
        NearDuplicateConfig(), description="drop rows that look like a kept row"
    )
    quality: tuple[str, ...] = Field(
        ("pixels", "bytes"),
        description="which of a group survives: ledger columns, the first counts most, larger is better; ties by id",
    )


def check_quality(quality: Sequence[str], stages: StageSet) -> None:
    """Find out before the run that the quality columns are there and are numbers.

    Raises:
        ValueError: one is not.
    """
    known = {name: type_ for stage in stages for name, type_ in stage.columns.items()}
    numbers = [name for name, type_ in known.items() if pa.types.is_integer(type_) or pa.types.is_floating(type_)]
    valid = [*DERIVED, *numbers]
    for name in quality:
        if name not in valid:
            near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
            raise ValueError(
                f"select.quality: {name!r} is no number that this run measures: "
                f"{f'did you mean {near[0]}? ' if near else ''}valid: {', '.join(valid)}"
            )


@dataclass(frozen=True)
class ReadCandidates:
    """Reads the rows that pass the policy from a group of chunks; runs in workers."""

    storage: Storage
    plan: Plan
    stages: StageSet
    policy: Policy
    quality: tuple[str, ...]

    def __call__(self, group: int) -> pa.Table:
        """Rows of a group that pass: row (global), id, sha256, phash, phash_degenerate, quality_0 ..."""
        start, stop = self.plan.groups[group]
        columns = {"sha256", "phash", "phash_degenerate", *self.policy.columns}
        for name in self.quality:
            columns |= set(DERIVED.get(name, (name,)))
        tables = []
        for chunk in range(start, stop):
            scores = read_scores(self.storage, chunk, self.stages, columns)
            passed = np.flatnonzero(self.policy.decide(scores).passed)
            rows = scores.take(pa.array(passed))
            picked = {
                "row": pa.array(passed + int(self.plan.first_row[chunk]), pa.int64()),
                "id": rows.column("id"),
                "sha256": rows.column("sha256"),
                "phash": rows.column("phash"),
                "phash_degenerate": rows.column("phash_degenerate"),
            }
            for position, name in enumerate(self.quality):
                picked[f"quality_{position}"] = pa.array(_quality(rows, name), pa.float64())
            tables.append(pa.table(picked))
        return pa.concat_tables(tables)


def _quality(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    product = np.ones(len(table))
    for part in DERIVED.get(name, (name,)):
        product *= np.asarray(table.column(part).cast(pa.float64()).fill_null(np.nan))
    return product


@dataclass(frozen=True)
class Selection:
    """What selection removed from the whole run, by global row, ascending; and how many rows had no usable hash."""

    row: npt.NDArray[np.int64]
    reason: npt.NDArray[np.object_]
    duplicate_of: npt.NDArray[np.object_]
    distance: npt.NDArray[np.int16]
    degenerate: int

    @classmethod
    def none(cls) -> Selection:
        """Nothing was removed."""
        empty = np.empty(0, dtype=object)
        return cls(np.empty(0, np.int64), empty, empty, np.empty(0, np.int16), 0)

    def part(self, first: int, rows: int) -> Drops:
        """The drops among global rows [first, first + rows), relative to `first`."""
        low, high = np.searchsorted(self.row, [first, first + rows])
        return Drops(
            self.row[low:high] - first,
            self.reason[low:high].tolist(),
            self.duplicate_of[low:high].tolist(),
            self.distance[low:high],
        )


def select(candidates: pa.Table, config: SelectConfig) -> Selection:
    """Decide which candidates are duplicates.

    Args:
        candidates: rows that pass the policy, as `ReadCandidates` gives them, in any order.
    """
    order = np.argsort(candidates.column("row").to_numpy(), kind="stable")
    count = len(order)
    ids = compact_text(candidates.column("id"))[order]
    contents = compact_text(candidates.column("sha256"))[order]
    # The text is the bulk of it; the rest is picked in row order without it.
    candidates = candidates.drop_columns(["id", "sha256"]).take(pa.array(order))
    quality = (
        np.stack(
            [candidates.column(f"quality_{position}").to_numpy() for position in range(len(config.quality))], axis=1
        )
        if config.quality
        else np.zeros((count, 1))
    )
    keeper = np.full(count, -1, dtype=np.int64)
    reason = np.full(count, None, dtype=object)
    distance = np.full(count, -1, dtype=np.int16)
    if config.exact_duplicates and count:
        keeper = exact_duplicates(contents, quality, ids)
        reason[keeper >= 0] = Reason.EXACT_DUPLICATE.value
        distance[keeper >= 0] = 0
    degenerate = 0
    if config.near_duplicates is not None and count:
        flat = candidates.column("phash_degenerate").fill_null(True).to_numpy(zero_copy_only=False).astype(bool)
        flat |= candidates.column("phash").is_null().to_numpy(zero_copy_only=False).astype(bool)
        left = np.flatnonzero(keeper < 0)
        degenerate = int(flat[left].sum())
        hashes = candidates.column("phash").fill_null(0).to_numpy().astype(np.uint64)
        near = near_duplicates(
            hashes[left], quality[left], ids[left], config.near_duplicates.radius, exclude=flat[left]
        )
        dropped = near.keeper >= 0
        keeper[left[dropped]] = left[near.keeper[dropped]]
        distance[left[dropped]] = near.distance[dropped]
        reason[left[dropped]] = Reason.NEAR_DUPLICATE.value
        # An exact copy of a row that is itself a near duplicate names the row that is kept.
        exact = np.flatnonzero(reason == Reason.EXACT_DUPLICATE.value)
        moved = exact[keeper[keeper[exact]] >= 0]
        first = keeper[moved]
        keeper[moved], distance[moved] = keeper[first], distance[first]
        reason[moved] = Reason.NEAR_DUPLICATE.value
    rows = np.flatnonzero(keeper >= 0)
    names = ids[keeper[rows]].astype(str).astype(object)
    return Selection(candidates.column("row").to_numpy()[rows], reason[rows], names, distance[rows], degenerate)


def compact_text(column: pa.ChunkedArray) -> npt.NDArray[np.bytes_]:
    """ASCII text without nulls as bytes [n]: no Python object stays alive per value."""
    parts = [np.array(chunk.to_pylist(), dtype=np.bytes_) for chunk in column.chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0, dtype="S1")
