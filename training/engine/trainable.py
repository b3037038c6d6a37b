"""What the engine trains: a module with a part that is trained, perhaps a moving average of it, and its own loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from training.models.checkpoints import Gather
from training.watch.stopwatch import Stopwatch

if TYPE_CHECKING:
    from training.engine.config import OptimiserConfig


class Output(Protocol):
    """What a forward pass gives. A tuple, since DeepSpeed looks for tensors in tuples only.

    Attributes:
        loss: scalar, what is minimised; its gradient averaged over micro-batches and ranks is the step's.
        terms: float32 [len(Trainable.terms)], the loss terms before their weights, detached.
    """

    @property
    def loss(self) -> Tensor: ...

    @property
    def terms(self) -> Tensor: ...


class Trainable(nn.Module):
    """A model for the engine. `student` holds everything that is trained; what is averaged is in `teacher_pairs`.

    Attributes:
        terms: names of the loss terms.
        dtype: what pictures are cast to for the encoders.
        stopwatch: times the parts of a forward pass, where there is one.
        all_reduce: sums a tensor over ranks, in place.
        all_reduce_max: takes the maximum over ranks, in place.
        gather_rows: [m, D] of this rank -> [R * m, D] of all, with gradient to this rank's rows.
    """

    student: nn.Module
    terms: tuple[str, ...]

    def __init__(self) -> None:
        super().__init__()
        self.dtype = torch.float32
        self.stopwatch: Stopwatch | None = None
        self.all_reduce: Callable[[Tensor], Tensor] | None = None
        self.all_reduce_max: Callable[[Tensor], Tensor] | None = None
        self.gather_rows: Callable[[Tensor], Tensor] | None = None

    @abstractmethod
    def weights(self) -> tuple[float, ...]:
        """The factor of every term in the loss, in the order of `terms`."""

    @abstractmethod
    def parameter_groups(self, optimiser: OptimiserConfig) -> list[dict[str, Any]]:
        """Groups of the trained parameters: `params`, `weight_decay`, and where they have them `scale` (of the learning
        rate) and `head` (True: has a learning rate of its own)."""

    def teacher_pairs(self) -> list[tuple[str, nn.Parameter, nn.Parameter]]:
        """(name inside the teacher, teacher's parameter, student's) of everything that is averaged."""
        return []

    def load_initial_weights(self, gather: Gather | None = None) -> None:
        """Fill the student from the files that the configuration names, before anything is copied from it.

        Args:
            gather: of parameters that are partitioned, see `load_weights`; then every rank has to call this.
        """
        return

    def compile_blocks(self) -> None:
        """Have blocks compiled at their first call, in place: names of parameters stay."""
        return

    def part(self, name: str) -> AbstractContextManager[None]:
        """Times a block, where there is a stopwatch."""
        return nullcontext() if self.stopwatch is None else self.stopwatch.part(name)


def set_rates(groups: Sequence[dict[str, Any]], lr: float, head_lr: float) -> None:
    """Give every parameter group its learning rate of the step."""
    for group in groups:
        group["lr"] = (head_lr if group.get("head") else lr) * group.get("scale", 1.0)
