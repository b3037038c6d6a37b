"""Normal, pointmap and albedo heads: 3x3 convolutions with pixel shuffle up to the image's own size.

Normal and pointmap use non-affine instance norms without running statistics (no keys, the same in training and
evaluation); albedo uses RMS norms over channels. Initialisation of all three: Kaiming normal (fan_out, ReLU) for
convolutions, Kaiming normal (fan_in, gain 1) for linear layers, zero biases.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.heads.config import AlbedoHeadConfig, DenseHeadConfig, NormalHeadConfig, PointmapHeadConfig
from training.models.heads.layers import ChannelRMSNorm, Conv2d, Linear, check_features
from training.models.initialise import reset_all_parameters
from training.models.layers import Device


class _DenseHead(nn.Module):
    """The trunk that the three heads share, without the last convolution, whose name differs."""

    def __init__(
        self,
        config: DenseHeadConfig,
        rms_norm: bool,
        device: Device,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()

        def norm(channels: int) -> nn.Module:
            return ChannelRMSNorm(channels, device=device, dtype=dtype) if rms_norm else nn.InstanceNorm2d(channels)

        def conv(inputs: int, outputs: int, kernel: int) -> Conv2d:
            return Conv2d(inputs, outputs, kernel, padding=kernel // 2, device=device, dtype=dtype)

        channels = config.in_channels
        self.input_conv = nn.Sequential(conv(channels, channels, 3), norm(channels), nn.SiLU())
        blocks: list[nn.Module] = []
        for out in config.upsample_channels:
            blocks.append(nn.Sequential(conv(channels, 4 * out, 3), nn.PixelShuffle(2), norm(out), nn.SiLU()))
            channels = out
        self.upsample_blocks = nn.Sequential(*blocks)
        layers: list[nn.Module] = []
        for out in config.conv_channels:
            layers += [conv(channels, out, config.conv_kernel), norm(out), nn.SiLU()]
            channels = out
        self.conv_layers = nn.Sequential(*layers)
        self._channels = channels

    def _trunk(self, features: Tensor) -> Tensor:
        return self.conv_layers(self.upsample_blocks(self.input_conv(features)))

    def init_weights(self) -> None:
        """Draw all weights anew, as on construction."""
        reset_all_parameters(self)


class NormalHead(_DenseHead):
    """Surface normals.

    Input: features [B, config.in_channels, h, w]. Output: [B, 3, 16h, 16w], raw x, y, z, not of unit length: normalise
    along the channels.
    """

    def __init__(self, config: NormalHeadConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(config, False, device, dtype)
        self.config = config
        self.conv_normal = Conv2d(self._channels, config.out_channels, 1, device=device, dtype=dtype)

    def forward(self, features: Tensor) -> Tensor:
        check_features(features, self.config.in_channels, "NormalHead")
        return self.conv_normal(self._trunk(features))


class AlbedoHead(_DenseHead):
    """Diffuse albedo.

    Input: features [B, config.in_channels, h, w]. Output: RGB [B, 3, 16h, 16w], trained against [0, 1] without an
    output activation: clamp at inference.
    """

    def __init__(self, config: AlbedoHeadConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(config, True, device, dtype)
        self.config = config
        self.conv_albedo = Conv2d(self._channels, config.out_channels, 1, device=device, dtype=dtype)

    def forward(self, features: Tensor) -> Tensor:
        check_features(features, self.config.in_channels, "AlbedoHead")
        return self.conv_albedo(self._trunk(features))


class PointmapHead(_DenseHead):
    """XYZ per pixel, and the scale that makes it metric.

    Input: features [B, config.in_channels, h, w] with (h, w) = config.grid exactly: 64x48 in released heads. Output:
    the pair (pointmap [B, 3, 16h, 16w], scale [B, 1]). The pointmap is XYZ in a canonical camera with a focal length of
    768 pixels (x right, y down, z forward); scale = 768 / fx, so metric XYZ is pointmap / scale.
    """

    def __init__(self, config: PointmapHeadConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(config, False, device, dtype)
        self.config = config
        channels = config.in_channels
        layers: list[nn.Module] = []
        for out in config.scale_channels:
            layers += [
                Conv2d(channels, out, 1, stride=2, device=device, dtype=dtype),
                nn.InstanceNorm2d(out),
                nn.SiLU(),
            ]
            channels = out
        self.scale_conv_layers = nn.Sequential(*layers)
        width = channels * config.scale_grid[0] * config.scale_grid[1]
        layers = [nn.Flatten()]
        for out in config.scale_hidden:
            layers += [Linear(width, out, device=device, dtype=dtype), nn.SiLU()]
            width = out
        self.scale_final_layer = nn.Sequential(*layers, Linear(width, 1, device=device, dtype=dtype))
        self.conv_pointmap = Conv2d(self._channels, config.out_channels, 1, device=device, dtype=dtype)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        check_features(features, self.config.in_channels, "PointmapHead")
        if tuple(features.shape[2:]) != self.config.grid:
            height, width = self.config.grid
            raise ValueError(
                f"PointmapHead was given a grid of {features.shape[2]}x{features.shape[3]} tokens; its scale branch is "
                f"built for {height}x{width} (an image of {16 * height}x{16 * width} at patch size 16). Resize or "
                "letterbox the image to that, or build the head with another `grid` (weights of the scale branch then "
                "differ in shape)"
            )
        scale = self.scale_final_layer(self.scale_conv_layers(features))
        return self.conv_pointmap(self._trunk(features)), scale
