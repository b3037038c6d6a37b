"""The zoo: every released size has the released names and shapes, and errors say what there is."""

from __future__ import annotations

import pytest
import torch

from tests.fixtures.sapiens2_manifest import BACKBONE_PARAMETERS, TASK_PARAMETERS, backbone_shapes, task_shapes
from training.models import create, list_models
from training.models.backbone import Backbone
from training.models.task_model import TaskModel
from training.models.zoo import model_spec


def shapes_of(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", BACKBONE_PARAMETERS)
def test_released_backbones_have_the_released_tensors(name: str) -> None:
    model = create(name, device="meta")
    assert shapes_of(model) == backbone_shapes(name)
    assert sum(p.numel() for p in model.parameters()) == BACKBONE_PARAMETERS[name]
    assert model.state_dict()["rope_embed.periods"].dtype == torch.bfloat16


@pytest.mark.parametrize("name", TASK_PARAMETERS)
def test_released_task_models_have_the_released_tensors(name: str) -> None:
    model = create(name, device="meta")
    assert shapes_of(model) == task_shapes(name)
    assert sum(p.numel() for p in model.parameters()) == TASK_PARAMETERS[name]


def test_every_released_model_is_in_the_zoo() -> None:
    assert {*BACKBONE_PARAMETERS, *TASK_PARAMETERS} <= set(list_models())
    assert len(TASK_PARAMETERS) == 20


def test_a_pattern_selects_models() -> None:
    assert list_models("*_1b_seg") == ["sapiens2_1b_seg"]
    assert list_models("nothing*") == []
    assert set(list_models("tiny*")) == {
        "tiny",
        "tiny_4k",
        *(f"tiny_{t}" for t in ("pose", "seg", "normal", "pointmap", "albedo")),
    }


def test_tiny_runs() -> None:
    model = create("tiny_seg", image_size=(64, 48), depth=2)
    assert isinstance(model, TaskModel)
    assert model(torch.randn(1, 3, 64, 48)).shape == (1, 29, 64, 48)


def test_overrides_change_the_architecture() -> None:
    model = create(
        "tiny", width=96, depth=3, heads=4, ffn_width=200, tokenizer_depth=1, image_size=(128, 64), rope_dtype="float32"
    )
    assert isinstance(model, Backbone)
    config = model.config
    assert (config.width, config.depth, config.heads, config.ffn_width) == (96, 3, 4, 200)
    assert (config.tokenizer_depth, config.image_size, config.rope_dtype) == (1, (128, 64), "float32")
    assert model(torch.randn(1, 3, 128, 64))[0].shape == (1, 9 + 2, 96)


def test_a_head_follows_the_backbone() -> None:
    model = create("sapiens2_0.4b_pointmap", width=128, heads=4, depth=1, image_size=(512, 384), device="meta")
    shapes = shapes_of(model)
    assert shapes["decode_head.input_conv.0.weight"] == (128, 128, 3, 3)
    assert shapes["decode_head.scale_final_layer.1.weight"] == (512, 128 * 4 * 3)


def test_dtype_and_device() -> None:
    model = create("tiny", depth=1, dtype=torch.bfloat16, device="meta")
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.bfloat16, "meta")}


def test_unknown_names_get_the_nearest_and_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"no model 'sapiens2_04b_pose'; did you mean 'sapiens2_0.4b_pose'.*tiny_4k"):
        create("sapiens2_04b_pose")
    with pytest.raises(ValueError, match=r"no model 'resnet50'.*The models are sapiens2_0\.1b"):
        create("resnet50")
    with pytest.raises(ValueError, match=r"no model 'sapiens2_0\.1b_pose'"):
        create("sapiens2_0.1b_pose")  # no head was released for it


def test_unknown_overrides_get_the_nearest_and_the_valid_ones() -> None:
    with pytest.raises(TypeError, match=r"'widht' cannot be overridden \(did you mean 'width'\?\).*rope_dtype"):
        create("tiny", widht=3)
    with pytest.raises(TypeError, match=r"patch_size.*cannot be overridden"):
        create("tiny", patch_size=14)
    with pytest.raises(ValueError, match="rope_dtype"):
        create("tiny", rope_dtype="int8")


def test_the_licence_is_that_of_the_published_weights() -> None:
    assert "Sapiens2 License" in model_spec("sapiens2_5b_normal").licence
    assert model_spec("sapiens2_1b_4k").weights_file == "sapiens2_1b_4k_pretrain.safetensors"
    for name in ("tiny", "tiny_pose", "sapiens2_1b_albedo"):
        assert model_spec(name).weights_file is None
        assert "no weights" in model_spec(name).licence
