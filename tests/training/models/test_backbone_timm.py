"""timm's five Sapiens2 encoders give the same features from the same weights.

Real widths and head counts. The smallest at its real depth, the others with a few blocks of full and of grouped keys
and values, so that the largest fits into a test.

timm does RoPE in float32 only. Our float32 mode must agree with it up to float32 rounding: measured 1e-6 to 2e-6 of the
largest feature, allowed 2e-5. Our bfloat16 mode, the released numerics, must not agree: it rounds queries and keys
to 8 bits and the angles too; the features then move by 2e-3 to 7e-3 of the largest. `test_backbone.py` compares that
mode with a second implementation that rounds as well.
"""

from __future__ import annotations

import re

import pytest
import timm
import torch

from tests.fixtures.slow_encoder import randomise
from training.models.backbone import Backbone
from training.models.config import BACKBONES

NAMES = {
    "sapiens2_0.1b": "vit_base_patch16_sapiens2",
    "sapiens2_0.4b": "vit_large_patch16_sapiens2",
    "sapiens2_0.8b": "vit_huge_patch16_sapiens2",
    "sapiens2_1b": "vit_giant_patch16_sapiens2",
    "sapiens2_5b": "vit_5b_patch16_sapiens2",
}
SIZE = (64, 96)
RENAMED = [
    (r"^storage_tokens", "reg_token"),
    (r"^patch_embed\.projection", "patch_embed.proj"),
    (r"^ln1", "norm"),
    (r"\.ln(\d)\.", r".norm\1."),
    (r"attn\.w([qkv])\.", r"attn.\1_proj."),
    (r"attn\.gamma\.weight", "gamma_1"),
    (r"ffn\.w12", "mlp.fc1"),
    (r"ffn\.w3", "mlp.fc2"),
]


def timm_name(name: str) -> str:
    for ours, theirs in RENAMED:
        name = re.sub(ours, theirs, name)
    return name


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("sapiens2_0.1b", {}),
        ("sapiens2_0.4b", {"depth": 3, "full_kv_blocks": 1}),
        ("sapiens2_0.8b", {"depth": 3, "full_kv_blocks": 1}),
        ("sapiens2_1b", {"depth": 3, "full_kv_blocks": 1}),
        ("sapiens2_5b", {"depth": 1, "full_kv_blocks": 1}),
        ("sapiens2_5b", {"depth": 1, "full_kv_blocks": 0}),
    ],
)
def test_same_features(name: str, changes: dict[str, int]) -> None:
    config = BACKBONES[name].replace(image_size=SIZE, rope_dtype="float32", **changes)
    ours = Backbone(config, device="meta").to_empty(device="cpu")
    ours.rope_embed.reset_parameters()
    randomise(ours)
    weights = {timm_name(key): value for key, value in ours.state_dict().items() if key != "rope_embed.periods"}
    kv_heads = tuple(config.kv_heads(block) for block in range(config.depth))
    arguments = {"img_size": SIZE, "depth": config.depth, "num_kv_heads": kv_heads}
    theirs = timm.create_model(NAMES[name], device="meta", **arguments)
    theirs.load_state_dict(weights, strict=True, assign=True)
    theirs.rope.to_empty(device="cpu")
    theirs.rope.reset_parameters()
    released = Backbone(config.replace(rope_dtype="bfloat16"), device="meta").to_empty(device="cpu")
    released.load_state_dict(ours.state_dict(), assign=True)
    released.rope_embed.reset_parameters()
    images = torch.randn(1, 3, *SIZE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs.eval().forward_features(images)
        (exact,), (rounded,) = ours(images), released(images)
    scale = float(expected.abs().max())
    torch.testing.assert_close(exact, expected, rtol=0, atol=2e-5 * scale)
    difference = float((rounded - expected).abs().max()) / scale
    assert 2e-4 < difference < 0.05
