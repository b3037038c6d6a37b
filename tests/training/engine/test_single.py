"""Training in one process: AdamW, clipping, decay and the moving average against formulas written out in float64."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.fixtures.pretraining import pretrain_config, random_batch
from training.engine.parallel import StepResult
from training.engine.single import SingleProcess
from training.models.checkpoints import save_weights
from training.models.tensor_files import WeightsError
from training.pretraining.config import PretrainConfig
from training.pretraining.model import PretrainModel

NOT_DECAYED = ("cls_token", "storage_tokens", "mask_token")
CONFIG = pretrain_config(batch={"size": 4, "micro": 2})


def backward(single: SingleProcess, step: int) -> list[Tensor]:
    """All micro-batches of a step; returns their losses' terms."""
    count, terms = single.model.config.batch.size // single.model.config.batch.micro, []
    for micro in range(count):
        batch = random_batch(single.model.config, single.model.config.batch.micro, seed=100 * step + micro)
        views = single.model.prepare(batch)
        terms.append(single.micro_step(views, 0.07, torch.zeros(64), last=micro == count - 1).terms)
    return terms


def step(single: SingleProcess, number: int, lr: float = 1e-3, head_lr: float | None = None) -> StepResult:
    """A whole step."""
    backward(single, number)
    return single.step(lr, lr if head_lr is None else head_lr, 0.9, lambda norm: True)


def state(single: SingleProcess) -> dict[str, Tensor]:
    """A copy of everything that a checkpoint holds."""
    return {piece.name: piece.read().clone() for piece in single.pieces()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit-equal."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class SlowAdamW:
    """One parameter after another, in float64, from the gradients of the loss."""

    def __init__(self, model: PretrainModel, config: PretrainConfig) -> None:
        self.config, self.done = config.optimiser, 0
        self.weights = {name: p.detach().double().clone() for name, p in model.student.named_parameters()}
        self.first = {name: torch.zeros_like(values) for name, values in self.weights.items()}
        self.second = {name: torch.zeros_like(values) for name, values in self.weights.items()}
        self.teacher = {name: p.detach().double().clone() for name, p in model.teacher.named_parameters()}

    def step(self, gradients: dict[str, Tensor], lr: float, head_lr: float, momentum: float) -> float:
        """Returns the norm of the gradient before clipping."""
        self.done += 1
        norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients.values()))
        clip = self.config.clip_norm
        factor = 1.0 if clip is None or norm <= clip else clip / norm
        for name, gradient in gradients.items():
            rate = head_lr if name == "projection.last_layer.weight" else lr
            beta1, beta2 = self.config.betas
            g, w, last = gradient.double() * factor, self.weights[name], name.rpartition(".")[2]
            if w.ndim > 1 and last not in NOT_DECAYED:
                w = w - rate * self.config.weight_decay * w
            self.first[name] = m = beta1 * self.first[name] + (1 - beta1) * g
            self.second[name] = v = beta2 * self.second[name] + (1 - beta2) * g * g
            corrected = m / (1 - beta1**self.done), v / (1 - beta2**self.done)
            self.weights[name] = w - rate * corrected[0] / (corrected[1].sqrt() + self.config.eps)
        for name, values in self.teacher.items():
            self.teacher[name] = momentum * values + (1 - momentum) * self.weights[name]
        return norm


@pytest.mark.parametrize("clip", [0.5, 1e6, None])
def test_steps_are_those_of_formulas_written_out(clip: float | None) -> None:
    config = pretrain_config(batch={"size": 4, "micro": 2}, optimiser={"clip_norm": clip, "weight_decay": 0.3})
    single = SingleProcess(config)
    slow, start = SlowAdamW(single.model, config), state(single)
    rates = [(1e-3, 1e-3, 0.9), (3e-3, 0.0, 0.8), (2e-3, 1e-3, 0.7)]
    for number, (lr, head_lr, momentum) in enumerate(rates):
        backward(single, number)
        gradients = {n: p.grad.clone() for n, p in single.model.student.named_parameters() if p.grad is not None}
        assert gradients.keys() == slow.weights.keys()
        norm = slow.step(gradients, lr, head_lr, momentum)
        result = single.step(lr, head_lr, momentum, lambda norm: True)
        assert result.applied
        assert result.grad_norm == pytest.approx(norm, rel=1e-4)
    found = state(single)
    moments = (("student", slow.weights), ("exp_avg", slow.first), ("exp_avg_sq", slow.second))
    for kind, wanted in (*moments, ("teacher", slow.teacher)):
        for name, values in wanted.items():
            close = torch.allclose(found[f"{kind}/{name}"].double(), values.view(-1), rtol=1e-3, atol=2e-6)
            assert close, (kind, name)
    moved = [name for name in found if name.startswith("teacher/") and torch.equal(found[name], start[name])]
    assert moved == []
    assert len(found) == 3 * len(slow.weights) + len(slow.teacher)
    assert single.adam_step() == 3


def test_the_gradient_is_that_of_the_mean_over_micro_batches() -> None:
    single = SingleProcess(CONFIG)
    model = copy.deepcopy(single.model)
    backward(single, 0)
    batches = [random_batch(CONFIG, 2, seed=micro) for micro in range(2)]
    loss = sum(model(model.prepare(batch), 0.07, torch.zeros(64)).loss for batch in batches) / 2
    loss.backward()
    for (name, own), wanted in zip(single.model.student.named_parameters(), model.student.parameters(), strict=True):
        torch.testing.assert_close(own.grad, wanted.grad, rtol=1e-3, atol=1e-6, msg=name)
    assert all(parameter.grad is None for parameter in single.model.teacher.parameters())


