"""The model is told from the shapes of released names; what cannot be told is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from training.models import convert_transformers
from training.models.backbone import Backbone
from training.models.checkpoints import save_weights
from training.models.config import BACKBONES
from training.models.heads import TASKS, PoseHeadConfig, build_head
from training.models.task_model import TaskModel, task_head_config
from training.models.tensor_files import WeightsError
from training.models.zoo import create
from training.prediction import Predictor
from training.prediction.architecture import architecture


def header_only(path: Path, model: torch.nn.Module) -> None:
    """A sparse safetensors file with the names and shapes of a model on the meta device."""
    entries, place = {}, 0
    for name, tensor in model.state_dict().items():
        kind = "BF16" if tensor.dtype == torch.bfloat16 else "F32"
        size = tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [place, place + size]}
        place += size
    header = json.dumps(entries).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + place)


@pytest.mark.parametrize(
    ("backbone", "task"),
    [
        *(("tiny", task) for task in TASKS),
        ("sapiens2_1b", "pose"),
        ("sapiens2_0.4b", "pointmap"),
        ("sapiens2_5b", "seg"),
    ],
)
def test_released_shapes_give_the_zoos_configurations(backbone: str, task: str, tmp_path: Path) -> None:
    header_only(tmp_path / "w.safetensors", create(f"{backbone}_{task}", device="meta"))
    encoder, head = architecture(task, tmp_path / "w.safetensors")
    assert encoder == BACKBONES[backbone]
    assert head == task_head_config(task, backbone)


def test_an_encoder_and_head_of_your_own_need_their_size_only(tmp_path: Path) -> None:
    config = BACKBONES["tiny"].replace(depth=2, width=96, image_size=(128, 64))
    model = TaskModel(Backbone(config), build_head(PoseHeadConfig(96, (16,), (), 17, deconv_kernel=2)))
    save_weights(model, tmp_path / "w.safetensors")
    with pytest.raises(WeightsError, match=r"give size=\(height, width\)"):
        Predictor.load("pose", tmp_path / "w.safetensors")
    predictor = Predictor.load("pose", tmp_path / "w.safetensors", size=(128, 64), device="cpu")
    assert predictor.task.set.name == "coco17"
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, predictor.model.state_dict()[name]), name


def test_wrong_files_are_named(weights: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="weights for seg, not for pose"):
        Predictor.load("pose", weights("seg"))
    save_weights(create("tiny"), tmp_path / "b.safetensors")
    with pytest.raises(WeightsError, match="without a head"):
        Predictor.load("pose", tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match="there is no task 'depth'"):
        Predictor.load("depth", weights("seg"))
    with pytest.raises(ValueError, match="no backbone"):
        Predictor.load("seg", weights("seg"), backbone="huge")
    with pytest.raises(WeightsError, match="scale branch"):
        Predictor.load("pointmap", weights("pointmap"), size=(512, 384))
    with pytest.raises(WeightsError):
        Predictor.load("seg", weights("seg"), backbone="sapiens2_0.4b", device="cpu")


def test_names_of_transformers_load_with_the_backbones_name(tmp_path: Path) -> None:
    model = create("tiny_pointmap")
    save_weights(model, tmp_path / "file", "transformers")
    assert Predictor.load("pointmap", tmp_path / "file", device="cpu").size == (256, 192)
    state = {}
    for name, tensor in model.state_dict().items():
        others = convert_transformers.sources_in_memory(name.removeprefix("backbone.")) or ()
        for other, part in zip(others, tensor.chunk(max(1, len(others))), strict=False):
            state[f"model.{other}" if name.startswith("backbone.") else other] = part.contiguous().clone()
    save_file(state, tmp_path / "memory.safetensors")
    with pytest.raises(WeightsError, match="backbone="):
        Predictor.load("pointmap", tmp_path / "memory.safetensors")
    predictor = Predictor.load("pointmap", tmp_path / "memory.safetensors", backbone="tiny", device="cpu")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, predictor.model.state_dict()[name]), name


def test_keypoints_and_classes_of_your_own_have_to_be_given(tmp_path: Path) -> None:
    model = create("tiny_pose")
    model.decode_head = build_head(PoseHeadConfig(192, (96, 64), (48, 48), 5))
    save_weights(model, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="5 keypoints, which is none of the sets"):
        Predictor.load("pose", tmp_path / "w.safetensors")
