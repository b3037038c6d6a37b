"""A task model has the released keys, fits its head to its backbone, and maps images to the head's output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from training.models.backbone import Backbone
from training.models.config import BACKBONES
from training.models.heads import TASKS, PointmapHeadConfig, build_head, head_config
from training.models.task_model import BACKBONES_WITH_HEADS, TaskModel, build_task_model, task_head_config

RELEASED = json.loads((Path(__file__).parent / "heads" / "released_heads.json").read_text())
SMALL = BACKBONES["tiny"].replace(width=32, depth=2, heads=2, full_kv_blocks=2, image_size=(192, 160))


@pytest.mark.parametrize("size", ["0.4b", "0.8b", "1b", "5b"])
def test_totals_are_the_released_ones(size: str) -> None:
    with torch.device("meta"):
        backbone = Backbone(BACKBONES[f"sapiens2_{size}"])
        backbone_parameters = sum(p.numel() for p in backbone.parameters())
        for task in TASKS:
            head = build_head(head_config(task, size))
            total = backbone_parameters + sum(p.numel() for p in head.parameters())
            assert total == RELEASED[f"{task}_{size}"]["with_backbone"]


def test_keys_carry_the_released_prefixes() -> None:
    model = build_task_model("pose", "sapiens2_0.4b", device="meta")
    expected = {f"decode_head.{key}" for key in RELEASED["pose_0.4b"]["shapes"]}
    expected |= {f"backbone.{key}" for key in Backbone(BACKBONES["sapiens2_0.4b"], device="meta").state_dict()}
    assert set(model.state_dict()) == expected
    assert sum(p.numel() for p in model.parameters()) == 425_677_364
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.parametrize(
    ("task", "shapes"),
    [
        ("pose", [(2, 308, 48, 40)]),
        ("seg", [(2, 29, 192, 160)]),
        ("normal", [(2, 3, 192, 160)]),
        ("pointmap", [(2, 3, 192, 160), (2, 1)]),
        ("albedo", [(2, 3, 192, 160)]),
    ],
)
def test_images_to_outputs_and_gradients_for_every_weight(task: str, shapes: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    model = build_task_model(task, "tiny", SMALL)
    outputs = model(torch.randn(2, 3, 192, 160))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert [tuple(output.shape) for output in outputs] == shapes
    torch.stack([output.square().mean() for output in outputs]).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    # Registers and CLS act through attention alone, the patches directly: all of them reach the head.
    assert all(p.grad.abs().sum() > 0 for p in model.backbone.parameters() if p.ndim > 1)  # type: ignore[union-attr]


def test_the_head_reads_the_last_normalised_feature_map() -> None:
    torch.manual_seed(0)
    model = build_task_model("normal", "tiny", SMALL).eval()
    images = torch.randn(1, 3, 192, 160)
    raw = model.backbone(images)[0]
    features = raw[:, 9:].transpose(1, 2).reshape(1, 32, 12, 10)
    torch.testing.assert_close(model(images), model.decode_head(features), rtol=1e-4, atol=1e-5)


def test_a_head_follows_the_overrides_of_its_backbone() -> None:
    head = task_head_config("pointmap", "sapiens2_0.4b", BACKBONES["sapiens2_0.4b"].replace(image_size=(512, 384)))
    assert isinstance(head, PointmapHeadConfig)
    assert head.grid == (32, 24)
    assert task_head_config("pose", "tiny", SMALL).in_channels == 32
    assert task_head_config("pose", "sapiens2_1b") == head_config("pose", "1b")


def test_backbones_without_heads_are_answered_with_those_that_have_some() -> None:
    for name in ("sapiens2_0.1b", "sapiens2_1b_4k"):
        with pytest.raises(ValueError, match=r"those with heads are sapiens2_0\.4b, .*Did you mean 'sapiens2_"):
            build_task_model("pose", name)
    with pytest.raises(ValueError, match="task is one of pose, seg"):
        build_task_model("depth", "tiny")
    assert set(BACKBONES_WITH_HEADS) < set(BACKBONES)


def test_weights_can_be_drawn_after_leaving_the_meta_device() -> None:
    torch.manual_seed(0)
    model = build_task_model("albedo", "tiny", SMALL, device="meta").to_empty(device="cpu")
    model.init_weights()
    assert isinstance(model, TaskModel)
    assert model(torch.randn(1, 3, 192, 160)).isfinite().all()
    assert model.backbone.state_dict()["rope_embed.periods"][0] == 1
