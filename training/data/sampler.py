"""Which places of the sample order a rank's micro-batch has. Only the global batch's size decides what a step sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler


@dataclass(frozen=True)
class BatchPlan:
    """How the global batch of B samples is cut: B = world * micro_batch * accumulation.

    Step t sees the places [t * B, (t + 1) * B). Micro-step a takes world * micro_batch consecutive ones of them, of
    which rank r has the r-th contiguous micro_batch.

    Attributes:
        global_batch: samples of one optimizer step, B.
        micro_batch: samples of one rank at a time, m.
        world: ranks, R.
    """

    global_batch: int
    micro_batch: int
    world: int = 1

    def __post_init__(self) -> None:
        if min(self.global_batch, self.micro_batch, self.world) < 1:
            raise ValueError(
                f"batch of {self.global_batch}, micro-batch of {self.micro_batch}, {self.world} ranks: all must be at "
                "least 1"
            )
        if self.global_batch % (self.micro_batch * self.world):
            share, rest = divmod(self.global_batch, self.world)
            fitting = [size for size in range(1, share + 1) if share % size == 0][-12:] if not rest else []
            how = (
                f"micro-batches that divide it: {', '.join(map(str, fitting))}"
                if fitting
                else f"the batch must be a multiple of the {self.world} ranks"
            )
            raise ValueError(
                f"a batch of {self.global_batch} is not {self.world} ranks x micro-batches of {self.micro_batch} x a "
                f"whole number; {how}"
            )

    @property
    def accumulation(self) -> int:
        """Micro-steps of a step."""
        return self.global_batch // (self.micro_batch * self.world)

    def positions(self, step: int, micro_step: int, rank: int) -> npt.NDArray[np.int64]:
        """Places of a micro-batch, int64 [m], consecutive.

        Raises:
            ValueError: a step below 0, or a micro-step or rank that the plan does not have.
        """
        if step < 0 or not 0 <= micro_step < self.accumulation or not 0 <= rank < self.world:
            raise ValueError(
                f"step {step}, micro-step {micro_step}, rank {rank}: the plan has steps from 0 on, "
                f"{self.accumulation} micro-steps and {self.world} ranks"
            )
        first = step * self.global_batch + (micro_step * self.world + rank) * self.micro_batch
        return np.arange(first, first + self.micro_batch, dtype=np.int64)


class MicroSteps(Sampler[tuple[int, int]]):
    """(step, micro-step) in order, from the first micro-step of `start` up to, and without, the step `stop`.

    Args:
        accumulation: micro-steps of a step.
        start: first step.
        stop: None: without end.
    """

    def __init__(self, accumulation: int, start: int = 0, stop: int | None = None) -> None:
        self.accumulation, self.start, self.stop = accumulation, start, stop

    def __iter__(self) -> Iterator[tuple[int, int]]:
        step = self.start
        while self.stop is None or step < self.stop:
            for micro_step in range(self.accumulation):
                yield step, micro_step
            step += 1
