"""The stages of a run: which scorers are configured, in which order, and what identifies their scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from curation.config import fingerprint
from curation.policy import STAGES
from curation.scorers.base import ResourceConfig, Scorer, Weights
from curation.scorers.header import HeaderScorer
from curation.scorers.screen import ScreenScorer

LOCATOR_INPUTS = ("id", "uri", "member", "metadata")
"""Columns that every row has from the listing."""


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        scorer: None for the stages that work on encoded bytes (read, header, screen).
        fingerprint: the same fingerprint promises the same columns for the same bytes.
        weights: the model files behind it.
    """

    name: str
    columns: Mapping[str, pa.DataType]
    fingerprint: str
    needs_pixels: bool = False
    scorer: Scorer | None = None
    resources: ResourceConfig = field(default_factory=ResourceConfig)
    weights: tuple[Weights, ...] = ()


@dataclass(frozen=True)
class StageSet:
    """All stages of a run, in order."""

    stages: tuple[Stage, ...]
    header: HeaderScorer
    screen: ScreenScorer

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    @property
    def names(self) -> list[str]:
        """Stage names in order."""
        return [stage.name for stage in self.stages]

    @property
    def columns(self) -> dict[str, Mapping[str, pa.DataType]]:
        """Stage name -> its columns."""
        return {stage.name: stage.columns for stage in self.stages}

    @property
    def fingerprints(self) -> dict[str, str]:
        """Stage name -> identity of its scores."""
        return {stage.name: stage.fingerprint for stage in self.stages}

    def after(self, name: str) -> list[Stage]:
        """The stages that come after one."""
        position = self.names.index(name)
        return list(self.stages[position + 1 :])

    def groups(self) -> list[list[Stage]]:
        """Neighbouring stages with equal resources, which run in one worker on the same pixels.

        Stages on encoded bytes, and scorers that compute from columns only, join the group before them.
        """
        groups: list[list[Stage]] = []
        for stage in self.stages:
            free = stage.scorer is None or not stage.needs_pixels
            if groups and (free or groups[-1][0].resources == stage.resources):
                groups[-1].append(stage)
            else:
                groups.append([stage])
        return groups


def assemble(scorers: list[Scorer], header: HeaderScorer, screen: ScreenScorer, decode_id: str) -> StageSet:
    """Order scorers into stages and check that each finds the columns it needs before it.

    Args:
        decode_id: fingerprint of the decode policy, which every scorer of pixels depends on.

    Raises:
        ValueError: a scorer needs a column that no earlier stage gives.
    """
    stages = [
        Stage("read", {}, ""),
        Stage("header", dict(header.columns), header.fingerprint()),
        Stage("screen", dict(screen.columns), screen.fingerprint()),
    ]
    provider = {name: stage.name for stage in stages for name in stage.columns}
    for scorer in sorted(scorers, key=lambda item: STAGES.index(item.name)):
        known = {stage.name: stage.fingerprint for stage in stages}
        inputs = {}
        for name in scorer.needs:
            if name in LOCATOR_INPUTS:
                continue
            if name not in provider:
                raise ValueError(
                    f"scorers.{scorer.name} ({scorer.config.kind}) needs the column {name!r}, which no stage before it "
                    f"gives; configured stages: {', '.join(known)}. Configure the scorer that gives it, or set "
                    f"scorers.{scorer.name} to null."
                )
            inputs[provider[name]] = known[provider[name]]
        weights = tuple(scorer.check())
        identity = fingerprint(
            scorer.model_fingerprint(weights), decode_id if scorer.needs_pixels else None, sorted(inputs.items())
        )
        stages.append(
            Stage(
                scorer.name,
                dict(scorer.columns),
                identity,
                scorer.needs_pixels,
                scorer,
                scorer.config.resources,
                weights,
            )
        )
        provider.update(dict.fromkeys(scorer.columns, scorer.name))
    return StageSet(tuple(stages), header, screen)
