"""What a task head is made of: one frozen dataclass per task, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass


def _positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; give a whole number of at least 1")


def _channels(name: str, values: tuple[int, ...], at_least: int = 0) -> None:
    if not isinstance(values, tuple) or len(values) < at_least:
        raise ValueError(f"{name} is {values!r}; give a tuple of at least {at_least} channel counts, e.g. (64, 32)")
    for index, value in enumerate(values):
        _positive(f"{name}[{index}]", value)


def _odd_kernel(name: str, value: int) -> None:
    _positive(name, value)
    if value % 2 == 0:
        raise ValueError(
            f"{name} is {value}; give an odd size (1, 3, 5, ...), an even one would shift and shrink the map"
        )


@dataclass(frozen=True)
class DeconvHeadConfig:
    """Deconvolutions (each doubles the map), convolutions, one 1x1 convolution; no activation at the end.

    `in_channels` is the width of the backbone. `deconv_kernel` is 2, 3 or 4; every released head has 4.
    """

    in_channels: int
    deconv_channels: tuple[int, ...]
    conv_channels: tuple[int, ...]
    out_channels: int
    deconv_kernel: int = 4
    conv_kernel: int = 1

    def __post_init__(self) -> None:
        _positive("in_channels", self.in_channels)
        _positive("out_channels", self.out_channels)
        _channels("deconv_channels", self.deconv_channels, at_least=1)
        _channels("conv_channels", self.conv_channels)
        _odd_kernel("conv_kernel", self.conv_kernel)
        if self.deconv_kernel not in (2, 3, 4):
            raise ValueError(
                f"deconv_kernel is {self.deconv_kernel!r}; 2, 3 and 4 double the map exactly, give one of them"
            )

    @property
    def upscale(self) -> int:
        """Output pixels per token, along one side: 4 for the released pose heads, 16 for segmentation."""
        return 2 ** len(self.deconv_channels)


@dataclass(frozen=True)
class PoseHeadConfig(DeconvHeadConfig):
    """One heatmap per keypoint. Released heads: 308 keypoints, map four times the token grid."""

    out_channels: int = 308


@dataclass(frozen=True)
class SegmentationHeadConfig(DeconvHeadConfig):
    """One logit per class. Released heads: 29 classes, map sixteen times the token grid (the image's own size)."""

    out_channels: int = 29


@dataclass(frozen=True)
class DenseHeadConfig:
    """A 3x3 convolution, 3x3 ones with pixel shuffle (each doubles the map), convolutions, one 1x1 convolution."""

    in_channels: int
    upsample_channels: tuple[int, ...]
    conv_channels: tuple[int, ...]
    out_channels: int = 3
    conv_kernel: int = 3

    def __post_init__(self) -> None:
        _positive("in_channels", self.in_channels)
        _positive("out_channels", self.out_channels)
        _channels("upsample_channels", self.upsample_channels, at_least=1)
        _channels("conv_channels", self.conv_channels)
        _odd_kernel("conv_kernel", self.conv_kernel)

    @property
    def upscale(self) -> int:
        """Output pixels per token, along one side: 16 for every released head."""
        return 2 ** len(self.upsample_channels)


@dataclass(frozen=True)
class NormalHeadConfig(DenseHeadConfig):
    """Surface normals."""


@dataclass(frozen=True)
class AlbedoHeadConfig(DenseHeadConfig):
    """Diffuse albedo."""


@dataclass(frozen=True)
class PointmapHeadConfig(DenseHeadConfig):
    """XYZ per pixel and one scale per image.

    The scale branch flattens its last map into a linear layer, so that the head serves one token grid only: `grid` is
    (height, width) in tokens, 64x48 in every released head (an image of 1024x768).
    """

    scale_channels: tuple[int, ...] = (1536, 512, 128)
    scale_hidden: tuple[int, ...] = (512, 128)
    grid: tuple[int, int] = (64, 48)

    def __post_init__(self) -> None:
        super().__post_init__()
        _channels("scale_channels", self.scale_channels, at_least=1)
        _channels("scale_hidden", self.scale_hidden)
        if not isinstance(self.grid, tuple) or len(self.grid) != 2:
            raise ValueError(f"grid is {self.grid!r}; give (height, width) in tokens, e.g. (64, 48)")
        _positive("grid height", self.grid[0])
        _positive("grid width", self.grid[1])
        height, width = self.scale_grid
        if height * width < 2:
            raise ValueError(
                f"grid {self.grid[0]}x{self.grid[1]} shrinks to 1x1 in the {len(self.scale_channels)} stride-2 "
                "convolutions of the scale branch, and instance normalisation needs two values; give larger images (a "
                f"side of more than {2 ** len(self.scale_channels)} tokens), or fewer scale_channels"
            )

    @property
    def scale_grid(self) -> tuple[int, int]:
        """The map that the scale branch flattens: 8x6 for 64x48 tokens."""
        height, width = self.grid
        for _ in self.scale_channels:
            height, width = (height + 1) // 2, (width + 1) // 2
        return height, width


HeadConfig = PoseHeadConfig | SegmentationHeadConfig | NormalHeadConfig | PointmapHeadConfig | AlbedoHeadConfig
