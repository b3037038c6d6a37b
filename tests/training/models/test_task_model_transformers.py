"""Same weights, same images, same outputs as Hugging Face transformers' independent Sapiens2 models.

Reduced widths and depths, every parameter random and non-trivial (LayerScale, norms and biases included), float32 on
the CPU. transformers rotates queries and keys in the model's own dtype, so `rope_dtype="float32"` is what must agree:
what is left is the order of float32 sums, a few 1e-6 of a feature's spread. Instance norms of the heads stretch small
differences (they divide by the spread of a channel), so outputs of about 1 are compared to 1e-4. The released numerics,
RoPE in bfloat16, keep 8 bits of every query and key: the last test says how far that is from transformers.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.models.backbone import Backbone
from training.models.config import BackboneConfig
from training.models.heads import (
    HeadConfig,
    NormalHeadConfig,
    PointmapHeadConfig,
    PoseHeadConfig,
    SegmentationHeadConfig,
    build_head,
)
from training.models.task_model import TaskModel

transformers = pytest.importorskip("transformers")

# Blocks 1 and 2 of 4 share keys and values between two query heads.
BACKBONE = BackboneConfig(
    width=48, depth=4, heads=4, ffn_width=160, image_size=(256, 192), full_kv_blocks=1, rope_dtype="float32"
)
POSE = PoseHeadConfig(48, (16, 12), (10, 8, 6), 7)
SEGMENTATION = SegmentationHeadConfig(48, (16, 12, 10, 8), (8, 6), 5)
NORMAL = NormalHeadConfig(48, (16, 12, 10, 8), (8, 6, 4))
POINTMAP = PointmapHeadConfig(
    48, (16, 12, 10, 8), (8, 6, 4), scale_channels=(16, 8, 4), scale_hidden=(8, 6), grid=(16, 12)
)

BACKBONE_NAMES = (
    (r"^cls_token", "embeddings.cls_token"),
    (r"^storage_tokens", "embeddings.register_tokens"),
    (r"^patch_embed\.projection", "embeddings.patch_embeddings"),
    (r"^ln1", "norm"),
    (r"^blocks", "model.layer"),
    (r"\.ln([12])\.", r".norm\1."),
    (r"attn\.w([qkv])", r"attention.\1_proj"),
    (r"attn\.proj", "attention.o_proj"),
    (r"attn\.gamma\.weight", "layer_scale1.lambda1"),
    (r"attn\.([qk])_norm", r"attention.\1_norm"),
    (r"ffn\.w3", "mlp.down_proj"),
)
STAGES = {
    "deconv_layers": "decode_head.upsample_layers",
    "conv_layers": "decode_head.conv_layers",
    "scale_conv_layers": "scale_head.conv_layers",
}
SCALE = {"1": "block1.layers.0", "3": "block2.layers.0", "5": "proj"}
HEAD_NAMES: tuple[tuple[str, Any], ...] = (
    (
        r"(deconv_layers|conv_layers|scale_conv_layers)\.(\d+)\.",
        lambda m: f"{STAGES[m[1]]}.{int(m[2]) // 3}.convolution.",
    ),
    (r"upsample_blocks\.(\d)\.0\.", r"decode_head.upsample_layers.\1.convolution."),
    (r"input_conv\.0\.", "decode_head.input_conv.convolution."),
    (r"conv_(pose|seg|normal|pointmap)\.", "decode_head.predictor."),
    (r"scale_final_layer\.(\d)\.", lambda m: f"scale_head.predictor.{SCALE[m[1]]}."),
)


def _theirs(ours: dict[str, Tensor], names: tuple[tuple[str, Any], ...], prefix: str = "") -> dict[str, Tensor]:
    """Our state dict under the names of transformers, which keeps the two halves of w12 apart and no RoPE periods."""
    found = {}
    for key, value in ours.items():
        name = key
        for pattern, replacement in names:
            name, hits = re.subn(pattern, replacement, name)
            if hits and names is HEAD_NAMES:
                break
        if "ffn.w12" in name:
            for half, part in zip(("gate_proj", "up_proj"), value.chunk(2), strict=True):
                found[prefix + name.replace("ffn.w12", f"mlp.{half}")] = part
        elif "periods" not in name:
            found[prefix + name] = value
    return found


def _randomise(model: nn.Module) -> None:
    """Weights that keep activations of about 1 and leave no parameter without effect."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim > 1:
                fan_in = 1 if "token" in name else value[0].numel()
                value.normal_(std=1.4 * fan_in**-0.5, generator=generator)
            elif name.endswith("bias"):
                value.normal_(std=0.3, generator=generator)
            else:
                value.uniform_(0.5, 1.5, generator=generator)


