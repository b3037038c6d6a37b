"""Normal, pointmap and albedo heads: values against slow references, sizes, initial values, errors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.models.heads import (
    AlbedoHead,
    AlbedoHeadConfig,
    NormalHead,
    NormalHeadConfig,
    PointmapHead,
    PointmapHeadConfig,
    build_head,
    head_config,
)

UPSAMPLE, CONV = (7, 6, 5, 4), (6, 5)


def _randomised(head: torch.nn.Module) -> dict[str, Tensor]:
    """Fill every weight with something non-trivial; returns them by name."""
    generator = torch.Generator().manual_seed(0)
    for name, value in head.named_parameters():
        with torch.no_grad():
            if name.endswith("norm.weight"):
                value.uniform_(0.5, 1.5, generator=generator)
            else:
                value.normal_(std=value[0].numel() ** -0.5, generator=generator)
    return {name: value.detach() for name, value in head.named_parameters()}


def _shuffle(x: Tensor) -> Tensor:
    """Pixel shuffle one value at a time: channel 4c + 2i + j goes to channel c, row 2y + i, column 2x + j."""
    batch, channels, height, width = x.shape
    out = torch.full((batch, channels // 4, 2 * height, 2 * width), torch.nan)
    for channel in range(channels):
        corner, (i, j) = channel // 4, divmod(channel % 4, 2)
        for y in range(height):
            for column in range(width):
                out[:, corner, 2 * y + i, 2 * column + j] = x[:, channel, y, column]
    return out


def _slow_trunk(w: dict[str, Tensor], x: Tensor, rms: bool) -> Tensor:
    def normalised(x: Tensor, weight: str) -> Tensor:
        if rms:
            x = x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-6) * w[weight][None, :, None, None]
        else:
            centred = x - x.mean(dim=(2, 3), keepdim=True)
            x = centred / torch.sqrt((centred * centred).mean(dim=(2, 3), keepdim=True) + 1e-5)
        return x * torch.sigmoid(x)

    def conv(x: Tensor, name: str) -> Tensor:
        return F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], padding=1)

    x = normalised(conv(x, "input_conv.0"), "input_conv.1.norm.weight")
    for index in range(len(UPSAMPLE)):
        x = _shuffle(conv(x, f"upsample_blocks.{index}.0"))
        x = normalised(x, f"upsample_blocks.{index}.2.norm.weight")
    for index in range(len(CONV)):
        x = normalised(conv(x, f"conv_layers.{3 * index}"), f"conv_layers.{3 * index + 1}.norm.weight")
    return x


def test_albedo_normalises_over_channels_pixel_by_pixel() -> None:
    head = AlbedoHead(AlbedoHeadConfig(8, UPSAMPLE, CONV))
    weights = _randomised(head)
    features = torch.randn(2, 8, 3, 2, generator=torch.Generator().manual_seed(1))
    trunk = _slow_trunk(weights, features, rms=True)
    expected = F.conv2d(trunk, weights["conv_albedo.weight"], weights["conv_albedo.bias"])
    actual = head(features)
    assert actual.shape == (2, 3, 48, 32)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_normal_normalises_over_the_map_channel_by_channel() -> None:
    head = NormalHead(NormalHeadConfig(8, UPSAMPLE, CONV))
    weights = _randomised(head)
    assert not any("norm" in name and not name.startswith("conv_normal") for name in weights)
    features = torch.randn(2, 8, 3, 2, generator=torch.Generator().manual_seed(1))
    trunk = _slow_trunk(weights, features, rms=False)
    expected = F.conv2d(trunk, weights["conv_normal.weight"], weights["conv_normal.bias"])
    actual = head(features)
    assert actual.shape == (2, 3, 48, 32)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(actual.norm(dim=1), torch.ones(2, 48, 32))  # raw, not of unit length


def test_pointmap_adds_a_scale_that_reads_every_second_token() -> None:
    config = PointmapHeadConfig(8, UPSAMPLE, CONV, scale_channels=(6, 5), scale_hidden=(4,), grid=(6, 5))
    head = PointmapHead(config)
    w = _randomised(head)
    features = torch.randn(2, 8, 6, 5, generator=torch.Generator().manual_seed(1))
    pointmap, scale = head(features)
    trunk = _slow_trunk(w, features, rms=False)
    expected = F.conv2d(trunk, w["conv_pointmap.weight"], w["conv_pointmap.bias"])
    torch.testing.assert_close(pointmap, expected, rtol=1e-4, atol=1e-4)

    x = features
    for index in (0, 3):
        x = torch.einsum("oc,bcyx->boyx", w[f"scale_conv_layers.{index}.weight"][:, :, 0, 0], x[:, :, ::2, ::2])
        x = F.silu(F.instance_norm(x))
    assert x.shape == (2, 5, 2, 2)
    x = F.silu(x.reshape(2, -1) @ w["scale_final_layer.1.weight"].T + w["scale_final_layer.1.bias"])
    x = x @ w["scale_final_layer.3.weight"].T + w["scale_final_layer.3.bias"]
    torch.testing.assert_close(scale, x, rtol=1e-4, atol=1e-5)


def test_pointmap_refuses_another_grid_and_says_which_it_serves() -> None:
    head = PointmapHead(PointmapHeadConfig(8, (4,), (4,), scale_channels=(4,), scale_hidden=(), grid=(6, 5)))
    assert head(torch.randn(1, 8, 6, 5))[1].shape == (1, 1)
    with pytest.raises(ValueError, match=r"a grid of 5x6 tokens.*built for 6x5 \(an image of 96x80"):
        head(torch.randn(1, 8, 5, 6))


@pytest.mark.parametrize("head", [NormalHead(NormalHeadConfig(8, (4,), ())), AlbedoHead(AlbedoHeadConfig(8, (4,), ()))])
def test_features_of_another_backbone_are_refused(head: torch.nn.Module) -> None:
    with pytest.raises(ValueError, match=r"it takes \[batch, 8, height, width\]"):
        head(torch.zeros(1, 16, 4, 4))


def test_albedo_in_bfloat16_stays_bfloat16_and_close() -> None:
    head = AlbedoHead(AlbedoHeadConfig(8, UPSAMPLE, CONV))
    _randomised(head)
    features = torch.randn(2, 8, 3, 2, generator=torch.Generator().manual_seed(1))
    expected = head(features)
    actual = head.bfloat16()(features.bfloat16())
    assert actual.dtype == torch.bfloat16
    assert (actual - expected).abs().mean() < 0.05 * expected.abs().mean()  # bfloat16 keeps 8 bits


@pytest.mark.parametrize("name", ["pointmap", "albedo"])
def test_compiles_without_graph_breaks(name: str) -> None:
    head = build_head(head_config(name, "tiny")).eval()
    features = torch.randn(1, 192, 16, 12)
    with torch.no_grad():
        compiled = torch.compile(head, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(features), head(features))


def test_initial_values() -> None:
    torch.manual_seed(0)
    config = PointmapHeadConfig(32, (24, 16), (20,), scale_channels=(40, 30), scale_hidden=(50,), grid=(16, 12))
    head = PointmapHead(config)
    spread = {name: p.std().item() for name, p in head.named_parameters() if p.ndim > 1 and p.numel() > 1000}
    expected = {
        "input_conv.0.weight": math.sqrt(2 / (32 * 9)),
        "upsample_blocks.0.0.weight": math.sqrt(2 / (4 * 24 * 9)),
        "upsample_blocks.1.0.weight": math.sqrt(2 / (4 * 16 * 9)),
        "conv_layers.0.weight": math.sqrt(2 / (20 * 9)),
        "scale_conv_layers.0.weight": math.sqrt(2 / 40),
        "scale_conv_layers.3.weight": math.sqrt(2 / 30),
        # Linear layers: fan_in, gain 1.
        "scale_final_layer.1.weight": math.sqrt(1 / (30 * 4 * 3)),
    }
    assert spread == pytest.approx(expected, rel=0.08)
    assert all((p == 0).all() for name, p in head.named_parameters() if name.endswith("bias"))
    albedo = AlbedoHead(AlbedoHeadConfig(8, (4,), (4,)))
    assert all((p == 1).all() for name, p in albedo.named_parameters() if name.endswith("norm.weight"))
