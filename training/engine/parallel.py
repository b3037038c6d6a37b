"""What the loop needs of a way of training: plain torch in one process, or ZeRO-3 over many.

Both keep float32 master weights, AdamW's moments and the float32 teacher as flat pieces (`shards.Piece`), so that a
checkpoint of one is read by the other, and by any number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from training.engine.shards import Piece
from training.engine.trainable import Trainable

Accept = Callable[[float], bool]


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step did.

    Attributes:
        grad_norm: global norm of the gradient before clipping.
        applied: False where the step was vetoed: weights, moments and teacher are as before.
    """

    grad_norm: float
    applied: bool


class Parallel(ABC):
    """A model that is trained by one or many ranks.

    Attributes:
        model: the module; its parameters may be partitioned.
        rank, world: of this process.
        device: of the inputs.
        dtype: of the arithmetic.
    """

    model: Trainable
    rank: int = 0
    world: int = 1
    device: torch.device
    dtype: torch.dtype

    @abstractmethod
    def micro_step(self, *inputs: Any, last: bool) -> Any:
        """Forward and backward of a micro-batch; gradients add up until `step`, which follows the `last`.

        Args:
            inputs: of the model's forward pass.

        Returns:
            The model's `Output`.
        """

    @abstractmethod
    def step(self, lr: float, head_lr: float, momentum: float, accept: Accept) -> StepResult:
        """Clip, step AdamW at `lr` (groups that are a head at `head_lr`), move the teacher, and forget the gradients.

        Args:
            momentum: of the teacher.
            accept: is asked with the gradient's norm; False leaves everything as it was. Gives the same on every rank.
        """

    @abstractmethod
    def pieces(self) -> list[Piece]:
        """The state of this rank: masters and moments of the student, masters of the teacher."""

    @abstractmethod
    def refresh(self) -> None:
        """Call after the pieces were written to: low-precision copies are made from them again."""

    @abstractmethod
    def adam_step(self) -> int:
        """How many optimizer steps the moments have seen."""

    @abstractmethod
    def set_adam_step(self, value: int) -> None:
        """See `adam_step`; after a resume."""

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum over ranks, in place."""
        return tensor

    def all_reduce_max(self, tensor: Tensor) -> Tensor:
        """Maximum over ranks, in place."""
        return tensor

    def gather_rows(self, rows: Tensor) -> Tensor:
        """[m, D] of every rank, one after another. The gradient goes to this rank's rows, R times: ranks average."""
        return rows

    def gather_objects(self, value: Any) -> list[Any]:
        """One small JSON-able object of every rank, in their order, on every rank."""
        return [value]

    def barrier(self) -> None:
        """Wait for every rank."""
        return

    def close(self) -> None:
        """Let go of what the way of training holds."""
        return


def clip_factor(norm: float, limit: float | None) -> float:
    """What gradients are multiplied by so that their global norm is at most `limit`."""
    if limit is None:
        return 1.0
    return min(1.0, limit / (norm + 1e-6))
