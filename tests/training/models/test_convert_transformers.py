"""transformers: `from_pretrained` loads what is saved here, and what it saves loads here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from training.models import create, load_weights, save_weights
from training.models.load_plan import WeightsMismatchError

# The block in the middle has grouped keys and values.
SMALL: dict[str, Any] = {"width": 32, "heads": 4, "depth": 5, "image_size": (128, 96)}
TASKS = {
    "pose": "Sapiens2ForPoseEstimation",
    "seg": "Sapiens2ForSemanticSegmentation",
    "normal": "Sapiens2ForNormalEstimation",
    "pointmap": "Sapiens2ForPointmapEstimation",
}


def small(name: str = "tiny", seed: int = 0, **overrides: Any) -> nn.Module:
    model = create(name, **(SMALL | overrides)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + 0.1)
    return model


def from_pretrained(class_name: str, folder: Path) -> Any:
    model, info = getattr(transformers, class_name).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model


def assert_same(model: nn.Module, other: nn.Module) -> None:
    first, second = model.state_dict(), other.state_dict()
    assert set(first) == set(second)
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        assert torch.equal(tensor, second[name]), name


def test_the_backbone(tmp_path: Path) -> None:
    ours = small()
    theirs = from_pretrained("Sapiens2Model", save_weights(ours, tmp_path / "ours", format="transformers"))
    images = torch.randn(2, 3, 128, 96, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, got = theirs(images).last_hidden_state, ours(images)[0]
    # q and k are rounded to bf16 in RoPE: values at a rounding border can fall on either side.
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))
    theirs.save_pretrained(tmp_path / "theirs")
    back = small(seed=1)
    report = load_weights(back, tmp_path / "theirs")
    assert report.format == "transformers"
    assert report.computed == ["rope_embed.periods"]
    assert_same(back, ours)


def test_the_dtype_is_kept(tmp_path: Path) -> None:
    folder = save_weights(small(), tmp_path / "ours", format="transformers", dtype=torch.bfloat16)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert from_pretrained("Sapiens2Model", folder).dtype == torch.bfloat16


@pytest.mark.parametrize("task", TASKS)
def test_task_models(tmp_path: Path, task: str) -> None:
    overrides = {"depth": 2, "image_size": (1024, 768)} if task == "pointmap" else {"depth": 2}
    name = f"tiny_{task}"
    ours = small(name, **overrides)
    folder = save_weights(ours, tmp_path / "ours", format="transformers", max_shard_bytes=200_000)
    assert (folder / "model.safetensors.index.json").exists()
    theirs = from_pretrained(TASKS[task], folder)
    theirs.save_pretrained(tmp_path / "theirs")
    back = small(name, seed=1, **overrides)
    load_weights(back, tmp_path / "theirs")
    assert_same(back, ours)
    # The names inside a model, as `save_original_format=False` writes them: w12 in two parts.
    save_file(dict(theirs.state_dict()), tmp_path / "inside.safetensors")
    inside = create(name, device="meta", **(SMALL | overrides))
    assert "inside a model" in load_weights(inside, tmp_path / "inside.safetensors").format
    assert_same(inside, ours)


def test_ours_to_timm_to_transformers_to_ours_is_lossless(tmp_path: Path) -> None:
    ours = small()
    by_timm = timm.create_model(
        "vit_large_patch16_sapiens2",
        embed_dim=32,
        num_heads=4,
        depth=5,
        num_kv_heads=[4, 4, 2, 4, 4],
        img_size=(128, 96),
    )
    path = save_weights(ours, tmp_path / "a.safetensors", format="timm")
    by_timm.load_state_dict(load_file(path), strict=True)
    save_file(by_timm.state_dict(), tmp_path / "b.safetensors")
    second = small(seed=1)
    load_weights(second, tmp_path / "b.safetensors")
    folder = save_weights(second, tmp_path / "c", format="transformers")
    from_pretrained("Sapiens2Model", folder).save_pretrained(tmp_path / "d")
    third = small(seed=2)
    load_weights(third, tmp_path / "d")
    assert_same(third, ours)


def test_the_backbone_inside_a_saved_task_model(tmp_path: Path) -> None:
    ours = small("tiny_seg", depth=2)
    theirs = from_pretrained(TASKS["seg"], save_weights(ours, tmp_path / "ours", format="transformers"))
    save_file(dict(theirs.state_dict()), tmp_path / "inside.safetensors")
    for path in (tmp_path / "ours", tmp_path / "inside.safetensors"):
        backbone = small("tiny", seed=1, depth=2)
        report = load_weights(backbone, path)
        assert_same(backbone, ours.backbone)  # type: ignore[arg-type]
        assert report.unused, path


@pytest.mark.parametrize(
    ("field", "value"), [("rope_theta", 10000.0), ("rms_norm_eps", 1e-5), ("num_attention_heads", 8)]
)
def test_config_json_must_say_the_same(tmp_path: Path, field: str, value: float) -> None:
    folder = save_weights(small(depth=2), tmp_path / "ours", format="transformers")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {field: value}))
    with pytest.raises(WeightsMismatchError, match=f"{field} is {value} in config.json"):
        load_weights(small(depth=2), folder)
