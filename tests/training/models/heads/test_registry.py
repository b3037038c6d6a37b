"""Every released head has the released names, shapes and parameter count; wrong names are told the right ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from training.models.config import BACKBONES
from training.models.heads import HEADS, SIZES, TASKS, PointmapHeadConfig, build_head, head_config

# Names, shapes and parameter counts of the released task checkpoints, without the prefix "decode_head.".
RELEASED = json.loads((Path(__file__).parent / "released_heads.json").read_text())


@pytest.mark.parametrize("name", RELEASED)
def test_names_shapes_and_counts_are_the_released_ones(name: str) -> None:
    task, size = name.split("_")
    head = build_head(head_config(task, size), device="meta")
    assert {key: list(value.shape) for key, value in head.state_dict().items()} == RELEASED[name]["shapes"]
    assert sum(p.numel() for p in head.parameters()) == RELEASED[name]["parameters"]
    assert all(p.is_meta and p.dtype == torch.float32 for p in head.parameters())


def test_every_released_head_and_a_tiny_one_per_task_is_listed() -> None:
    assert len(RELEASED) == 20
    assert set(HEADS) == {tuple(name.split("_")) for name in RELEASED} | {(task, "tiny") for task in TASKS}
    assert SIZES == ("0.4b", "0.8b", "1b", "5b", "tiny")


@pytest.mark.parametrize(("task", "size"), HEADS)
def test_a_head_fits_the_backbone_of_its_size(task: str, size: str) -> None:
    backbone = BACKBONES["tiny" if size == "tiny" else f"sapiens2_{size}"]
    head = head_config(task, size)
    assert head.in_channels == backbone.width
    assert head.upscale == (4 if task == "pose" else 16)
    if isinstance(head, PointmapHeadConfig):
        assert head.grid == backbone.grid


@pytest.mark.parametrize(
    ("task", "size", "message"),
    [
        ("segmentation", "0.4b", "no head of task 'segmentation'; task is one of pose, seg, normal, pointmap, albedo"),
        ("pointmaps", "0.4b", "Did you mean 'pointmap'"),
        ("pose", "0.1b", "no head of size '0.1b'; size is one of 0.4b, 0.8b, 1b, 5b, tiny"),
    ],
)
def test_unknown_names_are_answered_with_the_valid_ones(task: str, size: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        head_config(task, size)


def test_building_from_something_else_says_what_is_wanted() -> None:
    with pytest.raises(TypeError, match="head_config"):
        build_head("pose_0.4b")  # type: ignore[arg-type]
