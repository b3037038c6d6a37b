"""timm: its models take our weights strictly, and give the same features."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from tests.fixtures.sapiens2_manifest import backbone_shapes
from training.models import create, load_weights, save_weights
from training.models.convert_timm import detect, sources

NAMES = {
    "sapiens2_0.1b": "vit_base_patch16_sapiens2",
    "sapiens2_0.4b": "vit_large_patch16_sapiens2",
    "sapiens2_5b": "vit_5b_patch16_sapiens2",
}
# The block in the middle has grouped keys and values.
SMALL = {"width": 64, "heads": 4, "depth": 5, "image_size": (64, 48)}


@pytest.mark.parametrize("name", NAMES)
def test_every_name(name: str) -> None:
    with torch.device("meta"):
        theirs = {key: tuple(t.shape) for key, t in timm.create_model(NAMES[name]).state_dict().items()}
    ours = backbone_shapes(name)
    renamed = {key: sources(key) for key in ours}
    assert renamed.pop("rope_embed.periods") is None  # timm computes them
    assert {names[0]: ours[key] for key, names in renamed.items() if names} == theirs
    assert detect(theirs)
    assert not detect(ours)


def test_a_timm_model_takes_our_file_and_gives_the_same_features(tmp_path: Path) -> None:
    ours = create("tiny", **SMALL).eval()  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + 0.1)
    path = save_weights(ours, tmp_path / "x.safetensors", format="timm")
    theirs = timm.create_model(
        NAMES["sapiens2_0.4b"], embed_dim=64, num_heads=4, depth=5, num_kv_heads=[4, 4, 2, 4, 4], img_size=(64, 48)
    ).eval()
    theirs.load_state_dict(load_file(path), strict=True)
    images = torch.randn(2, 3, 64, 48, generator=generator)
    with torch.no_grad():
        expected, got = theirs.forward_features(images), ours(images)[0]
    # float32 up to the rounding of q and k to bf16 in RoPE: values at a rounding border can fall on either side.
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))

    save_file(theirs.state_dict(), tmp_path / "back.safetensors")
    back = create("tiny", **SMALL)  # type: ignore[arg-type]
    report = load_weights(back, tmp_path / "back.safetensors")
    assert report.format == "timm"
    assert report.computed == ["rope_embed.periods"]
    for name, tensor in ours.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
