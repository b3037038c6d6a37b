"""Every head there is: one table from (task, size) to a configuration, and how to build from it."""

from __future__ import annotations

import difflib

import torch
from torch import nn

from training.models.heads.config import (
    AlbedoHeadConfig,
    HeadConfig,
    NormalHeadConfig,
    PointmapHeadConfig,
    PoseHeadConfig,
    SegmentationHeadConfig,
)
from training.models.heads.deconv import PoseHead, SegmentationHead
from training.models.heads.dense import AlbedoHead, NormalHead, PointmapHead
from training.models.layers import Device

TASKS = ("pose", "seg", "normal", "pointmap", "albedo")

_WIDTHS = {"0.4b": 1024, "0.8b": 1280, "1b": 1536, "5b": 2432}


def _released(size: str) -> dict[tuple[str, str], HeadConfig]:
    """The five heads of one released size (0.1b and 4K have none)."""
    width = _WIDTHS[size]
    large = size == "5b"
    if size == "1b":
        # The only pose head that is wider than the 0.4b one.
        pose = PoseHeadConfig(width, (1536, 1024), (768, 512, 256))
    else:
        pose = PoseHeadConfig(width, (1024, 768), (512, 512, 256))
    upsample = (1536, 768, 512, 256) if large else (768, 512, 256, 128)
    conv = (128, 64, 32) if large else (64, 32, 16)
    return {
        ("pose", size): pose,
        ("seg", size): SegmentationHeadConfig(width, (512, 256, 128, 64), (64, 64)),
        ("normal", size): NormalHeadConfig(width, upsample, conv),
        ("pointmap", size): PointmapHeadConfig(width, (1536, 768, 768, 768) if large else (1536, 768, 512, 256), conv),
        ("albedo", size): AlbedoHeadConfig(width, upsample, (64, 32, 16)),
    }


# Ours, not released: for the `tiny` backbone (width 192, 256x192 images, so 16x12 tokens) on a laptop.
_TINY: dict[tuple[str, str], HeadConfig] = {
    ("pose", "tiny"): PoseHeadConfig(192, (96, 64), (48, 48)),
    ("seg", "tiny"): SegmentationHeadConfig(192, (64, 48, 32, 16), (16,)),
    ("normal", "tiny"): NormalHeadConfig(192, (64, 48, 32, 16), (16, 16)),
    ("pointmap", "tiny"): PointmapHeadConfig(
        192, (64, 48, 32, 16), (16, 16), scale_channels=(64, 32, 16), scale_hidden=(32, 16), grid=(16, 12)
    ),
    ("albedo", "tiny"): AlbedoHeadConfig(192, (64, 48, 32, 16), (16, 16)),
}

HEADS: dict[tuple[str, str], HeadConfig] = {key: head for size in _WIDTHS for key, head in _released(size).items()}
HEADS |= _TINY
SIZES = tuple(dict.fromkeys(size for _, size in HEADS))


def head_config(task: str, size: str) -> HeadConfig:
    """The configuration of a head: `task` is one of TASKS, `size` one of SIZES; else ValueError, with the valid set."""
    for name, value, valid in (("task", task, TASKS), ("size", size, SIZES)):
        if value not in valid:
            near = difflib.get_close_matches(str(value), valid, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no head of {name} {value!r}; {name} is one of {', '.join(valid)}.{hint}")
    return HEADS[task, size]


def build_head(config: HeadConfig, device: Device = None, dtype: torch.dtype | None = None) -> nn.Module:
    """The head that `config` describes, freshly initialised. TypeError for anything but a head's configuration."""
    match config:
        case PoseHeadConfig():
            return PoseHead(config, device, dtype)
        case SegmentationHeadConfig():
            return SegmentationHead(config, device, dtype)
        case NormalHeadConfig():
            return NormalHead(config, device, dtype)
        case PointmapHeadConfig():
            return PointmapHead(config, device, dtype)
        case AlbedoHeadConfig():
            return AlbedoHead(config, device, dtype)
    raise TypeError(
        f"{config!r} is no head configuration; give a PoseHeadConfig, SegmentationHeadConfig, NormalHeadConfig, "
        "PointmapHeadConfig or AlbedoHeadConfig, e.g. head_config('pose', '0.4b')"
    )
