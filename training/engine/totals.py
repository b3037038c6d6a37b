"""What a step adds up over its micro-batches, and over the ranks in one message."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.batch import Batch
from training.engine.parallel import Parallel
from training.objectives.collapse import CollapseStats
from training.pretraining.model import Output


@dataclass(frozen=True)
class Reduced:
    """Sums over all ranks.

    Attributes:
        terms: the loss terms, means over the global batch.
        centre: float32 [prototypes], the teacher's logits added up; None without distillation.
        replaced: samples that could not be read.
        stop: why a rank wants the run to end; None: none does.
        written: whether every rank's files of the pending checkpoint are there.
    """

    terms: list[float]
    centre: Tensor | None
    replaced: int
    stop: str | None
    written: bool


class StepTotals:
    """Sums of one step on this rank.

    Args:
        collapse: emptied here; holds the sums of all ranks after `reduce`.
    """

    def __init__(self, parallel: Parallel, collapse: CollapseStats) -> None:
        self._parallel, self._collapse = parallel, collapse
        self._terms = torch.zeros(len(parallel.model.terms), device=parallel.device)
        self._centre: Tensor | None = None
        self._replaced = self._micro_batches = 0
        self.batches: list[Batch] = []
        collapse.reset()

    def add(self, batch: Batch, output: Output) -> None:
        """A micro-batch is done."""
        self.batches.append(batch)
        self._micro_batches += 1
        self._terms += output.terms
        self._replaced += int(batch.replaced.sum())
        if output.centre_sum is not None:
            self._centre = output.centre_sum if self._centre is None else self._centre + output.centre_sum
        self._collapse.update(output.teacher, output.cls)

    def reduce(self, stop: str | None, written: bool) -> Reduced:
        """Add up over ranks, all at once.

        Args:
            stop: why this rank wants the run to end.
            written: whether this rank's files of the pending checkpoint are there.
        """
        parallel = self._parallel
        flags = [float(self._replaced), float(stop is not None), float(written)]
        parts = [
            self._terms.double(),
            torch.tensor(flags, dtype=torch.float64, device=self._terms.device),
            self._collapse.sums,
        ]
        if self._centre is not None:
            parts.append(self._centre.double())
        sums = parallel.all_reduce(torch.cat(parts)).split([len(part) for part in parts])
        self._collapse.sums.copy_(sums[2])
        replaced, stops, writes = sums[1].tolist()
        if stops:
            stop = next(reason for reason in parallel.gather_objects(stop) if reason is not None)
        return Reduced(
            (sums[0] / (self._micro_batches * parallel.world)).tolist(),
            sums[3].float() if self._centre is not None else None,
            int(replaced),
            stop,
            writes == parallel.world,
        )