def _config(head: HeadConfig | None = None) -> Any:
    arguments: dict[str, Any] = {}
    if head is not None:
        deconv = isinstance(head, PoseHeadConfig | SegmentationHeadConfig)
        upsample = list(head.deconv_channels if deconv else head.upsample_channels)  # type: ignore[union-attr]
        fields: dict[str, Any] = {
            "upsample_out_channels": upsample,
            "upsample_kernel_sizes": [4 if deconv else 3] * len(upsample),
            "use_pixel_shuffle": not deconv,
            "conv_out_channels": list(head.conv_channels),
            "conv_kernel_sizes": [head.conv_kernel] * len(head.conv_channels),
        }
        if isinstance(head, PointmapHeadConfig):
            fields["scale_conv_out_channels"] = list(head.scale_channels)
            fields["scale_conv_kernel_sizes"] = [1] * len(head.scale_channels)
            fields["scale_final_hidden_sizes"] = list(head.scale_hidden)
            fields["scale_final_input_size"] = head.scale_channels[-1] * head.scale_grid[0] * head.scale_grid[1]
        arguments = {"head_config": transformers.Sapiens2HeadConfig(**fields), "num_labels": head.out_channels}
    return transformers.Sapiens2Config(
        hidden_size=BACKBONE.width,
        num_hidden_layers=BACKBONE.depth,
        num_attention_heads=BACKBONE.heads,
        intermediate_size=BACKBONE.ffn_width,
        num_key_value_attention_heads=BACKBONE.heads // 2,
        num_first_full_attention_layers=BACKBONE.full_kv_blocks,
        num_last_full_attention_layers=BACKBONE.full_kv_blocks,
        image_size=list(BACKBONE.image_size),
        **arguments,
    )


def _images(height: int = 256, width: int = 192) -> Tensor:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("height", "width"), [(256, 192), (160, 224)])
@torch.no_grad()
def test_backbone(height: int, width: int) -> None:
    ours = Backbone(BACKBONE).eval()
    _randomise(ours)
    theirs = transformers.Sapiens2Model(_config()).eval()
    theirs.load_state_dict(_theirs(ours.state_dict(), BACKBONE_NAMES))
    images = _images(height, width)
    expected = theirs(pixel_values=images)
    raw = ours(images)[0]
    assert raw.std() > 0.5
    torch.testing.assert_close(raw, expected.last_hidden_state, rtol=0, atol=3e-5)
    torch.testing.assert_close(ours(images, out_type="cls")[0], expected.pooler_output, rtol=0, atol=3e-5)


@pytest.mark.parametrize(
    ("head", "name", "outputs"),
    [
        (POSE, "Sapiens2ForPoseEstimation", ["heatmaps"]),
        (SEGMENTATION, "Sapiens2ForSemanticSegmentation", ["logits"]),
        (NORMAL, "Sapiens2ForNormalEstimation", ["normals"]),
        (POINTMAP, "Sapiens2ForPointmapEstimation", ["pointmaps", "scales"]),
    ],
    ids=["pose", "seg", "normal", "pointmap"],
)
@torch.no_grad()
def test_task_models(head: HeadConfig, name: str, outputs: list[str]) -> None:
    ours = TaskModel(Backbone(BACKBONE), build_head(head)).eval()
    _randomise(ours)
    theirs = getattr(transformers, name)(_config(head)).eval()
    theirs.load_state_dict(
        _theirs(ours.backbone.state_dict(), BACKBONE_NAMES, "model.")
        | _theirs(ours.decode_head.state_dict(), HEAD_NAMES)
    )
    images = _images()
    actual = ours(images)
    actual = actual if isinstance(actual, tuple) else (actual,)
    expected = theirs(pixel_values=images)
    for mine, key in zip(actual, outputs, strict=True):
        assert mine.std() > 0.1
        torch.testing.assert_close(mine, expected[key], rtol=1e-5, atol=1e-4)


@torch.no_grad()
def test_the_released_numerics_differ_from_transformers_by_the_rounding_of_queries_and_keys() -> None:
    ours = Backbone(BACKBONE.replace(rope_dtype="bfloat16")).eval()
    _randomise(ours)
    theirs = transformers.Sapiens2Model(_config()).eval()
    theirs.load_state_dict(_theirs(ours.state_dict(), BACKBONE_NAMES))
    images = _images()
    difference = (ours(images)[0] - theirs(pixel_values=images).last_hidden_state).abs()
    # Four blocks, values of about 1, each query and key rounded to 2^-9 of itself.
    assert 1e-4 < difference.mean() < 1e-2
    assert difference.max() < 0.1
