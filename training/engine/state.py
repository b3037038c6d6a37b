"""What a run is between two steps, beside the pieces of its model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from training.watch.guard import Guard


@dataclass
class RunState:
    """Changed by every step, saved with every checkpoint.

    Attributes:
        guard: with the losses that it compares with.
        centre: float32 [prototypes], of the teacher's logits; None without distillation.
        step: steps that are done; also the place in the data, since a step's batch follows from its number.
        images_replaced: samples that could not be read, since the beginning.
    """

    guard: Guard
    centre: Tensor | None
    step: int = 0
    images_replaced: int = 0
