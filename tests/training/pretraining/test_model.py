"""The loss of a micro-batch: its terms against plain formulas, and which parameters each switch brings along."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fixtures.pretraining import pretrain_config, random_batch
from training.data.colour import IMAGENET_MEAN, IMAGENET_STD
from training.data.views import make_views
from training.engine.config import OptimiserConfig
from training.pretraining.config import PretrainConfig
from training.pretraining.model import Inputs, Output, PretrainModel

MAE_ONLY = {"distillation": {"weight": 0}, "koleo": {"weight": 0}}
CL_ONLY = {"reconstruction": {"weight": 0}, "koleo": {"weight": 0}}


def model_of(config: PretrainConfig, seed: int = 0) -> PretrainModel:
    """Student and teacher apart, and far enough from their start that every part of them matters."""
    torch.manual_seed(seed)
    model = PretrainModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


def forward(model: PretrainModel, samples: int = 4, temperature: float = 0.07, centre: Tensor | None = None) -> Output:
    """Of random views."""
    views = model.prepare(random_batch(model.config, samples))
    return model(views, temperature, torch.zeros(64) if centre is None else centre)


def named(model: PretrainModel, output: Output) -> dict[str, float]:
    """The terms by name."""
    return dict(zip(model.terms, output.terms.tolist(), strict=True))


# The slow way: one view of one sample at a time, float64 after the networks, and formulas as they are written -------


def slow_softmax(values: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    powers = np.exp(values - values.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def slow_sinkhorn(rows: np.ndarray, iterations: int) -> np.ndarray:
    """Rows of probabilities, columns balanced."""
    rows = rows.copy()
    for _ in range(iterations):
        for column in range(rows.shape[1]):
            rows[:, column] /= rows[:, column].sum()
        for row in range(len(rows)):
            rows[row] /= rows[row].sum()
    return rows


class Slow:
    """Everything that the networks say of a batch, view by view: `cls[sample][view]` and so on."""

    def __init__(self, model: PretrainModel, samples: int) -> None:
        batch, self.model = random_batch(model.config, samples), model
        self.count, front = model.config.views.global_count, model.student.backbone.config.front_tokens
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (IMAGENET_MEAN, IMAGENET_STD))
        self.cls, self.predicted, self.pictures, self.hidden = [], [], [], []
        self.student_logits, self.teacher_logits = [], []
        self.student_patches, self.teacher_patches = [], []
        with torch.no_grad():
            for sample in range(samples):
                cls, predicted, pictures, hidden, student, teacher = [], [], [], [], [], []
                for view in range(self.count):
                    picture = (batch.global_views[sample, view].float() / 255 - mean) / std
                    keep = batch.keep[sample, view]
                    (seen,) = model.student.backbone(picture[None], keep=keep[None])
                    (whole,) = model.teacher.backbone(picture[None])
                    cls.append(seen[0, 0].double().numpy())
                    pictures.append(picture.double().numpy())
                    hidden.append(sorted(set(range(12)) - set(keep.tolist())))
                    if model.student.decoder is not None:
                        predicted.append(model.student.decoder(seen, keep[None], (4, 3))[0].double().numpy())
                    if model.student.projection is not None and model.teacher.projection is not None:
                        student.append(model.student.projection(seen[:, 0])[0].double().numpy())
                        teacher.append(model.teacher.projection(whole[:, 0])[0].double().numpy())
                    if model.student.patch_projection is not None and model.teacher.patch_projection is not None:
                        for place, token in enumerate(keep.tolist()):
                            one = model.student.patch_projection(seen[:, front + place])
                            self.student_patches.append(one[0].double().numpy())
                            one = model.teacher.patch_projection(whole[:, front + token])
                            self.teacher_patches.append(one[0].double().numpy())
                for local in batch.local_views[sample] if model.student.projection is not None else ():
                    (encoded,) = model.student.backbone(((local.float() / 255 - mean) / std)[None])
                    student.append(model.student.projection(encoded[:, 0])[0].double().numpy())
                for kept, one in zip(
                    (self.cls, self.predicted, self.pictures, self.hidden, self.student_logits, self.teacher_logits),
                    (cls, predicted, pictures, hidden, student, teacher),
                    strict=True,
                ):
                    kept.append(one)

    def reconstruction(self) -> float:
        """Squared error of hidden 16 x 16 squares, each brought to mean 0 and deviation 1."""
        errors = []
        for predicted, pictures, hidden in zip(self.predicted, self.pictures, self.hidden, strict=True):
            for view in range(self.count):
                for token in hidden[view]:
                    row, column = token // 3 * 16, token % 3 * 16
                    square = pictures[view][:, row : row + 16, column : column + 16].transpose(1, 2, 0).reshape(-1)
                    target = (square - square.mean()) / math.sqrt(square.var() + 1e-6)
                    errors.append(((predicted[view][token] - target) ** 2).mean())
        return float(np.mean(errors))

    def targets(self, temperature: float, centre: np.ndarray | None) -> np.ndarray:
        """The teacher's probabilities, [samples, views, P]: centred, or balanced where there is no centre."""
        logits = np.array(self.teacher_logits)
        if centre is not None:
            return slow_softmax((logits - centre) / temperature)
        rows = slow_softmax(logits / temperature).transpose(1, 0, 2)
        return slow_sinkhorn(rows.reshape(-1, rows.shape[-1]), 3).reshape(rows.shape).transpose(1, 0, 2)

    def distillation(self, targets: np.ndarray) -> float:
        """Mean cross-entropy over pairs of unlike views."""
        entropies = []
        for sample, logits in enumerate(self.student_logits):
            for teacher in range(self.count):
                for student in range(len(logits)):
                    if student != teacher:
                        log_q = np.log(slow_softmax(logits[student] / 0.1))
                        entropies.append(-(targets[sample, teacher] * log_q).sum())
        return float(np.mean(entropies))

    def patches(self, temperature: float) -> float:
        """Mean cross-entropy over the tokens that the student sees; order of rows does not matter to the balance."""
        targets = slow_sinkhorn(slow_softmax(np.array(self.teacher_patches) / temperature), 3)
        log_q = np.log(slow_softmax(np.array(self.student_patches) / 0.1))
        return float(-(targets * log_q).sum(-1).mean())

    def koleo(self, group: int) -> float:
        """Sum over views of the mean of -log distance to the nearest other of its group."""
        total = 0.0
        for view in range(self.count):
            rows = [one[view] / np.linalg.norm(one[view]) for one in self.cls]
            for index, row in enumerate(rows):
                first = index // group * group
                others = [other for at, other in enumerate(rows[first : first + group], first) if at != index]
                if others:
                    total -= math.log(math.sqrt(min(((row - other) ** 2).sum() for other in others) + 1e-8)) / len(rows)
        return total


