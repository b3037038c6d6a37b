"""Pose and segmentation heads: deconvolutions, convolutions, one 1x1 convolution.

Every normalisation is a non-affine instance norm without running statistics: no keys, and the same in training and
evaluation. A convolution's bias in front of one has no effect on the output; it is there because checkpoints hold it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.heads.config import DeconvHeadConfig, PoseHeadConfig, SegmentationHeadConfig
from training.models.heads.layers import Conv2d, KaimingConvTranspose2d, check_features
from training.models.initialise import reset_all_parameters
from training.models.layers import Device

# Kernel -> (padding, output_padding), so that stride 2 doubles the map exactly.
_DECONV_PADDING = {4: (1, 0), 3: (1, 1), 2: (0, 0)}


class _DeconvHead(nn.Module):
    """The two stages that both heads share, without the last convolution, whose name differs."""

    def __init__(
        self,
        config: DeconvHeadConfig,
        deconv: type[nn.ConvTranspose2d],
        device: Device,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        channels = config.in_channels
        padding, output_padding = _DECONV_PADDING[config.deconv_kernel]
        layers: list[nn.Module] = []
        for out in config.deconv_channels:
            layers += [
                deconv(
                    channels,
                    out,
                    config.deconv_kernel,
                    stride=2,
                    padding=padding,
                    output_padding=output_padding,
                    bias=False,
                    device=device,
                    dtype=dtype,
                ),
                nn.InstanceNorm2d(out),
                nn.SiLU(),
            ]
            channels = out
        self.deconv_layers = nn.Sequential(*layers)
        layers = []
        for out in config.conv_channels:
            kernel = config.conv_kernel
            layers += [
                Conv2d(channels, out, kernel, padding=kernel // 2, device=device, dtype=dtype),
                nn.InstanceNorm2d(out),
                nn.SiLU(),
            ]
            channels = out
        self.conv_layers = nn.Sequential(*layers)
        self._channels = channels

    def init_weights(self) -> None:
        """Draw all weights anew, as on construction."""
        reset_all_parameters(self)


class PoseHead(_DeconvHead):
    """Keypoint heatmaps.

    Input: features [B, config.in_channels, h, w]. Output: heatmaps [B, config.out_channels, 4h, 4w] (two deconvolutions
    in every released size), raw values trained towards Gaussians of peak 1; no sigmoid. Initialisation: Kaiming normal
    (fan_out, ReLU) for convolutions and deconvolutions, zero biases.
    """

    def __init__(self, config: PoseHeadConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(config, KaimingConvTranspose2d, device, dtype)
        self.config = config
        self.conv_pose = Conv2d(self._channels, config.out_channels, 1, device=device, dtype=dtype)

    def forward(self, features: Tensor) -> Tensor:
        check_features(features, self.config.in_channels, "PoseHead")
        return self.conv_pose(self.conv_layers(self.deconv_layers(features)))


class SegmentationHead(_DeconvHead):
    """Class logits.

    Input: features [B, config.in_channels, h, w]. Output: logits [B, config.out_channels, 16h, 16w] (four
    deconvolutions in every released size): the image's own size. Initialisation: as PoseHead, but the deconvolutions
    keep PyTorch's default.
    """

    def __init__(self, config: SegmentationHeadConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(config, nn.ConvTranspose2d, device, dtype)
        self.config = config
        self.conv_seg = Conv2d(self._channels, config.out_channels, 1, device=device, dtype=dtype)

    def forward(self, features: Tensor) -> Tensor:
        check_features(features, self.config.in_channels, "SegmentationHead")
        return self.conv_seg(self.conv_layers(self.deconv_layers(features)))
