"""What a run is between two steps, beside the pieces of its model."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from training.watch.guard import Guard


@dataclass
class RunState:
    """Changed by every step, saved with every checkpoint.

    Attributes:
        guard: with the losses that it compares with.
        tensors: small ones that are alike on every rank, such as the centre of self-distillation.
        step: steps that are done; also the place in the data, since a step's batch follows from its number.
        images_replaced: samples that could not be read, since the beginning.
    """

    guard: Guard
    tensors: dict[str, Tensor] = field(default_factory=dict)
    step: int = 0
    images_replaced: int = 0
