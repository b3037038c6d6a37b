"""What balancing is to do."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

from pydantic import Field, model_validator

from curation.balance.budget import StrataOrder
from curation.balance.sample import Pick
from curation.balance.strata import StratumConfig
from curation.config import Config


class BalanceConfig(Config):
    """A budget of rows, spread over clusters of embeddings and over strata by water-filling. Give budget or share."""

    budget: int | None = Field(None, ge=1, description="rows to keep; all are kept where there are fewer")
    share: float | None = Field(None, gt=0, le=1, description="rows to keep, as a share of those that got this far")
    levels: tuple[int, ...] = Field(
        (4096, 256, 16),
        min_length=1,
        max_length=8,
        description="clusters of each level of the hierarchy, from the leaves up, strictly fewer at each",
    )
    pick: Pick = Field(
        "random",
        description="which rows of a cluster stay: random, or those nearest to or farthest from its centroid",
    )
    strata: tuple[StratumConfig, ...] = Field((), max_length=8, description="attributes that are crossed with clusters")
    strata_order: StrataOrder = Field(
        "outside",
        description="outside: the budget is spread over strata, then over clusters in each; inside: over clusters "
        "first, so that strata are even within each cluster only",
    )
    train_rows: int | None = Field(
        None, ge=1, description="rows that the first level is fitted on; null: 256 per cluster of that level"
    )
    iterations: int = Field(20, ge=1, le=1000, description="k-means iterations of each fit")
    resample: int = Field(
        10,
        ge=0,
        le=100,
        description="from the second level up: how often centroids are fitted again, on the members nearest to each, "
        "so that dense regions do not attract them (Vo et al. 2024, arXiv:2405.15613); 0 switches it off",
    )
    resample_members: int | None = Field(
        None, ge=1, description="members nearest to each centroid that are used; null: half of the mean, at least 1"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of the clustering and of random choices")

    @model_validator(mode="after")
    def _consistent(self) -> BalanceConfig:
        if (self.budget is None) == (self.share is None):
            given = "neither" if self.budget is None else "both"
            raise ValueError(f"give one of budget (rows) and share (0..1), got {given}")
        check_levels(self.levels)
        columns = [config.column for config in self.strata]
        for column in columns:
            if columns.count(column) > 1:
                raise ValueError(f"strata: {column} comes twice; give its bins once")
        return self

    def rows(self, candidates: int) -> int:
        """The budget in rows, of that many candidates; a share is rounded down as it is written, not in binary, and is
        one row at least."""
        if self.share is None:
            assert self.budget is not None
            return min(self.budget, candidates)
        return max(int(Decimal(repr(self.share)) * candidates), min(candidates, 1))


def check_levels(levels: tuple[int, ...]) -> None:
    """Raise unless levels are 1 or more and strictly decreasing.

    Raises:
        ValueError: they are not.
    """
    if not levels or any(type(level) is not int or level < 1 for level in levels):
        raise ValueError(f"levels must be numbers of clusters, 1 or more, at least one of them; got {list(levels)}")
    for below, above in pairwise(levels):
        if above >= below:
            raise ValueError(f"levels must be strictly decreasing from the leaves up, got {above} above {below}")
