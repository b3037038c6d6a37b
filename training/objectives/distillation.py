"""Self-distillation: the student's CLS token of one view predicts the teacher's of another, as prototypes.

With z the logits of a view over P prototypes (the projection head's output), c the centre, and temperatures of student
and teacher (s, t)::

    teacher   p_v = softmax((z_v - c) / t)           or Sinkhorn-Knopp of z / t over the batch
    L = mean over ordered pairs (v, u), v != u, v global, u any view, and over samples of  -sum_k p_v[k] log q_u[k]
    student   q_u = softmax(z_u / s)

Two global and four local views give 2 * 1 + 2 * 4 = 10 pairs (Sapiens2 paper, 3.2: global-global and global-local,
none local-local), averaged plainly. The teacher sees the global views whole; the student sees them masked, and the
local ones whole. At random weights the loss is near ln P: 11.09 for 65,536.

Temperatures (student 0.1, teacher 0.065 rising to 0.07 over 1,000 iterations), the weight and the momentum of the
centre are the paper's (A.1.1). That it lists a momentum speaks for DINO's centre (Caron et al., 2021), so this is the
default; DINOv3, which it builds on, uses Sinkhorn-Knopp (Cuturi, 2013; Caron et al., SwAV, 2020) with 3 iterations. The
loss over patch tokens is iBOT's (Zhou et al., 2022); the paper's list of weights has none, so it is off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from curation.config import Config
from training.objectives.pair_entropy import PairEntropy
from training.objectives.schedules import linear


class DistillationConfig(Config):
    """The self-distillation term."""

    weight: float = Field(0.4, ge=0, description="weight in the loss, 0 = off (Sapiens2 paper, A.1.1)")
    student_temperature: float = Field(0.1, gt=0, description="of the student's softmax (paper, A.1.1)")
    teacher_temperature: float = Field(0.07, gt=0, description="of the teacher's, after its warm-up (paper, A.1.1)")
    teacher_temperature_start: float = Field(0.065, gt=0, description="of the teacher's, at step 0 (paper, A.1.1)")
    teacher_temperature_warmup: int = Field(
        1000, ge=0, description="steps from the start to the final teacher temperature (paper, A.1.1)"
    )
    centring: Literal["moving_average", "sinkhorn_knopp"] = Field(
        "moving_average",
        description="what keeps the teacher from one prototype for all: a moving average of its logits is subtracted "
        "(DINO), or its assignments are balanced over the batch (DINOv3)",
    )
    centre_momentum: float = Field(0.9, ge=0, lt=1, description="share of the centre that stays (paper, A.1.1)")
    sinkhorn_iterations: int = Field(3, ge=1, description="of Sinkhorn-Knopp (DINOv3's default)")
    patch_weight: float = Field(
        0.0, ge=0, description="weight of the same loss over visible patch tokens of global views, 0 = off (iBOT)"
    )


def teacher_temperature_at(config: DistillationConfig, step: int) -> float:
    """The teacher's temperature at 0-based `step`."""
    return linear(step, config.teacher_temperature_start, config.teacher_temperature, config.teacher_temperature_warmup)


def view_pairs(global_views: int, local_views: int) -> list[tuple[int, int]]:
    """The pairs (teacher's view, student's view) of the loss, views counted from 0, global ones first.

    Every global view teaches every other view: V * (V - 1 + L) pairs, 10 for 2 and 4. One global view alone has none.

    Raises:
        ValueError: no global view, or a negative number.
    """
    _check_views(global_views, local_views)
    return [(v, u) for v in range(global_views) for u in range(global_views + local_views) if u != v]


@torch.no_grad()
def centred_softmax(logits: Tensor, temperature: float, centre: Tensor | None) -> Tensor:
    """The teacher's distribution: softmax((logits - centre) / temperature).

    Args:
        logits: [..., P], any floating dtype.
        temperature: above 0; low ones sharpen.
        centre: [P], from `update_centre`; none = zeros.

    Returns:
        float32, the shape of `logits`, rows sum to 1. Without gradient.

    Raises:
        ValueError: a temperature of 0 or less, or a centre of another shape.
    """
    _check_temperature(temperature)
    scores = logits.float()
    if centre is not None:
        if centre.shape != logits.shape[-1:]:
            raise ValueError(f"the centre has shape {tuple(centre.shape)}; logits {tuple(logits.shape)} take one [P]")
        scores = scores - centre.float()
    return torch.softmax(scores / temperature, dim=-1)


