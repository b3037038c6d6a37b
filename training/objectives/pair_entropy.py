"""The sum of cross-entropies over pairs of teacher and student, without a copy of the logits for each pair."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Teachers = tuple[tuple[int, ...], ...]


class PairEntropy(torch.autograd.Function):
    """The sum of -sum_k p[t, r, k] log softmax(z[s, r] / temperature)[k] over slices s, their teachers t and rows r.

    The pairs of one student slice share their softmax, and their targets add up: with T the sum of its teachers'
    probabilities, |T| that of T over k, and lse the log of the sum of exp(z / temperature),

        loss = |T| lse - T . z / temperature          d loss / d z = (|T| softmax(z / temperature) - T) / temperature

    `PairEntropy.apply(student [S, R, P], teacher [V, R, P], temperature, teachers)` with, for each student slice, the
    indices of its teachers. Autograd alone would hold z / temperature in float32 and T for each slice; here backward
    computes them again from the inputs.
    """

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, temperature: float, teachers: Teachers) -> Tensor:
        """The sum, a float32 scalar."""
        total = student.new_zeros((), dtype=torch.float32)
        normalisers = student.new_zeros(student.shape[:2], dtype=torch.float32)
        target: Tensor | None = None
        for index, mine in enumerate(teachers):
            if not mine:
                continue
            if target is None or mine != teachers[index - 1]:
                target = _target(teacher, mine)
            scaled = student[index].float() / temperature
            normalisers[index] = torch.logsumexp(scaled, dim=-1)
            # (lse - z) >= 0 term by term: nothing cancels between large sums.
            total += scaled.neg_().add_(normalisers[index, :, None]).mul_(target).sum()
        ctx.save_for_backward(student, teacher, normalisers)
        ctx.temperature, ctx.teachers = temperature, teachers
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient for the student, in its dtype."""
        student, teacher, normalisers = ctx.saved_tensors
        gradient = torch.zeros_like(student)
        factor = upstream[0] / ctx.temperature
        target: Tensor | None = None
        for index, mine in enumerate(ctx.teachers):
            if not mine:
                continue
            if target is None or mine != ctx.teachers[index - 1]:
                target = _target(teacher, mine)
            probs = (student[index].float() / ctx.temperature).sub_(normalisers[index, :, None]).exp_()
            gradient[index] = probs.mul_(target.sum(dim=-1, keepdim=True)).sub_(target).mul_(factor)
        return gradient, None, None, None


def _target(teacher: Tensor, indices: tuple[int, ...]) -> Tensor:
    """The sum of some of the teacher's slices, float32 [R, P]: fresh memory only where there are several."""
    target = teacher[indices[0]].float()
    for index in indices[1:]:
        target = target + teacher[index].float()
    return target
