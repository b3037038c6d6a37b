"""What all ways of training share: parameter groups, clipping, rates, and what one rank answers for many."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.pretraining import pretrain_config
from training.engine.parallel import adam_groups, clip_factor, load_initial_weights, set_rates
from training.engine.single import SingleProcess
from training.pretraining.model import PretrainModel


def test_groups_hold_every_parameter_of_the_student_once() -> None:
    model = PretrainModel(pretrain_config(distillation={"patch_weight": 1.0}))
    groups = adam_groups(model, 0.05)
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(parameter) for parameter in model.student.parameters()}


def test_norms_biases_and_tokens_are_not_decayed_and_prototypes_are_apart() -> None:
    model = PretrainModel(pretrain_config(distillation={"patch_weight": 1.0}))
    names = {id(parameter): name for name, parameter in model.student.named_parameters()}
    groups = [(g["weight_decay"], g["head"], {names[id(p)] for p in g["params"]}) for g in adam_groups(model, 0.05)]
    decay = {name: value for value, _, members in groups for name in members}
    heads = {name for _, head, members in groups for name in members if head}
    assert heads == {"projection.last_layer.weight", "patch_projection.last_layer.weight"}
    for name, parameter in model.student.named_parameters():
        token = name.endswith(("cls_token", "storage_tokens", "mask_token"))
        assert decay[name] == (0.05 if parameter.ndim > 1 and not token else 0.0), name
    assert {decay["backbone.cls_token"], decay["decoder.mask_token"]} == {0.0}
    assert {decay[name] for name in decay if name.endswith("qkv.weight")} == {0.05}


def test_rates_of_prototypes_are_set_apart() -> None:
    groups = adam_groups(PretrainModel(pretrain_config()), 0.05)
    set_rates(groups, 0.1, 0.0)
    assert {(group["head"], group["lr"]) for group in groups} == {(False, 0.1), (True, 0.0)}


@given(norm=st.floats(0, 1e6), limit=st.floats(1e-3, 1e3))
def test_clipping_brings_the_norm_to_the_limit_and_never_raises_it(norm: float, limit: float) -> None:
    factor = clip_factor(norm, limit)
    assert 0 < factor <= 1
    assert norm * factor <= limit
    if norm < limit - 1e-5:
        assert factor == 1
    else:
        assert norm * factor == pytest.approx(min(norm, limit), abs=1e-5)


def test_without_a_limit_nothing_is_clipped() -> None:
    assert clip_factor(math.inf, None) == clip_factor(1e9, None) == 1


def test_one_rank_is_all_ranks() -> None:
    single = SingleProcess(pretrain_config())
    rows = torch.arange(4.0)
    assert torch.equal(single.all_reduce(rows), torch.arange(4.0))
    assert torch.equal(single.gather_rows(rows), rows)
    assert (single.gather_objects({"a": 1}), single.rank, single.world) == ([{"a": 1}], 0, 1)


def test_no_initial_weights_change_nothing() -> None:
    model = PretrainModel(pretrain_config())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    load_initial_weights(model, None)
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
