"""The teacher's weights: an exponential moving average of the student's.

    teacher <- m * teacher + (1 - m) * student

once after each step of the optimiser. Sapiens2 gives m = 0.992 (paper, A.1.1) and no schedule; DINOv3's base recipe
lets it rise to 1 by half a cosine over the run. For small batches DINO and iBOT advise a higher one.

The average is kept in float32: a step moves a weight by 0.8 % of the difference at m = 0.992, which is mostly less than
bfloat16's spacing (0.4 % to 0.8 % of the weight itself), and would be rounded away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from pydantic import Field
from torch import Tensor

from curation.config import Config
from training.objectives.schedules import cosine

# Most values of a student in a lower precision that are converted at a time: 256 MiB of float32.
_CHUNK = 1 << 26


class EmaConfig(Config):
    """How fast the teacher follows the student."""

    momentum: float = Field(0.992, ge=0, le=1, description="share of the teacher that stays (Sapiens2 paper, A.1.1)")
    final_momentum: float | None = Field(
        None, ge=0, le=1, description="reached by half a cosine at the end of the run; none = constant (DINOv3: 1.0)"
    )


def momentum_at(config: EmaConfig, step: int, total: int) -> float:
    """The momentum of the update after 0-based `step` of a run of `total` steps.

    Raises:
        ValueError: a negative step or total.
    """
    final = config.momentum if config.final_momentum is None else config.final_momentum
    return cosine(step, config.momentum, final, total)


@torch.no_grad()
def update_ema(teacher: Sequence[Tensor], student: Sequence[Tensor], momentum: float) -> None:
    """Move the teacher towards the student, in place.

    Pure arithmetic on memory that is here: sharded models are updated shard by shard, given that both are cut alike.

    Args:
        teacher: float32 tensors.
        student: as many floating tensors of the same shapes and devices, any dtype, in the same order. Other dtypes are
            converted a few at a time: at most 256 MiB, or one tensor.
        momentum: 0 (a copy of the student) to 1 (no change).

    Raises:
        TypeError: a teacher that is not float32, or a student that is not floating.
        ValueError: a momentum outside of 0 to 1; tensors that do not pair up; no tensors, or empty ones, or a teacher
            that shares its memory with the student: updates that would do nothing, without a word.
    """
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum is {momentum}; give 0 (copy the student) to 1 (keep the teacher)")
    _check(teacher, student)
    for targets, sources in _chunks(zip(teacher, student, strict=True)):
        torch._foreach_lerp_(targets, [source.to(torch.float32) for source in sources], 1.0 - momentum)


def _chunks(pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """Pairs in groups of which at most `_CHUNK` values, or one tensor, have to be converted."""
    targets: list[Tensor] = []
    sources: list[Tensor] = []
    converted = 0
    for target, source in pairs:
        size = 0 if source.dtype == torch.float32 else source.numel()
        if targets and converted + size > _CHUNK:
            yield targets, sources
            targets, sources, converted = [], [], 0
        targets.append(target)
        sources.append(source)
        converted += size
    yield targets, sources


def _check(teacher: Sequence[Tensor], student: Sequence[Tensor]) -> None:
    if len(teacher) != len(student) or not teacher:
        raise ValueError(f"the teacher has {len(teacher)} tensors and the student {len(student)}; give 1 or more pairs")
    for index, (target, source) in enumerate(zip(teacher, student, strict=True)):
        if target.dtype != torch.float32:
            raise TypeError(
                f"tensor {index} of the teacher is {target.dtype}; keep it in float32, or small updates are lost"
            )
        if not source.is_floating_point():
            raise TypeError(f"tensor {index} of the student is {source.dtype}; give floating tensors only")
        if target.shape != source.shape:
            raise ValueError(
                f"tensor {index} is {tuple(target.shape)} in the teacher and {tuple(source.shape)} in the student; "
                "give both in one order, cut alike"
            )
        if not target.numel():
            raise ValueError(
                f"tensor {index} is empty, so that nothing would be updated: a parameter under ZeRO-3 is; give the "
                "shards that are here"
            )
        if target.data_ptr() == source.data_ptr():
            raise ValueError(f"tensor {index} of the teacher is the student's own memory; copy it first")
