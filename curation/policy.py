"""From scores to verdicts: limits on columns, evaluated in the order of the stages.

Scores never change when a limit does, so a policy can be applied again to a finished ledger in seconds. Each limit is
named by the reason code that it gives; the first one that fails decides. A missing value (null) passes: a rule speaks
only about rows that it can measure, and "no person" or "no face" are values of other columns, not missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from curation.config import Config
from curation.reasons import Reason

STAGES: tuple[str, ...] = (
    "read",
    "header",
    "screen",
    "safety",
    "person",
    "head_pose",
    "embedding",
    "aesthetic",
    "realism",
    "nsfw",
    "text_overlay",
)
"""The order in which a row is measured: cheap before dear. A row stops at the first stage that drops it."""


class Limit(Config):
    """Inclusive limits on one column: min <= score <= max passes. At least one of them is set."""

    min: float | None = Field(None, description="smallest score that passes")
    max: float | None = Field(None, description="largest score that passes")

    @model_validator(mode="before")
    @classmethod
    def _not_a_number(cls, value: Any) -> Any:
        if isinstance(value, int | float | str):
            raise ValueError(f"a limit has min, max or both: give .min={value} or .max={value}")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Limit:
        if self.min is None and self.max is None:
            raise ValueError("a limit needs min, max or both; to switch the rule off, set the whole rule to null")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}: nothing could pass")
        return self


class LicenceRule(Config):
    """Which licences may enter the corpus, compared with the normalised `licence` column."""

    allowed: tuple[str, ...] = Field(description="licences that pass, e.g. cc0-1.0, cc-by-4.0")
    unknown: bool = Field(False, description="whether rows without a known licence pass")


class PolicyConfig(Config):
    """One entry per rule, named by its reason code. null switches a rule off.

    Defaults are the paper's where it gives one (person short side >= 384 px, Sapiens2 section 3.1) and safe bounds
    elsewhere; every value is meant to be calibrated on the pool at hand.
    """

    too_small: Limit | None = Field(Limit(min=384), description="short side of the picture, px")
    aspect_ratio: Limit | None = Field(Limit(max=3.0), description="long side / short side")
    blurred: Limit | None = Field(None, description="sharpness (see the screen scorer)")
    too_dark: Limit | None = Field(None, description="mean luma, 0..1: give min")
    too_bright: Limit | None = Field(None, description="mean luma, 0..1: give max")
    low_entropy: Limit | None = Field(
        Limit(min=3.0),
        description="entropy of luma where there is most of it (local_entropy of the screen scorer), bits, 0..8",
    )
    blocked: bool = Field(True, description="drop rows that are on a block list of the safety scorer")
    opted_out: bool = Field(True, description="drop rows whose metadata carry an opt-out")
    licence: LicenceRule | None = Field(None, description="allowed licences")
    no_person: Limit | None = Field(Limit(min=1), description="number of persons found")
    person_score: Limit | None = Field(None, description="score of the largest person, 0..1")
    person_too_small: Limit | None = Field(
        Limit(min=384), description="largest box short side over persons, original px"
    )
    head_pose: Limit | None = Field(None, description="absolute head yaw, degrees; a balance attribute, rarely a cut")
    low_aesthetic: Limit | None = Field(None, description="aesthetic score, on the scale of the scorer in use")
    not_photo: Limit | None = Field(None, description="probability of a photograph, 0..1")
    nsfw: Limit | None = Field(None, description="probability of unsafe content, 0..1: give max")
    text_overlay: Limit | None = Field(None, description="share of the picture covered by text, 0..1: give max")


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule. `column` is compared after `transform`."""

    reason: Reason
    stage: str
    column: str
    limit: Limit | None = None
    licences: LicenceRule | None = None
    absolute: bool = False

    def values(self, column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.float64]:
        """The scores that the limit is compared with, NaN where missing."""
        if self.limit is not None:
            values = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
            return np.abs(values) if self.absolute else values
        if self.licences is not None:
            known = np.asarray(pc.is_in(column, pa.array(self.licences.allowed, pa.string())), dtype=np.float64)
            missing = np.asarray(column.is_null())
            return np.where(missing, float(self.licences.unknown), known)
        if pa.types.is_boolean(column.type):
            return 1.0 - np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.float64)
        return np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=np.float64)

    def fails(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Which scores are outside the limit; NaN is not."""
        if self.limit is None:
            return values == 0.0
        failed = np.zeros(len(values), dtype=bool)
        with np.errstate(invalid="ignore"):
            if self.limit.min is not None:
                failed |= values < self.limit.min
            if self.limit.max is not None:
                failed |= values > self.limit.max
        return failed

    def threshold(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The limit that each failing score broke; NaN for rules without a number."""
        if self.limit is None:
            return np.full(len(values), np.nan)
        low, high = self.limit.min, self.limit.max
        if low is None or high is None:
            return np.full(len(values), low if high is None else high, dtype=np.float64)
        return np.where(values < low, low, high)


_NUMERIC: tuple[tuple[Reason, str, str, bool], ...] = (
    (Reason.TOO_SMALL, "header", "short_side", False),
    (Reason.ASPECT_RATIO, "header", "aspect", False),
    (Reason.LOW_ENTROPY, "screen", "local_entropy", False),
    (Reason.TOO_DARK, "screen", "brightness", False),
    (Reason.TOO_BRIGHT, "screen", "brightness", False),
    (Reason.BLURRED, "screen", "sharpness", False),
    (Reason.NO_PERSON, "person", "person_count", False),
    (Reason.PERSON_SCORE, "person", "person_score", False),
    (Reason.PERSON_TOO_SMALL, "person", "person_short_side", False),
    (Reason.HEAD_POSE, "head_pose", "head_yaw", True),
    (Reason.LOW_AESTHETIC, "aesthetic", "aesthetic", False),
    (Reason.NOT_PHOTO, "realism", "realism", False),
    (Reason.NSFW, "nsfw", "nsfw", False),
    (Reason.TEXT_OVERLAY, "text_overlay", "text_share", False),
)


class Policy:
    """A compiled policy.

    Args:
        config: the rules.
        stages: the stages that this run measures; rules of other stages do not apply.
    """

    def __init__(self, config: PolicyConfig, stages: Sequence[str]) -> None:
        self.config = config
        rules: list[Rule] = []
        for reason, stage, column, absolute in _NUMERIC:
            limit = getattr(config, reason.value)
            if limit is not None:
                rules.append(Rule(reason, stage, column, limit=limit, absolute=absolute))
        if config.blocked:
            rules.append(Rule(Reason.BLOCKED, "safety", "blocked_by"))
        if config.opted_out:
            rules.append(Rule(Reason.OPTED_OUT, "safety", "opt_out"))
        if config.licence is not None:
            rules.append(Rule(Reason.LICENCE, "safety", "licence", licences=config.licence))
        self.rules: dict[str, list[Rule]] = {
            stage: [rule for rule in rules if rule.stage == stage] for stage in STAGES if stage in stages
        }

    @property
    def columns(self) -> frozenset[str]:
        """The score columns that the rules look at."""
        return frozenset(rule.column for rules in self.rules.values() for rule in rules)

    def unmeasured_rules(self, stages: Sequence[str]) -> list[Reason]:
        """Reasons whose rule was set by the user while its stage is not measured: they would silently do nothing."""
        wanted = []
        for reason, stage, _, _ in _NUMERIC:
            if reason.value in self.config.model_fields_set and getattr(self.config, reason.value) is not None:
                wanted += [reason] if stage not in stages else []
        if self.config.licence is not None and "safety" not in stages:
            wanted.append(Reason.LICENCE)
        return wanted

    def failed(self, stage: str, columns: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows a stage drops. bool [n]."""
        failed: npt.NDArray[np.bool_] | None = None
        for rule in self.rules.get(stage, ()):
            bad = rule.fails(rule.values(columns[rule.column]))
            failed = bad if failed is None else failed | bad
        if failed is None:
            any_column = next(iter(columns.values()))
            failed = np.zeros(len(any_column), dtype=bool)
        return failed

    def row_fails(self, stage: str, values: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> bool:
        """`failed` for one row, for the loop over encoded bytes.

        Values are rounded to the column's type first, so that the verdict is the one that the ledger gives later.
        """
        for rule in self.rules.get(stage, ()):
            value = values.get(rule.column)
            if value is None or rule.limit is None:
                continue
            number = float(np.float32(value)) if types[rule.column] == pa.float32() else float(value)
            number = abs(number) if rule.absolute else number
            low, high = rule.limit.min, rule.limit.max
            if (low is not None and number < low) or (high is not None and number > high):
                return True
        return False

    def decide(self, table: pa.Table) -> Verdicts:
        """Verdicts of scored rows.

        Args:
            table: the score columns, with `problem` and `problem_stage` (see `pipeline/ledger.py`).
        """
        count = len(table)
        order = {stage: position for position, stage in enumerate(STAGES)}
        at = np.full(count, len(STAGES), dtype=np.int64)
        reason = np.full(count, None, dtype=object)
        column = np.full(count, None, dtype=object)
        score = np.full(count, np.nan)
        threshold = np.full(count, np.nan)
        for stage in self.rules:
            for rule in self.rules[stage]:
                if rule.column not in table.column_names:
                    continue
                values = rule.values(table.column(rule.column).combine_chunks())
                scored = np.asarray(table.column(f"scored_{stage}").to_numpy(zero_copy_only=False), dtype=bool)
                hit = rule.fails(values) & scored & (at == len(STAGES))
                at[hit] = order[stage]
                reason[hit] = rule.reason.value
                column[hit] = rule.column
                score[hit] = values[hit] if rule.limit is not None else np.nan
                threshold[hit] = rule.threshold(values)[hit]
        problem = table.column("problem").to_numpy(zero_copy_only=False)
        stages = table.column("problem_stage").to_numpy(zero_copy_only=False)
        # A problem of a stage that is no longer configured does not count.
        problem_at = np.array(
            [order[stage] if stage in self.rules else len(STAGES) + 1 for stage in stages], dtype=np.int64
        )
        # A problem at a stage comes before that stage's limits: the row has no score there.
        broken = problem_at <= at
        reason[broken] = problem[broken]
        column[broken] = None
        score[broken] = np.nan
        threshold[broken] = np.nan
        at[broken] = problem_at[broken]
        return Verdicts(reason, column, score, threshold, at)


@dataclass(slots=True)
class Verdicts:
    """Verdicts of n rows: `reason` [n] is None for rows that pass; `score` and `threshold` are NaN where there is none;
    `stage` [n] is the position in `STAGES` of the stage that dropped the row, or len(STAGES)."""

    reason: npt.NDArray[Any]
    column: npt.NDArray[Any]
    score: npt.NDArray[np.float64]
    threshold: npt.NDArray[np.float64]
    stage: npt.NDArray[np.int64]

    @property
    def passed(self) -> npt.NDArray[np.bool_]:
        """bool [n]."""
        return np.array([value is None for value in self.reason], dtype=bool)