def test_the_teacher_starts_as_the_student_and_follows_it() -> None:
    single = SingleProcess(CONFIG)
    for _, teacher, student in single.model.teacher_pairs():
        assert torch.equal(teacher, student)
    before = {name: teacher.detach().clone() for name, teacher, _ in single.model.teacher_pairs()}
    step(single, 0)
    for name, teacher, student in single.model.teacher_pairs():
        torch.testing.assert_close(teacher.data, 0.9 * before[name] + 0.1 * student.data, msg=name)
        assert not torch.equal(teacher, before[name]), name
        assert not torch.equal(teacher, student), name


def test_a_veto_leaves_everything_bit_for_bit_and_the_next_step_does_not_see_it() -> None:
    vetoed, other = SingleProcess(CONFIG), SingleProcess(CONFIG)
    for single in (vetoed, other):
        step(single, 0)
    before, norms = state(vetoed), []
    backward(vetoed, 1)

    def refuse(norm: float) -> bool:
        norms.append(norm)
        return False

    result = vetoed.step(1e-3, 1e-3, 0.9, refuse)
    assert result == StepResult(norms[0], False)
    assert norms[0] > 0
    assert same(state(vetoed), before)
    assert vetoed.adam_step() == 1
    for single in (vetoed, other):
        step(single, 2)
    assert same(state(vetoed), state(other))
    assert not same(state(vetoed), before)


def test_gradients_that_are_not_finite_are_told() -> None:
    single = SingleProcess(CONFIG)
    backward(single, 0)
    single.model.student.backbone.cls_token.grad.fill_(torch.inf)  # type: ignore[union-attr]
    assert single.step(1e-3, 1e-3, 0.9, math.isfinite) == StepResult(math.inf, False)


def test_prototypes_stay_as_they_are_at_rate_0() -> None:
    single = SingleProcess(CONFIG)
    before = state(single)
    for number in range(2):
        step(single, number, head_lr=0.0)
    after = state(single)
    still = {name for name in after if torch.equal(after[name], before[name])}
    assert still == {f"{kind}/projection.last_layer.weight" for kind in ("student", "teacher")}


def test_the_state_moves_to_another_process_exactly() -> None:
    first, second = SingleProcess(CONFIG), SingleProcess(pretrain_config(batch={"size": 4, "micro": 2}, seed=9))
    for number in range(2):
        step(first, number)
    kept = state(first)
    for piece in second.pieces():
        piece.write(kept[piece.name])
    second.refresh()
    second.set_adam_step(first.adam_step())
    for single in (first, second):
        step(single, 2)
    assert same(state(first), state(second))
    assert second.adam_step() == 3


def test_a_seed_fixes_the_weights_whatever_was_drawn_before() -> None:
    one = state(SingleProcess(CONFIG))
    torch.rand(7)
    assert same(state(SingleProcess(CONFIG)), one)
    other = state(SingleProcess(pretrain_config(batch={"size": 4, "micro": 2}, seed=4)))
    assert not torch.equal(one["student/decoder.embed.weight"], other["student/decoder.embed.weight"])


def test_bfloat16_keeps_float32_weights_and_gives_nearly_the_same_losses() -> None:
    found: dict[str, list[list[float]]] = {}
    for precision in ("float32", "bfloat16"):
        single = SingleProcess(pretrain_config(batch={"size": 4, "micro": 2}, engine={"precision": precision}))
        found[precision] = []
        for number in range(3):
            found[precision] += [terms.tolist() for terms in backward(single, number)]
            single.step(1e-3, 1e-3, 0.9, lambda norm: True)
        assert {parameter.dtype for parameter in single.model.parameters()} == {torch.float32}
    assert found["bfloat16"] != found["float32"]
    for low, high in zip(found["bfloat16"], found["float32"], strict=True):
        assert low[:2] == pytest.approx(high[:2], rel=0.02)  # reconstruction, distillation
        assert low[2] == pytest.approx(high[2], rel=0.5)  # [CLS] tokens nearly coincide at the start


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_starts_from_given_weights(tmp_path: Path, folder: bool) -> None:
    given = SingleProcess(pretrain_config(seed=9)).model.student.backbone
    path = tmp_path / ("weights" if folder else "weights.safetensors")
    save_weights(given, path)
    plain = SingleProcess(CONFIG).model
    model = SingleProcess(with_weights(path)).model
    for network in (model.student, model.teacher):
        for name, parameter in given.named_parameters():
            assert torch.equal(network.backbone.get_parameter(name), parameter), name
    for part in ("decoder", "projection"):
        for one, other in zip(
            getattr(model.student, part).parameters(), getattr(plain.student, part).parameters(), strict=True
        ):
            assert torch.equal(one, other)


def with_weights(path: Path, **model: Any) -> PretrainConfig:
    """Starts from a file."""
    return pretrain_config(batch={"size": 4, "micro": 2}, model={"initial_weights": str(path)} | model)


def test_weights_of_another_backbone_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(SingleProcess(CONFIG).model.student.backbone, path)
    with pytest.raises(WeightsError, match="blocks"):
        SingleProcess(with_weights(path, overrides={"width": 48, "depth": 2, "heads": 3, "ffn_width": 64}))
    with pytest.raises(WeightsError, match=r"none\.safetensors"):
        SingleProcess(with_weights(tmp_path / "none.safetensors"))
