"""What a step adds up over its micro-batches, and over the ranks in one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.engine.parallel import Parallel


@dataclass(frozen=True)
class Reduced:
    """Sums over all ranks.

    Attributes:
        terms: the loss terms, means over the global batch.
        sums: float64, what `StepTotals.reduce` was given, added up.
        replaced: samples that could not be read.
        stop: why a rank wants the run to end; None: none does.
        written: whether every rank's files of the pending checkpoint are there.
    """

    terms: list[float]
    sums: list[Tensor]
    replaced: int
    stop: str | None
    written: bool


class StepTotals:
    """Sums of one step on this rank."""

    def __init__(self, parallel: Parallel) -> None:
        self._parallel = parallel
        self._terms = torch.zeros(len(parallel.model.terms), device=parallel.device)
        self._replaced = self._micro_batches = 0

    def add(self, terms: Tensor, replaced: int) -> None:
        """A micro-batch is done: its loss terms, and how many samples of it stand in for others."""
        self._micro_batches += 1
        self._terms += terms
        self._replaced += replaced

    def reduce(self, sums: Sequence[Tensor], stop: str | None, written: bool) -> Reduced:
        """Add up over ranks, all at once.

        Args:
            sums: vectors of this rank to add up as well.
            stop: why this rank wants the run to end.
            written: whether this rank's files of the pending checkpoint are there.
        """
        parallel = self._parallel
        flags = [float(self._replaced), float(stop is not None), float(written)]
        parts = [
            self._terms.double(),
            torch.tensor(flags, dtype=torch.float64, device=self._terms.device),
            *(part.double() for part in sums),
        ]
        terms, counts, *rest = parallel.all_reduce(torch.cat(parts)).split([len(part) for part in parts])
        replaced, stops, writes = counts.tolist()
        if stops:
            stop = next(reason for reason in parallel.gather_objects(stop) if reason is not None)
        means = (terms / (self._micro_batches * parallel.world)).tolist()
        return Reduced(means, rest, int(replaced), stop, writes == parallel.world)
