"""Parameter groups: who is decayed, which learning rate a layer gets, and that nobody is forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from training.models import create
from training.models.config import BACKBONES
from training.models.param_groups import param_groups
from training.models.task_model import TaskModel

DEPTH = BACKBONES["tiny"].depth


class Pretraining(nn.Module):
    """A student that learns and a teacher that does not, with something beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.student = create("tiny_4k", device="meta")
        self.teacher = create("tiny_4k", device="meta").requires_grad_(False)
        self.head = nn.Linear(4, 4, device="meta")
        self.mask_token = nn.Parameter(torch.empty(1, 1, 4, device="meta"))


def placed(groups: list[dict]) -> dict[str, dict]:
    """Name of a parameter -> its group."""
    return {name: group for group in groups for name in group["names"]}


@pytest.mark.parametrize("name", ["tiny", "tiny_4k", "tiny_albedo", "sapiens2_0.4b_pointmap"])
def test_every_parameter_is_in_one_group(name: str) -> None:
    model = create(name, device="meta")
    groups = param_groups(model, lr=1.0, layer_decay=0.8)
    counts = Counter(id(parameter) for group in groups for parameter in group["params"])
    assert counts == Counter(id(parameter) for parameter in model.parameters())
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    for group in groups:
        assert [names[id(parameter)] for parameter in group["params"]] == group["names"]


def test_layers_get_their_rates() -> None:
    model = create("tiny_pose", device="meta")
    where = placed(param_groups(model, lr=2.0, layer_decay=0.5))
    top = DEPTH + 1
    expected = {
        "decode_head.conv_pose.weight": 0,
        "backbone.ln1.weight": 0,
        f"backbone.blocks.{DEPTH - 1}.ffn.w3.weight": 1,
        "backbone.blocks.0.attn.wq.weight": top - 1,
        "backbone.cls_token": top,
        "backbone.storage_tokens": top,
        "backbone.patch_embed.projection.weight": top,
        "backbone.patch_embed.projection.bias": top,
    }
    for name, below in expected.items():
        assert where[name]["lr"] == pytest.approx(2.0 * 0.5**below), name
        assert where[name]["lr_scale"] == pytest.approx(0.5**below), name


def test_the_tokenizer_is_part_of_the_embedding() -> None:
    where = placed(param_groups(create("tiny_4k", device="meta"), lr=1.0, layer_decay=0.5))
    for name in ("tokenizer.w_cls", "tokenizer.local_pos_embed", "tokenizer.blocks.0.ffn.w12.weight"):
        assert where[name]["lr_scale"] == pytest.approx(0.5 ** (DEPTH + 1))


def test_what_is_decayed() -> None:
    where = placed(param_groups(create("tiny_4k", device="meta"), lr=1.0, weight_decay=0.1))
    without = {name for name, group in where.items() if group["weight_decay"] == 0}
    assert {
        "patch_embed.projection.bias",
        "tokenizer.local_pos_embed",
        "blocks.0.ln1.weight",
        "blocks.0.attn.gamma.weight",
        "blocks.0.attn.q_norm.weight",
        "blocks.0.ffn.w12.bias",
        "ln1.weight",
    } <= without
    for name in (
        "cls_token",
        "storage_tokens",
        "tokenizer.w_cls",
        "patch_embed.projection.weight",
        "blocks.0.attn.wq.weight",
    ):
        assert where[name]["weight_decay"] == 0.1, name


def test_tokens_can_be_left_undecayed() -> None:
    where = placed(param_groups(create("tiny_4k", device="meta"), lr=1.0, weight_decay=0.05, decay_tokens=False))
    for name in ("cls_token", "storage_tokens", "tokenizer.w_cls"):
        assert where[name]["weight_decay"] == 0, name
    assert where["blocks.0.attn.wq.weight"]["weight_decay"] == 0.05


def test_groups_are_merged() -> None:
    groups = param_groups(create("tiny", device="meta"), lr=1e-3)
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(1e-3, 0.0), (1e-3, 0.1)]
    layered = param_groups(create("tiny", device="meta"), lr=1e-3, layer_decay=0.9)
    # Embedding and blocks: with and without decay. The top of a bare backbone is one norm, without.
    assert len(layered) == 2 * (DEPTH + 1) + 1
    assert [group["lr"] for group in layered] == sorted(group["lr"] for group in layered)


def test_a_pretraining_module() -> None:
    module = Pretraining()
    where = placed(param_groups(module, lr=1.0, layer_decay=0.5))
    assert not any(name.startswith("teacher.") for name in where)
    assert set(where) == {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert where["student.blocks.0.ffn.w3.weight"]["lr_scale"] == pytest.approx(0.5**DEPTH)
    assert where["head.weight"]["lr_scale"] == where["mask_token"]["lr_scale"] == 1


def test_frozen_parameters_are_left_out() -> None:
    model = create("tiny_seg", device="meta")
    assert isinstance(model, TaskModel)
    model.backbone.requires_grad_(False)
    assert all(name.startswith("decode_head.") for name in placed(param_groups(model, lr=1.0, layer_decay=0.8)))
    with pytest.raises(ValueError, match="everything is frozen"):
        param_groups(model.requires_grad_(False), lr=1.0)


def test_an_optimizer_takes_them() -> None:
    model = create("tiny", depth=2, width=32, heads=4)
    optimizer = torch.optim.AdamW(param_groups(model, lr=1e-3, layer_decay=0.9))
    before = model.cls_token.detach().clone()
    model(torch.randn(1, 3, 32, 32))[0].square().mean().backward()
    optimizer.step()
    assert not torch.equal(model.cls_token, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr is -1.0"),
        ({"lr": 1.0, "weight_decay": -0.1}, "weight_decay -0.1"),
        ({"lr": 1.0, "layer_decay": 0.0}, "layer_decay is 0.0"),
        ({"lr": 1.0, "layer_decay": 1.5}, "layer_decay is 1.5"),
    ],
)
def test_ranges(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        param_groups(create("tiny", device="meta"), **arguments)


def test_layer_decay_needs_layers() -> None:
    with pytest.raises(ValueError, match="no Backbone"):
        param_groups(nn.Linear(2, 2), lr=1.0, layer_decay=0.9)
