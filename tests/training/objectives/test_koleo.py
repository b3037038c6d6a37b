"""KoLeo against loops in float64; gradients that stay finite; rows with nothing to compare; splits of a batch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from training.objectives.koleo import KoleoConfig, koleo_loss, nearest_squared

EPS = 1e-8


def _rows(n: int, width: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed)) * 3


def _slow(cls: Tensor, group: int, eps: float = EPS) -> Tensor:
    """Pair by pair in float64, with autograd."""
    rows = cls.double()
    unit = [row / row.square().sum().sqrt() for row in rows]
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(unit)):
        others = [j for j in range(len(unit)) if j != i and j // group == i // group]
        if not others:
            continue
        squares = [(unit[i] - unit[j]).square().sum() for j in others]
        total = total - 0.5 * torch.log(min(squares, key=lambda square: square.item()) + eps)
    return total / max(1, len(unit))


@pytest.mark.parametrize(("n", "group"), [(8, 4), (8, 8), (7, 3), (9, 4), (5, 16), (6, 2), (2, 2), (3, 2)])
def test_equals_the_slow_loss_and_its_gradient(n: int, group: int) -> None:
    cls = _rows(n).requires_grad_()
    reference = _rows(n).requires_grad_()
    loss, expected = koleo_loss(cls, group), _slow(reference, group)
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(cls.grad, reference.grad, rtol=1e-4, atol=1e-6)


def test_rows_that_nearly_coincide_find_their_nearest() -> None:
    """Cosines of neighbors 2e-4 and less apart are equal in float32: the nearest has to be found with more digits."""
    angles = torch.tensor([0.0, 1e-4, 1.5e-4, 3e-4, 3.2e-4, 9e-4], dtype=torch.float64)
    cls = torch.stack([angles.cos(), angles.sin()], dim=1).float()
    expected = [1e-4, 5e-5, 5e-5, 2e-5, 2e-5, 5.8e-4]
    found = nearest_squared(cls, 6).sqrt()
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0.02, atol=0)


def test_a_batch_split_at_multiples_of_the_group_adds_up() -> None:
    cls = _rows(19)
    parts = [cls[:8], cls[8:12], cls[12:]]
    whole = sum(float(koleo_loss(part, 4)) * len(part) for part in parts) / 19
    assert whole == pytest.approx(float(koleo_loss(cls, 4)), rel=1e-6)


@pytest.mark.parametrize(("n", "group"), [(1, 4), (3, 1), (0, 4)])
def test_rows_with_nothing_to_compare_cost_0_with_gradients_of_0(n: int, group: int) -> None:
    cls = _rows(n).requires_grad_()
    loss = koleo_loss(cls, group)
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert cls.grad is not None
    assert not cls.grad.any()


def test_a_lone_row_in_the_last_group_counts_as_0() -> None:
    cls = _rows(5)
    assert nearest_squared(cls, 4).shape == (4,)
    assert float(koleo_loss(cls, 4)) == pytest.approx(float(koleo_loss(cls[:4], 4)) * 4 / 5, rel=1e-6)


def test_duplicates_have_a_finite_loss_and_no_gradient_between_them() -> None:
    cls = _rows(1).repeat(6, 1).requires_grad_()
    loss = koleo_loss(cls, 3)
    assert float(loss.detach()) == pytest.approx(-math.log(EPS) / 2, rel=1e-4)
    loss.backward()
    assert cls.grad is not None
    assert torch.isfinite(cls.grad).all()
    assert cls.grad.abs().max() < 1e-3


@pytest.mark.parametrize("gap", [1e-9, 1e-6, 1e-5, 1e-4, 1e-3, 1e-1])
def test_gradients_of_near_rows_are_bounded(gap: float) -> None:
    cls = torch.nn.functional.normalize(_rows(2), dim=-1)
    cls[1] = cls[0] + gap * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    cls.requires_grad_()
    koleo_loss(cls, 2).backward()
    assert cls.grad is not None
    assert torch.isfinite(cls.grad).all()
    # Two terms pull on a row, each with at most 1 / (2 sqrt(eps)), averaged over two rows.
    assert float(cls.grad.norm(dim=-1).max()) <= 1 / (2 * math.sqrt(EPS)) * 1.01


def test_zero_rows_are_finite() -> None:
    cls = torch.zeros(4, 6, requires_grad=True)
    koleo_loss(cls, 4).backward()
    assert cls.grad is not None
    assert torch.isfinite(cls.grad).all()


def test_descending_drives_rows_apart() -> None:
    cls = (torch.ones(4, 3) + 0.01 * _rows(4, 3)).requires_grad_()
    optimiser = torch.optim.Adam([cls], lr=0.05)
    assert nearest_squared(cls, 4).sqrt().max() < 0.05
    for _ in range(200):
        optimiser.zero_grad()
        koleo_loss(cls, 4).backward()
        optimiser.step()
    # A square around the equator has sides of sqrt(2), the tetrahedron sqrt(8 / 3).
    assert nearest_squared(cls, 4).sqrt().min() > 1.2


def test_half_precision_rows_under_autocast_are_compared_in_float32() -> None:
    # 32 rows on a small cap of the sphere: in bfloat16 all their cosines round to 1.
    cls = (torch.tensor([100.0] * 6) + _rows(32)).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = koleo_loss(cls, 32)
    loss.backward()
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(float(_slow(cls.detach(), 32)), rel=1e-3)
    assert cls.grad is not None
    assert cls.grad.dtype == torch.bfloat16
    assert torch.isfinite(cls.grad).all()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"CLS tokens of shape \(2, 3, 4\)"):
        koleo_loss(torch.zeros(2, 3, 4), 4)
    with pytest.raises(ValueError, match="in groups of 0"):
        koleo_loss(torch.zeros(3, 4), 0)
    with pytest.raises(TypeError, match=r"torch\.int64"):
        koleo_loss(torch.zeros(3, 4, dtype=torch.int64), 4)


def test_the_weight_is_the_papers() -> None:
    assert KoleoConfig().weight == 0.04