@torch.no_grad()
def sinkhorn_knopp(
    logits: Tensor,
    temperature: float,
    iterations: int,
    reduce_sum: Callable[[Tensor], Tensor] | None = None,
    reduce_max: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The teacher's distribution, balanced: over the whole batch all prototypes are used the same.

    Starts from exp(logits / temperature), as DINOv3 does. An iteration scales all columns to the same sum, then all
    rows to 1, so that the columns' sums approach R / P. The first iteration is taken on logarithms, since
    exp(logits / temperature) overflows in float32 from logits of 6.2 at 0.07 on. Starting from rows of sum 1 instead
    would have the same limit and, after 3 iterations, probabilities that differ by tens of percent. Holds one float32
    matrix [R, P].

    Args:
        logits: [R, P], the rows of this rank, any floating dtype.
        temperature: above 0.
        iterations: 1 or more.
        reduce_sum: the sum of a float32 tensor [P] over all ranks, called once an iteration; may work in place. With it
            the result is that of all ranks' rows together. None = these rows are all.
        reduce_max: likewise the maximum, called once. Give both or none.

    Returns:
        float32 [R, P], rows sum to 1. Without gradient. A prototype whose share is 0 in float32 for all rows stays
        at 0.

    Raises:
        ValueError: not a matrix, a temperature of 0 or less, no iterations, or one reduction without the other.
    """
    _check_temperature(temperature)
    if (reduce_sum is None) != (reduce_max is None):
        raise ValueError("give both reduce_sum and reduce_max, or none of them")
    if logits.ndim != 2 or iterations < 1:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and iterations are {iterations}; give [rows, prototypes], and 1 "
            "or more"
        )
    scores = logits.float() / temperature
    # A rank without rows has nothing to say about the maximum.
    highest = scores.amax(dim=0) if len(scores) else scores.new_full(scores.shape[1:], -torch.inf)
    if reduce_max is not None:
        highest = reduce_max(highest)
    columns = (scores - highest).exp_().sum(dim=0)
    if reduce_sum is not None:
        columns = reduce_sum(columns)
    shares = torch.softmax(scores - (highest + columns.log()), dim=-1)
    del scores
    for _ in range(iterations - 1):
        columns = shares.sum(dim=0)
        if reduce_sum is not None:
            columns = reduce_sum(columns)
        shares /= columns.clamp_min(torch.finfo(torch.float32).tiny)
        shares /= shares.sum(dim=1, keepdim=True)
    return shares


def distillation_loss(student_logits: Tensor, teacher_probs: Tensor, temperature: float) -> Tensor:
    """Cross-entropy from teacher to student, the plain mean over pairs of views and over samples.

    Memory: for backward only the inputs are held, by reference, and one float32 per row; nothing of the logits' size is
    allocated until backward makes their gradient, in their dtype. While it runs, each direction works on one student
    view at a time: up to four float32 matrices [m, P], which are released again.

    Args:
        student_logits: [V + L, m, P], any floating dtype, global views first.
        teacher_probs: [V, m, P], any floating dtype, of `centred_softmax` or `sinkhorn_knopp`; a target, so that it
            gets no gradient.
        temperature: the student's, above 0.

    Returns:
        float32 scalar. Differentiable once.

    Raises:
        ValueError: shapes that do not fit together, no pair of views, no samples, or a temperature of 0 or less.
    """
    _check_temperature(temperature)
    if student_logits.ndim != 3 or teacher_probs.ndim != 3 or student_logits.shape[1:] != teacher_probs.shape[1:]:
        raise ValueError(
            f"student logits have shape {tuple(student_logits.shape)}, the teacher's probabilities "
            f"{tuple(teacher_probs.shape)}; give [V + L, m, P] and [V, m, P]"
        )
    globals_, views = len(teacher_probs), len(student_logits)
    pairs = view_pairs(globals_, views - globals_)
    if not pairs or not student_logits.numel():
        raise ValueError(
            f"{globals_} global and {views - globals_} local views of {student_logits.shape[1]} samples have nothing "
            "to compare; give two global views or one local view at least, or set the weight of distillation to 0"
        )
    teachers = tuple(tuple(v for v, u in pairs if u == view) for view in range(views))
    return PairEntropy.apply(student_logits, teacher_probs, temperature, teachers) / (
        len(pairs) * teacher_probs.shape[1]
    )


def patch_distillation_loss(student_logits: Tensor, teacher_probs: Tensor, temperature: float) -> Tensor:
    """Cross-entropy from teacher to student at the same tokens of the same images, the plain mean over all tokens.

    Memory as `distillation_loss`, with one image's tokens [K, P] at a time.

    Args:
        student_logits: [B, K, P], of the student's patch tokens, any floating dtype.
        teacher_probs: [B, K, P], the teacher's distribution at the same tokens; gets no gradient.
        temperature: the student's, above 0.

    Returns:
        float32 scalar. Differentiable once.

    Raises:
        ValueError: shapes that differ, no tokens, or a temperature of 0 or less.
    """
    _check_temperature(temperature)
    if student_logits.ndim != 3 or student_logits.shape != teacher_probs.shape or not student_logits.numel():
        raise ValueError(
            f"student logits have shape {tuple(student_logits.shape)}, the teacher's probabilities "
            f"{tuple(teacher_probs.shape)}; give [B, K, P] twice, none of them 0"
        )
    batch, tokens = student_logits.shape[:2]
    teachers = tuple((image,) for image in range(batch))
    return PairEntropy.apply(student_logits, teacher_probs, temperature, teachers) / (batch * tokens)


@torch.no_grad()
def update_centre(centre: Tensor, sum_of_logits: Tensor, count: float, momentum: float) -> Tensor:
    """The moving average of the teacher's logits: momentum * centre + (1 - momentum) * sum_of_logits / count.

    Once a step, with sums over all micro-batches and ranks, so that it does not depend on their number. Sum in float32:
    `logits.sum(dim=..., dtype=torch.float32)`.

    Args:
        centre: float32 [P], not changed.
        sum_of_logits: [P], the sum over rows (views and samples) of the teacher's raw logits.
        count: how many rows, above 0.
        momentum: 0 (this step only) up to, not including, 1.

    Returns:
        float32 [P], the new centre.

    Raises:
        ValueError: shapes that differ, no rows, or a momentum outside of [0, 1).
    """
    if centre.ndim != 1 or centre.shape != sum_of_logits.shape:
        raise ValueError(
            f"the centre has shape {tuple(centre.shape)} and the sum of logits {tuple(sum_of_logits.shape)}; give [P], "
            "twice"
        )
    if count <= 0 or not 0 <= momentum < 1:
        raise ValueError(f"a centre of {count} rows with momentum {momentum}: give 1 or more, and 0 <= momentum < 1")
    return torch.lerp(sum_of_logits.float() / count, centre.float(), momentum)


def _check_views(global_views: int, local_views: int) -> None:
    if global_views < 1 or local_views < 0:
        raise ValueError(f"{global_views} global and {local_views} local views: give 1 or more, and 0 or more")


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; give a number above 0")
