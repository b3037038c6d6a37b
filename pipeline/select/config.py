"""What selection does, and what it needs the run to measure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa
from pydantic import Field, model_validator

from curation.balance.config import BalanceConfig
from curation.balance.strata import check_strata
from curation.config import Config
from curation.dedup import NeighbourConfig
from curation.sources.redact import redact_url
from pipeline.select.references import ReferenceConfig, check_references
from pipeline.stages import StageSet

DERIVED = {"pixels": ("width", "height", "content_share"), "color": ("mode",)}
"""Quality columns computed from others: `pixels`, the number inside uniform borders, a product; `color`, 2 for images
stored in full color, 1 for grey and palettes, 0 for what has to be converted from ink or another space (CMYK, LAB)."""


class NearDuplicateConfig(Config):
    """Perceptual duplicates by 64-bit DCT hash."""

    radius: int = Field(
        4, ge=0, le=8, description="largest Hamming distance, bits of 64, at which two rows are the same picture"
    )
    mirrored: bool = Field(False, description="a picture and its left-right mirror image are duplicates too")


class SelectConfig(Config):
    """Selection across the whole run. null switches a step off."""

    exact_duplicates: bool = Field(True, description="drop rows with the same bytes as a kept row")
    near_duplicates: NearDuplicateConfig | None = Field(
        NearDuplicateConfig(), description="drop rows that look like a kept row"
    )
    semantic_duplicates: NeighbourConfig | None = Field(
        None, description="drop rows whose embedding is a near neighbour of a kept row's; needs scorers.embedding"
    )
    quality: tuple[str, ...] = Field(
        ("pixels", "color", "bytes"),
        description="which of a group survives: ledger columns, the first counts most, larger is better; ties by id. "
        "pixels: without uniform borders; color: full color before grey and palettes before CMYK",
    )
    references: tuple[ReferenceConfig, ...] = Field(
        (), description="evaluation sets and block lists: rows too near to one of their pictures are dropped"
    )
    against: tuple[str, ...] = Field(
        (), description="manifest.json of earlier corpora: what is there already is dropped, and a merged manifest made"
    )
    balance: BalanceConfig | None = Field(
        None, description="a budget of rows, spread evenly over clusters of embeddings and strata of columns"
    )

    @model_validator(mode="after")
    def _names(self) -> SelectConfig:
        names = [reference.name for reference in self.references]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"references: the name {name!r} is given twice; give each reference its own")
        for path in self.against:
            if redact_url(path) != path:
                raise ValueError(
                    f"against: {redact_url(path)} was given with credentials, and places are written into merged.json: "
                    "give them through the environment (AWS_..., GOOGLE_...) or the storage's own configuration"
                )
        if len(set(self.against)) != len(self.against):
            raise ValueError("against: a manifest is listed twice; list each corpus once")
        return self

    @property
    def needs_embedding(self) -> bool:
        """Whether selection reads the embedding column for all rows."""
        return self.semantic_duplicates is not None or self.balance is not None


def check_select(config: SelectConfig, stages: StageSet) -> None:
    """Find out before the run that everything that selection looks at is measured.

    Raises:
        ValueError: a column or a stage is missing.
    """
    check_quality(config.quality, stages)
    for name in ("semantic_duplicates", "balance"):
        if getattr(config, name) is not None and "embedding" not in stages.names:
            raise ValueError(
                f"select.{name} is set, and no scorer gives embeddings: configure scorers.embedding "
                f"(kind: efficientnet_lite0 or open_clip), or set select.{name} to null."
            )
    check_references(config.references, stages)
    if config.balance is not None:
        check_strata(config.balance.strata, {name: type_ for stage in stages for name, type_ in stage.columns.items()})


def check_quality(quality: Sequence[str], stages: StageSet) -> None:
    """Find out before the run that the quality columns are there and are numbers.

    Raises:
        ValueError: one is not.
    """
    known = {name: type_ for stage in stages for name, type_ in stage.columns.items()}
    # uint64 are hashes: larger is not better.
    numbers = [
        name
        for name, type_ in known.items()
        if pa.types.is_floating(type_) or (pa.types.is_integer(type_) and not pa.types.is_uint64(type_))
    ]
    valid = [*DERIVED, *numbers]
    for name in quality:
        if name not in valid:
            near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
            raise ValueError(
                f"select.quality: {name!r} is no number that this run measures: "
                f"{f'did you mean {near[0]}? ' if near else ''}valid: {', '.join(valid)}"
            )