CENTRE = np.random.default_rng(5).normal(size=64) * 0.05


@pytest.mark.parametrize(
    ("changes", "terms"),
    [
        ({}, ["reconstruction", "distillation", "koleo"]),
        ({"distillation": {"centring": "sinkhorn_knopp"}}, ["reconstruction", "distillation", "koleo"]),
        (
            {"distillation": {"patch_weight": 0.5}},
            ["reconstruction", "distillation", "patch_distillation", "koleo"],
        ),
        (MAE_ONLY, ["reconstruction"]),
        (CL_ONLY, ["distillation"]),
        ({"reconstruction": {"weight": 0}, "distillation": {"weight": 0}}, ["koleo"]),
        ({"views": {"local_count": 0}}, ["reconstruction", "distillation", "koleo"]),
        ({"views": {"global_count": 3, "local_count": 1}}, ["reconstruction", "distillation", "koleo"]),
    ],
)
def test_terms_are_those_of_plain_formulas(changes: dict[str, Any], terms: list[str]) -> None:
    config = pretrain_config(**changes)
    model, centre = model_of(config), torch.tensor(CENTRE, dtype=torch.float32)
    output = forward(model, samples=5, temperature=0.067, centre=centre)
    slow = Slow(model, 5)
    wanted: dict[str, float] = {}
    if "reconstruction" in terms:
        wanted["reconstruction"] = slow.reconstruction()
    if "distillation" in terms:
        centred = config.distillation.centring == "moving_average"
        targets = slow.targets(0.067, CENTRE if centred else None)
        wanted["distillation"] = slow.distillation(targets)
        assert output.teacher is not None
        assert output.centre_sum is not None
        np.testing.assert_allclose(output.teacher.numpy(), targets.transpose(1, 0, 2), atol=1e-5)
        np.testing.assert_allclose(output.centre_sum.numpy(), np.sum(slow.teacher_logits, axis=(0, 1)), atol=1e-4)
    if "patch_distillation" in terms:
        wanted["patch_distillation"] = slow.patches(0.067)
    if "koleo" in terms:
        wanted["koleo"] = slow.koleo(2)
    assert list(model.terms) == terms
    assert named(model, output) == pytest.approx(wanted, rel=2e-4)
    weights = {"reconstruction": 1.0, "distillation": 0.4, "patch_distillation": 0.4 * 0.5, "koleo": 0.04}
    used = {name: weights[name] * value for name, value in wanted.items()}
    assert float(output.loss.detach()) == pytest.approx(sum(used.values()), rel=2e-4)
    np.testing.assert_allclose(output.cls.numpy(), np.array(slow.cls).transpose(1, 0, 2), atol=1e-4)


