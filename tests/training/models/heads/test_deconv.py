"""Pose and segmentation heads: output sizes, normalisation, initial values, errors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from training.models.heads import PoseHead, PoseHeadConfig, SegmentationHead, SegmentationHeadConfig


@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_every_deconvolution_doubles_the_map(kernel: int) -> None:
    head = PoseHead(PoseHeadConfig(8, (6, 4), (5,), 7, deconv_kernel=kernel))
    assert head(torch.randn(2, 8, 5, 3)).shape == (2, 7, 20, 12)
    segmentation = SegmentationHead(SegmentationHeadConfig(8, (6, 4, 4, 4), (), 3, deconv_kernel=kernel))
    assert segmentation(torch.randn(1, 8, 2, 3)).shape == (1, 3, 32, 48)


def test_evaluation_gives_what_training_gives_for_every_image_by_itself() -> None:
    head = PoseHead(PoseHeadConfig(8, (6, 4), (5,), 7))
    features = torch.randn(3, 8, 4, 3)
    together = head.train()(features)
    alone = torch.cat([head.eval()(one[None]) for one in features])
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)


def test_norms_have_no_weights_and_cancel_the_bias_before_them() -> None:
    head = SegmentationHead(SegmentationHeadConfig(8, (6, 4), (5,), 3))
    assert set(head.state_dict()) == {
        *("deconv_layers.0.weight", "deconv_layers.3.weight"),
        *("conv_layers.0.weight", "conv_layers.0.bias", "conv_seg.weight", "conv_seg.bias"),
    }
    features = torch.randn(1, 8, 4, 3)
    before = head(features)
    nn.init.normal_(head.get_parameter("conv_layers.0.bias"), std=3.0)
    torch.testing.assert_close(head(features), before, rtol=1e-4, atol=1e-4)


def test_initial_values() -> None:
    torch.manual_seed(0)
    pose = PoseHead(PoseHeadConfig(96, (64, 48), (80,), 70, conv_kernel=3))
    spread = {name: p.std().item() for name, p in pose.named_parameters() if p.ndim > 1}
    # Kaiming fan_out: out * k * k of a convolution; of a deconvolution's weight [in, out, k, k] its in * k * k.
    expected = {
        "deconv_layers.0.weight": math.sqrt(2 / (96 * 16)),
        "deconv_layers.3.weight": math.sqrt(2 / (64 * 16)),
        "conv_layers.0.weight": math.sqrt(2 / (80 * 9)),
        "conv_pose.weight": math.sqrt(2 / 70),
    }
    assert spread == pytest.approx(expected, rel=0.05)
    assert all((p == 0).all() for name, p in pose.named_parameters() if name.endswith("bias"))

    segmentation = SegmentationHead(SegmentationHeadConfig(96, (64,), (80,), 29))
    weight = segmentation.get_parameter("deconv_layers.0.weight")
    # PyTorch's default: uniform within 1 / sqrt(out * k * k).
    bound = 1 / math.sqrt(64 * 16)
    assert 0.99 * bound < weight.abs().max().item() <= bound
    assert segmentation.get_parameter("conv_seg.weight").std().item() == pytest.approx(math.sqrt(2 / 29), rel=0.05)


def test_weights_can_be_drawn_after_leaving_the_meta_device() -> None:
    config = PoseHeadConfig(8, (6, 4), (5,), 7)
    torch.manual_seed(3)
    direct = PoseHead(config).state_dict()
    head = PoseHead(config, device="meta").to_empty(device="cpu")
    torch.manual_seed(3)
    head.init_weights()
    assert all(torch.equal(value, direct[key]) for key, value in head.state_dict().items())


@pytest.mark.parametrize("shape", [(2, 9, 4, 3), (2, 12, 8)])
def test_features_of_another_backbone_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"PoseHead was given .*it takes \[batch, 8, height, width\]"):
        PoseHead(PoseHeadConfig(8, (6, 4), (5,), 7))(torch.zeros(shape))
