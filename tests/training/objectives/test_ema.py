"""The teacher's average against loops; it moves where bfloat16 would stand still; silent no-ops are refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.objectives import ema
from training.objectives.ema import EmaConfig, momentum_at, update_ema


def _tensors(seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in [(3, 4), (5,), (), (2, 1, 3)]]


@pytest.mark.parametrize("chunk", [1, 10, 1 << 26])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_equals_the_slow_average_over_steps(dtype: torch.dtype, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ema, "_CHUNK", chunk)
    teacher = _tensors(0)
    expected = [tensor.double().flatten().tolist() for tensor in teacher]
    for step in range(5):
        student = _tensors(step + 1, dtype)
        update_ema(teacher, student, 0.9)
        for index, source in enumerate(student):
            values = source.double().flatten().tolist()
            expected[index] = [0.9 * old + 0.1 * new for old, new in zip(expected[index], values, strict=True)]
    for tensor, wanted in zip(teacher, expected, strict=True):
        assert tensor.dtype == torch.float32
        assert tensor.flatten().tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_the_teacher_moves_where_bfloat16_would_stand_still() -> None:
    # 1 to 1.01: a step of 0.008 * 0.01 is far below bfloat16's spacing of 0.0078.
    teacher, student = torch.ones(4), torch.full((4,), 1.01)
    low = torch.ones(4, dtype=torch.bfloat16)
    for _ in range(500):
        update_ema([teacher], [student], 0.992)
        low.lerp_(student.bfloat16(), 1 - 0.992)
    assert (low == 1).all()
    assert teacher.tolist() == pytest.approx([1.01 - 0.01 * 0.992**500] * 4, abs=2e-6)


def test_parameters_are_updated_in_place_and_without_gradients() -> None:
    student, teacher = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    before = {name: value.detach().clone() for name, value in teacher.named_parameters()}
    pointers = [value.data_ptr() for value in teacher.parameters()]
    update_ema(list(teacher.parameters()), list(student.parameters()), 0.5)
    assert [value.data_ptr() for value in teacher.parameters()] == pointers
    for name, value in teacher.named_parameters():
        assert value.grad_fn is None
        torch.testing.assert_close(value.detach(), (before[name] + student.get_parameter(name).detach()) / 2)


def test_momentum_0_copies_and_1_keeps() -> None:
    teacher, student = _tensors(0), _tensors(1)
    update_ema(teacher, student, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(teacher, _tensors(0), strict=True))
    update_ema(teacher, student, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(teacher, student, strict=True))


def test_shards_updated_apart_equal_the_whole() -> None:
    whole, student = _tensors(0)[0].flatten(), _tensors(1)[0].flatten()
    shards = [whole[:7].clone(), whole[7:].clone()]
    update_ema([whole], [student], 0.992)
    update_ema([shards[0]], [student[:7]], 0.992)
    update_ema([shards[1]], [student[7:]], 0.992)
    assert torch.equal(torch.cat(shards), whole)


def test_momentum_is_constant_or_rises_by_a_cosine() -> None:
    assert [momentum_at(EmaConfig(), step, 100) for step in (0, 50, 100)] == [0.992] * 3
    rising = EmaConfig(momentum=0.99, final_momentum=1.0)
    assert [momentum_at(rising, step, 100) for step in (0, 50, 100)] == pytest.approx([0.99, 0.995, 1.0])


def test_updates_that_would_do_nothing_are_refused() -> None:
    teacher = torch.nn.Linear(3, 2)
    parameters = list(teacher.parameters())
    with pytest.raises(ValueError, match="student's own memory"):
        update_ema(parameters, [value.detach() for value in parameters], 0.9)
    with pytest.raises(ValueError, match="tensor 0 is empty"):
        update_ema([torch.zeros(0)], [torch.zeros(0)], 0.9)
    with pytest.raises(ValueError, match="give 1 or more pairs"):
        update_ema([], [], 0.9)


def test_what_does_not_pair_up_is_refused_before_anything_changes() -> None:
    teacher = _tensors(0)
    with pytest.raises(ValueError, match="4 tensors and the student 3"):
        update_ema(teacher, _tensors(1)[:3], 0.9)
    with pytest.raises(ValueError, match=r"tensor 1 is \(5,\) in the teacher and \(1,\)"):
        update_ema(teacher[:2], [torch.zeros(3, 4), torch.zeros(1)], 0.9)
    with pytest.raises(TypeError, match=r"tensor 0 of the teacher is torch\.bfloat16"):
        update_ema([torch.zeros(2, dtype=torch.bfloat16)], [torch.zeros(2)], 0.9)
    with pytest.raises(TypeError, match=r"tensor 0 of the student is torch\.int64"):
        update_ema([torch.zeros(2)], [torch.zeros(2, dtype=torch.int64)], 0.9)
    with pytest.raises(ValueError, match=r"momentum is 1\.5"):
        update_ema(teacher, _tensors(1), 1.5)
    assert all(torch.equal(a, b) for a, b in zip(teacher, _tensors(0), strict=True))