@pytest.mark.parametrize("group", [2, 3, 5, 8])
def test_koleo_groups_are_of_samples_and_not_of_views(group: int) -> None:
    model = model_of(pretrain_config(koleo={"group": group}, batch={"size": 120, "micro": 120}))
    output = forward(model, samples=6)
    assert named(model, output)["koleo"] == pytest.approx(Slow(model, 6).koleo(group), rel=2e-4)


def test_koleo_seeks_among_gathered_rows_where_a_group_is_larger_than_a_micro_batch() -> None:
    model = model_of(pretrain_config(koleo={"group": 4}, engine={"kind": "zero3", "workers": 2}))
    whole = Slow(model, 4)
    views = model.prepare(random_batch(model.config, 4))
    halves = [Inputs(*(None if part is None else part[:, cut] for part in views)) for cut in (slice(2), slice(2, 4))]
    rows = [model.student.backbone(half.globals_.flatten(0, 1), keep=half.keep.flatten(0, 1))[0] for half in halves]
    other = rows[1][:, 0].detach().unflatten(0, (2, 2))
    calls = iter(other)
    model.gather_rows = lambda own: torch.cat([own, next(calls)])
    output = model(halves[0], 0.07, torch.zeros(64))
    assert named(model, output)["koleo"] == pytest.approx(whole.koleo(4), rel=2e-4)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, {"student.backbone", "student.decoder", "student.projection", "teacher.backbone", "teacher.projection"}),
        (MAE_ONLY, {"student.backbone", "student.decoder", "teacher.backbone"}),
        (CL_ONLY, {"student.backbone", "student.projection", "teacher.backbone", "teacher.projection"}),
        (
            CL_ONLY | {"distillation": {"patch_weight": 1.0}},
            {
                *("student.backbone", "student.projection", "student.patch_projection"),
                *("teacher.backbone", "teacher.projection", "teacher.patch_projection"),
            },
        ),
    ],
)
def test_only_networks_that_a_loss_needs_are_there(changes: dict[str, Any], parts: set[str]) -> None:
    model = PretrainModel(pretrain_config(**changes))
    assert {".".join(name.split(".")[:2]) for name, _ in model.named_parameters()} == parts


@pytest.mark.parametrize("changes", [{}, {"distillation": {"patch_weight": 0.5}}, MAE_ONLY, CL_ONLY])
def test_every_parameter_of_the_student_gets_a_gradient_and_none_of_the_teacher(changes: dict[str, Any]) -> None:
    model = model_of(pretrain_config(**changes))
    forward(model).loss.backward()
    without = [name for name, p in model.student.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in model.teacher.parameters())


def test_teacher_pairs_name_the_same_parameter_of_both() -> None:
    model = PretrainModel(pretrain_config(distillation={"patch_weight": 0.5}))
    pairs = model.teacher_pairs()
    student, teacher = dict(model.student.named_parameters()), dict(model.teacher.named_parameters())
    assert {name for name, _, _ in pairs} == {name for name in student if not name.startswith("decoder.")}
    assert all(mine is teacher[name] and theirs is student[name] for name, mine, theirs in pairs)


