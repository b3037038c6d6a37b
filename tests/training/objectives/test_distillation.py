"""Self-distillation against loops over pairs, samples and prototypes; balanced assignments; centres; memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from training.models.projection import ProjectionConfig, ProjectionHead
from training.objectives.distillation import (
    DistillationConfig,
    centred_softmax,
    distillation_loss,
    patch_distillation_loss,
    sinkhorn_knopp,
    teacher_temperature_at,
    update_centre,
    view_pairs,
)


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _probs(*shape: int, seed: int = 1) -> Tensor:
    return torch.softmax(_draw(*shape, seed=seed) / 0.3, dim=-1)


def _cross_entropy(logits: Tensor, probs: Tensor, temperature: float) -> Tensor:
    """One row in float64, by the sum over prototypes."""
    scaled = logits.double() / temperature
    log_sum = torch.log(sum((torch.exp(z - scaled.max()) for z in scaled), torch.zeros(()).double())) + scaled.max()
    return sum((p * (log_sum - z) for p, z in zip(probs.double(), scaled, strict=True)), torch.zeros(()).double())


def _slow(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    terms = []
    for v in range(len(teacher)):
        for u in range(len(student)):
            if u == v:
                continue
            terms += [_cross_entropy(student[u, i], teacher[v, i], temperature) for i in range(student.shape[1])]
    return torch.stack(terms).mean()


def test_the_pairs_of_two_global_and_four_local_views_are_ten() -> None:
    pairs = view_pairs(2, 4)
    assert sorted(pairs) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (1, 2), (1, 3), (1, 4), (1, 5)]


@given(st.integers(1, 6), st.integers(0, 8))
def test_pairs_are_all_from_a_global_view_to_another_one(global_views: int, local_views: int) -> None:
    pairs = view_pairs(global_views, local_views)
    assert len(set(pairs)) == len(pairs) == global_views * (global_views - 1 + local_views)
    assert all(0 <= v < global_views and 0 <= u < global_views + local_views and u != v for v, u in pairs)


def test_one_global_view_teaches_the_local_ones_only() -> None:
    assert view_pairs(1, 3) == [(0, 1), (0, 2), (0, 3)]
    assert view_pairs(2, 0) == [(0, 1), (1, 0)]
    assert view_pairs(1, 0) == []
    with pytest.raises(ValueError, match="0 global and 4 local views"):
        view_pairs(0, 4)


@pytest.mark.parametrize(("global_views", "local_views"), [(2, 4), (1, 3), (2, 0), (3, 1)])
def test_the_loss_and_its_gradient_equal_the_slow_ones(global_views: int, local_views: int) -> None:
    teacher = _probs(global_views, 3, 7)
    student = _draw(global_views + local_views, 3, 7).requires_grad_()
    reference = student.detach().double().requires_grad_()
    loss, expected = distillation_loss(student, teacher, 0.1), _slow(reference, teacher, 0.1)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(student.grad, reference.grad, rtol=1e-4, atol=1e-5, check_dtype=False)


def test_patches_are_compared_with_the_same_patches() -> None:
    student, teacher = _draw(2, 4, 7).requires_grad_(), _probs(2, 4, 7)
    reference = student.detach().double().requires_grad_()
    rows = [_cross_entropy(reference[b, k], teacher[b, k], 0.1) for b in range(2) for k in range(4)]
    loss, expected = patch_distillation_loss(student, teacher, 0.1), torch.stack(rows).mean()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(student.grad, reference.grad, rtol=1e-4, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_worked_on_in_float32(dtype: torch.dtype) -> None:
    student, teacher = (_draw(6, 3, 50) * 4).to(dtype).requires_grad_(), _probs(2, 3, 50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = distillation_loss(student, teacher, 0.1)
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(float(_slow(student.detach(), teacher, 0.1)), rel=1e-5)
    loss.backward()
    assert student.grad is not None
    assert student.grad.dtype == dtype
    exact = student.detach().float().requires_grad_()
    distillation_loss(exact, teacher, 0.1).backward()
    torch.testing.assert_close(student.grad, exact.grad.to(dtype))  # type: ignore[union-attr]
    assert centred_softmax(student, 0.07, None).dtype == sinkhorn_knopp(student[0], 0.07, 3).dtype == torch.float32


def test_extreme_logits_are_finite() -> None:
    student = (torch.tensor([1e4, -1e4, 0.0]) * torch.ones(3, 2, 3)).requires_grad_()
    teacher = centred_softmax(-student[:1].detach(), 0.07, None)
    loss = distillation_loss(student, teacher, 0.1)
    assert float(loss.detach()) == pytest.approx(2e4 / 0.1)
    loss.backward()
    assert student.grad is not None
    assert torch.isfinite(student.grad).all()
    assert torch.isfinite(sinkhorn_knopp(student[0].detach(), 0.07, 3)).all()


def test_a_new_head_starts_near_the_logarithm_of_its_prototypes() -> None:
    torch.manual_seed(0)
    heads = [ProjectionHead(ProjectionConfig.tiny(24)) for _ in range(2)]
    with torch.no_grad():
        student = heads[0](_draw(6 * 8, 24)).view(6, 8, -1)
        teacher = heads[1](_draw(2 * 8, 24, seed=2)).view(2, 8, -1)
    start = math.log(1024)
    for probs in (centred_softmax(teacher, 0.07, torch.zeros(1024)), _balanced(teacher)):
        assert float(distillation_loss(student, probs, 0.1)) == pytest.approx(start, rel=0.15)
    assert float(distillation_loss(torch.zeros(6, 8, 1024), probs, 0.1)) == pytest.approx(start, rel=1e-5)


def _balanced(logits: Tensor) -> Tensor:
    return sinkhorn_knopp(logits.flatten(0, 1), 0.07, 3).view_as(logits)


def test_the_loss_is_least_where_student_and_teacher_agree() -> None:
    teacher = _probs(2, 3, 7)[:1].expand(2, 3, 7)
    agreeing = (teacher.log() * 0.1)[:1].expand(4, 3, 7).clone().requires_grad_()
    loss = distillation_loss(agreeing, teacher, 0.1)
    assert float(loss.detach()) == pytest.approx(float(torch.special.entr(teacher[0]).sum(-1).mean()), rel=1e-5)
    loss.backward()
    assert agreeing.grad is not None
    assert agreeing.grad.abs().max() < 1e-6


def test_nothing_of_the_size_of_the_logits_is_held_for_backward() -> None:
    student, teacher = _draw(6, 4, 100).requires_grad_(), _probs(2, 4, 100)
    saved: list[Tensor] = []

    def remember(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        distillation_loss(student, teacher, 0.1)
    inputs = {student.data_ptr(), teacher.data_ptr()}
    assert {tensor.data_ptr() for tensor in saved} > inputs
    assert sum(tensor.numel() for tensor in saved if tensor.data_ptr() not in inputs) <= 6 * 4 + 1


def test_inputs_are_left_as_they_are() -> None:
    student, teacher = _draw(6, 3, 7).requires_grad_(), _probs(2, 3, 7)
    before = student.detach().clone(), teacher.clone()
    distillation_loss(student, teacher, 0.1).backward()
    patch_distillation_loss(student[:2], teacher, 0.1).backward()
    assert torch.equal(student.detach(), before[0])
    assert torch.equal(teacher, before[1])
    logits = _draw(4, 5)
    sinkhorn_knopp(logits, 1.0, 3)
    centred_softmax(logits, 1.0, _draw(5))
    assert torch.equal(logits, _draw(4, 5))


def test_centred_softmax_equals_its_definition() -> None:
    logits, centre = _draw(2, 3, 7), _draw(7, seed=3)
    found = centred_softmax(logits, 0.07, centre)
    weights = np.exp((logits.double().numpy() - centre.double().numpy()) / 0.07)
    np.testing.assert_allclose(found.numpy(), weights / weights.sum(-1, keepdims=True), rtol=1e-4, atol=1e-7)
    assert torch.equal(centred_softmax(logits, 0.07, None), centred_softmax(logits, 0.07, torch.zeros(7)))
    # A prototype that wins everywhere wins nowhere in particular once its mean is subtracted.
    logits[..., 2] += 50
    assert (centred_softmax(logits, 0.07, None).argmax(-1) == 2).all()
    assert (centred_softmax(logits, 0.07, logits.mean(dim=(0, 1))).argmax(-1) != 2).any()


def _slow_sinkhorn(logits: Tensor, temperature: float, iterations: int) -> np.ndarray:
    """Scaling of columns and rows by loops, in float64, from exp(logits / temperature), columns first (DINOv3)."""
    table = [[math.exp(value / temperature) for value in row] for row in logits.double().tolist()]
    for _ in range(iterations):
        sums = [sum(row[k] for row in table) for k in range(len(table[0]))]
        table = [[value / sums[k] for k, value in enumerate(row)] for row in table]
        table = [[value / sum(row) for value in row] for row in table]
    return np.array(table)


@pytest.mark.parametrize("iterations", [1, 3, 10])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_sinkhorn_knopp_equals_the_slow_one(iterations: int, spread: float) -> None:
    # Rows of very different lengths: those are where it matters what an iteration begins with.
    logits = _draw(9, 5) + spread * _draw(9, 1, seed=4)
    found = sinkhorn_knopp(logits, 0.3, iterations)
    np.testing.assert_allclose(found.numpy(), _slow_sinkhorn(logits, 0.3, iterations), rtol=1e-4, atol=1e-7)


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(1, 12), prototypes=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_rows_sum_to_1_and_columns_become_balanced(rows: int, prototypes: int, seed: int) -> None:
    logits = _draw(rows, prototypes, seed=seed) + 3 * _draw(prototypes, seed=seed + 1)
    once, often = (sinkhorn_knopp(logits, 1.0, iterations) for iterations in (1, 100))
    for found in (once, often):
        torch.testing.assert_close(found.sum(dim=1), torch.ones(rows))
    torch.testing.assert_close(often.sum(dim=0), torch.full((prototypes,), rows / prototypes), rtol=1e-2, atol=1e-3)


def test_sinkhorn_knopp_has_the_limit_of_the_plain_algorithm() -> None:
    logits = _draw(8, 5)
    plain = torch.exp(logits.double() / 0.5)
    for _ in range(500):
        plain = plain / plain.sum(dim=0, keepdim=True) / 5
        plain = plain / plain.sum(dim=1, keepdim=True) / 8
    torch.testing.assert_close(sinkhorn_knopp(logits, 0.5, 500), (plain * 8).float(), rtol=1e-3, atol=1e-5)


def test_a_prototype_that_all_rows_prefer_is_shared_out() -> None:
    logits = _draw(64, 16) * 0.3
    logits[:, 3] += 5
    assert (centred_softmax(logits, 0.07, None).argmax(-1) == 3).all()
    for iterations, most in ((3, 0.5), (50, 0.15)):  # 1 / 16 where balanced
        assert (sinkhorn_knopp(logits, 0.07, iterations).argmax(-1) == 3).float().mean() < most


def _on_ranks(parts: list[Tensor], iterations: int) -> Tensor:
    """Every part by a rank of its own: threads that meet at a barrier to reduce their columns."""
    barrier, posted = threading.Barrier(len(parts)), [torch.empty(0)] * len(parts)
    results = [torch.empty(0)] * len(parts)

    def reducer(rank: int, over_ranks: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def reduce(columns: Tensor) -> Tensor:
            posted[rank] = columns.clone()
            barrier.wait(timeout=20)
            result = over_ranks(torch.stack(posted))
            barrier.wait(timeout=20)
            return columns.copy_(result)

        return reduce

    def work(rank: int) -> None:
        results[rank] = sinkhorn_knopp(
            parts[rank],
            0.07,
            iterations,
            reducer(rank, lambda columns: columns.sum(dim=0)),
            reducer(rank, lambda columns: columns.amax(dim=0)),
        )

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return torch.cat(results)


@pytest.mark.parametrize("sizes", [(12,), (6, 6), (3, 3, 3, 3), (1, 7, 4)])
def test_sinkhorn_knopp_over_ranks_equals_the_whole(sizes: tuple[int, ...]) -> None:
    logits = _draw(12, 7)
    found = _on_ranks(list(logits.split(list(sizes))), 3)
    torch.testing.assert_close(found, sinkhorn_knopp(logits, 0.07, 3), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("split", [1, 2, 3, 12])
def test_the_centre_does_not_depend_on_the_number_of_micro_batches(split: int) -> None:
    logits, centre = _draw(12, 7), _draw(7, seed=1)
    total = sum((part.sum(dim=0) for part in logits.chunk(split)), torch.zeros(7))
    found = update_centre(centre, total, 12, 0.9)
    rows = logits.double().tolist()
    expected = [0.9 * c + 0.1 * sum(row[k] for row in rows) / 12 for k, c in enumerate(centre.double().tolist())]
    assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert torch.equal(centre, _draw(7, seed=1))


def test_the_centre_tends_to_the_mean_of_the_logits() -> None:
    centre = torch.zeros(3)
    for _ in range(200):
        centre = update_centre(centre, torch.tensor([2.0, 4.0, -6.0]), 2, 0.9)
    assert centre.tolist() == pytest.approx([1.0, 2.0, -3.0])
    assert centre.dtype == torch.float32
    assert update_centre(centre, torch.tensor([8.0, 8.0, 8.0]).bfloat16(), 2, 0.0).tolist() == [4.0, 4.0, 4.0]


def test_the_defaults_are_the_papers() -> None:
    config = DistillationConfig()
    assert (config.weight, config.student_temperature, config.centre_momentum) == (0.4, 0.1, 0.9)
    temperatures = [teacher_temperature_at(config, step) for step in (0, 500, 1000, 500_000)]
    assert temperatures == pytest.approx([0.065, 0.0675, 0.07, 0.07])
    for bad in ({"centring": "mean"}, {"student_temperature": 0}, {"centre_momentum": 1.0}, {"lambda": 0.4}):
        with pytest.raises(ValidationError):
            DistillationConfig(**bad)


def test_what_does_not_fit_is_refused() -> None:
    teacher = _probs(2, 3, 7)
    with pytest.raises(ValueError, match=r"\(6, 3, 8\), the teacher's probabilities \(2, 3, 7\)"):
        distillation_loss(_draw(6, 3, 8), teacher, 0.1)
    with pytest.raises(ValueError, match="-1 local views"):
        distillation_loss(_draw(1, 3, 7), teacher, 0.1)
    with pytest.raises(ValueError, match="1 global and 0 local views of 3 samples have nothing to compare"):
        distillation_loss(_draw(1, 3, 7), teacher[:1], 0.1)
    with pytest.raises(ValueError, match="of 0 samples"):
        distillation_loss(_draw(6, 0, 7), teacher[:, :0], 0.1)
    with pytest.raises(ValueError, match=r"give \[B, K, P\] twice"):
        patch_distillation_loss(_draw(2, 3, 7), teacher[:1], 0.1)
    for call in (distillation_loss, patch_distillation_loss):
        with pytest.raises(ValueError, match="temperature is 0"):
            call(_draw(2, 3, 7), teacher, 0)
    with pytest.raises(ValueError, match="temperature is nan"):
        centred_softmax(teacher, math.nan, None)
    with pytest.raises(ValueError, match=r"the centre has shape \(6,\)"):
        centred_softmax(teacher, 0.1, torch.zeros(6))
    with pytest.raises(ValueError, match="iterations are 0"):
        sinkhorn_knopp(teacher[0], 0.1, 0)
    with pytest.raises(ValueError, match="both reduce_sum and reduce_max"):
        sinkhorn_knopp(teacher[0], 0.1, 3, lambda columns: columns)
    with pytest.raises(ValueError, match=r"give \[rows, prototypes\]"):
        sinkhorn_knopp(teacher, 0.1, 3)
    with pytest.raises(ValueError, match="a centre of 0 rows"):
        update_centre(torch.zeros(3), torch.zeros(3), 0, 0.9)
    with pytest.raises(ValueError, match=r"give \[P\], twice"):
        update_centre(torch.zeros(3), torch.zeros(1), 2, 0.9)
