"""A recipe as a bare loop: the same functions called directly, with the same early exits and nothing around them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curation.decode import Problem
from curation.policy import Policy
from curation.records import Batch, Pixels
from curation.scorers.base import Scorer
from pipeline.config import PopulaceConfig
from pipeline.curate import build_stages
from pipeline.scores import to_arrow


class BareRecipe:
    """All stages of a configuration over image files. Nothing is written; columns live until their batch is done.

    Args:
        warm_up: a file that is measured before the clock starts.

    Attributes:
        seconds: stage name -> CPU seconds spent in it; header includes the read.
        reached: stage name -> rows that reached it.
    """

    def __init__(self, config: PopulaceConfig, warm_up: str) -> None:
        self.config = config
        self.warm_up = warm_up
        self.seconds: dict[str, float] = {}
        self.reached: dict[str, int] = {}

    def setup(self) -> None:
        """Load the models and measure one picture with all of them."""
        stages = build_stages(self.config)
        self.header, self.screen = stages.header, stages.screen
        self.scorers: list[Scorer] = [stage.scorer for stage in stages if stage.scorer is not None]
        self.types = {name: type_ for columns in stages.columns.values() for name, type_ in columns.items()}
        self.policy = Policy(self.config.policy, stages.names)
        for scorer in self.scorers:
            scorer.setup()
        nothing_drops, policy = Policy(self.config.policy, []), self.policy
        self.policy = nothing_drops
        self([self.warm_up])
        self.policy = policy
        self.seconds.clear()
        self.reached.clear()

    def __call__(self, items: Sequence[str]) -> dict[str, int]:
        """Measure files; returns how many come through."""
        rows: list[dict[str, Any]] = []
        pixels: list[Pixels] = []
        for path in items:
            started = time.process_time()
            data = Path(path).read_bytes()
            columns, header = self.header.measure(data)
            self._account("header", 1, started)
            if isinstance(header, Problem) or self.policy.row_fails("header", columns, self.types):
                continue
            started = time.process_time()
            more, picture = self.screen.measure(data, header)
            self._account("screen", 1, started)
            if isinstance(picture, Problem) or self.policy.row_fails("screen", more, self.types):
                continue
            rows.append({"id": path, "uri": path, "member": "", "metadata": None, **columns, **more})
            pixels.append(picture)
        for scorer in self.scorers:
            if rows:
                rows, pixels = self._score(scorer, rows, pixels)
        return {"alive": len(rows)}

    def _score(
        self, scorer: Scorer, rows: list[dict[str, Any]], pixels: list[Pixels]
    ) -> tuple[list[dict[str, Any]], list[Pixels]]:
        started = time.process_time()
        size = scorer.config.batch_size
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            batch = Batch(
                [row["id"] for row in part],
                pixels[start : start + size] if scorer.needs_pixels else [],
                {name: [row[name] for row in part] for name in scorer.needs},
            )
            for name, values in scorer.score(batch).items():
                for row, value in zip(part, values, strict=True):
                    row[name] = value
        self._account(scorer.name, len(rows), started)
        wanted = {rule.column for rule in self.policy.rules.get(scorer.name, ())}
        if not wanted:
            return rows, pixels
        failed = self.policy.failed(
            scorer.name, {name: to_arrow([row[name] for row in rows], self.types[name]) for name in wanted}
        )
        kept = np.flatnonzero(~failed).tolist()
        return [rows[index] for index in kept], [pixels[index] for index in kept]

    def _account(self, stage: str, rows: int, started: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.process_time() - started
        self.reached[stage] = self.reached.get(stage, 0) + rows