def test_losses_start_where_theory_says() -> None:
    torch.manual_seed(1)
    model = PretrainModel(pretrain_config(distillation={"patch_weight": 0.5}))
    with torch.no_grad():
        for _, teacher, student in model.teacher_pairs():
            teacher.copy_(student)
    found = named(model, forward(model))
    assert found["distillation"] == pytest.approx(math.log(64), abs=0.1)
    assert found["patch_distillation"] == pytest.approx(math.log(64), abs=0.1)
    assert found["reconstruction"] == pytest.approx(1, abs=0.15)


def test_the_loss_does_not_see_hidden_pixels_of_the_student_but_the_target_does() -> None:
    model = model_of(pretrain_config(**MAE_ONLY))
    batch = random_batch(model.config, 2)
    before = model(model.prepare(batch), 0.07, None)
    token = next(token for token in range(12) if token not in batch.keep[0, 0])
    row, column = token // 3 * 16, token % 3 * 16
    batch.global_views[0, 0, :, row : row + 16, column : column + 16].copy_(
        random_batch(model.config, 1, seed=9).global_views[0, 0, :, :16, :16]
    )
    after = model(model.prepare(batch), 0.07, None)
    assert torch.equal(before.predicted, after.predicted)
    assert before.loss != after.loss


def test_colour_on_globals_changes_what_is_seen_and_what_is_reconstructed() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (80, 60, 3), np.uint8)
    found = {}
    for on in (False, True):
        plain = pretrain_config(views={"colour_on_globals": on, "apply_colour": "device"})
        views = make_views(picture, np.random.default_rng(1), plain.views)
        batch = random_batch(plain, 1)
        assert views.colour is not None
        batch = replace(
            batch,
            global_views=views.global_views[None],
            local_views=views.local_views[None],
            colour=views.colour[None],
        )
        found[on] = PretrainModel(plain).prepare(batch)
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (IMAGENET_MEAN, IMAGENET_STD))
        untouched = (views.global_views.float() / 255 - mean) / std
        assert torch.allclose(found[on].globals_[:, 0], untouched, atol=1e-5) is (not on)
    assert found[True].globals_.shape == found[False].globals_.shape == (2, 1, 3, 64, 48)


def test_local_views_are_not_prepared_where_no_loss_uses_them() -> None:
    for changes, used in ((MAE_ONLY, False), ({"views": {"local_count": 0}}, False), ({}, True)):
        model = PretrainModel(pretrain_config(**changes))
        assert (model.prepare(random_batch(model.config, 2)).locals_ is not None) is used


def test_moving_average_without_a_centre_is_an_error() -> None:
    model = PretrainModel(pretrain_config())
    with pytest.raises(ValueError, match="needs the centre"):
        model(model.prepare(random_batch(model.config, 2)), 0.07, None)


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    found = []
    for on in (False, True):
        model = model_of(pretrain_config(engine={"activation_checkpointing": on}))
        forward(model).loss.backward()
        found.append({name: parameter.grad for name, parameter in model.student.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, msg=name)


def test_groups_hold_every_parameter_of_the_student_once() -> None:
    model = PretrainModel(pretrain_config(distillation={"patch_weight": 1.0}))
    groups = model.parameter_groups(OptimiserConfig(weight_decay=0.05))
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(parameter) for parameter in model.student.parameters()}


def test_norms_biases_and_tokens_are_not_decayed_and_prototypes_are_apart() -> None:
    model = PretrainModel(pretrain_config(distillation={"patch_weight": 1.0}))
    names = {id(parameter): name for name, parameter in model.student.named_parameters()}
    groups = [
        (g["weight_decay"], g["head"], {names[id(p)] for p in g["params"]})
        for g in model.parameter_groups(OptimiserConfig(weight_decay=0.05))
    ]
    decay = {name: value for value, _, members in groups for name in members}
    heads = {name for _, head, members in groups for name in members if head}
    assert heads == {"projection.last_layer.weight", "patch_projection.last_layer.weight"}
    for name, parameter in model.student.named_parameters():
        token = name.endswith(("cls_token", "storage_tokens", "mask_token"))
        assert decay[name] == (0.05 if parameter.ndim > 1 and not token else 0.0), name
    assert {decay["backbone.cls_token"], decay["decoder.mask_token"]} == {0.0}
    assert {decay[name] for name in decay if name.endswith("qkv.weight")} == {0.05}


def test_no_initial_weights_change_nothing() -> None:
    model = PretrainModel(pretrain_config())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model.load_initial_weights()
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
