"""The fused sum of cross-entropies against autograd on the plain formula, for any set of pairs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.objectives.pair_entropy import PairEntropy, Teachers

SETS: list[Teachers] = [((0,),) * 3, ((1,), (0,), (0, 1)), ((), (0,), ()), ((0, 1), (0, 1), ()), ((1, 1), (0,), (0,))]


def _inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    # The teacher's rows need not sum to 1.
    return torch.randn(3, 4, 5, generator=generator), torch.rand(2, 4, 5, generator=generator)


@pytest.mark.parametrize("teachers", SETS)
def test_equals_autograd_on_the_plain_formula(teachers: Teachers) -> None:
    student, teacher = _inputs()
    fused, plain = student.clone().requires_grad_(), student.double().requires_grad_()
    loss = PairEntropy.apply(fused, teacher, 0.2, teachers)
    expected = torch.zeros((), dtype=torch.float64)
    for s, mine in enumerate(teachers):
        for t in mine:
            expected = expected - (teacher[t].double() * torch.log_softmax(plain[s] / 0.2, dim=-1)).sum()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
    (0.5 * loss).backward()
    (0.5 * expected).backward()
    torch.testing.assert_close(fused.grad.double(), plain.grad, rtol=1e-4, atol=1e-5)  # type: ignore[union-attr]


def test_backward_can_run_twice_and_gives_the_teacher_nothing() -> None:
    student, teacher = _inputs()
    student.requires_grad_()
    teacher.requires_grad_()
    loss = PairEntropy.apply(student, teacher, 0.2, SETS[1])
    first, second = (torch.autograd.grad(loss, student, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.autograd.grad(loss, teacher, allow_unused=True) == (None,)


def test_a_second_derivative_is_refused() -> None:
    student, teacher = _inputs()
    student.requires_grad_()
    loss = PairEntropy.apply(student, teacher, 0.2, SETS[0])
    gradient = torch.autograd.grad(loss.square(), student, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
