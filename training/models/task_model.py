"""A backbone with a task head, or with several, on its feature map."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.models.backbone import Backbone
from training.models.config import BACKBONES, BackboneConfig
from training.models.heads import HeadConfig, PointmapHeadConfig, build_head, head_config
from training.models.initialise import reset_all_parameters
from training.models.layers import Device

# Backbones that have heads -> the size under which `heads.HEADS` lists them. No head was released for 0.1b and 4K.
BACKBONES_WITH_HEADS = {
    "sapiens2_0.4b": "0.4b",
    "sapiens2_0.8b": "0.8b",
    "sapiens2_1b": "1b",
    "sapiens2_5b": "5b",
    "tiny": "tiny",
}


class TaskModel(nn.Module):
    """Backbone and head; state-dict keys are `backbone.*` and `decode_head.*`, as in released task checkpoints."""

    def __init__(self, backbone: nn.Module, decode_head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.decode_head = decode_head

    def init_weights(self) -> None:
        """Draw all weights anew, as on construction."""
        reset_all_parameters(self)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Normalised images [B, 3, H, W] -> what the head returns (see the heads for shapes and units)."""
        return self.decode_head(self.backbone(images, out_indices=(-1,), out_type="featmap")[0])


class MultiTaskModel(nn.Module):
    """A backbone with heads for several tasks; state-dict keys are `backbone.*` and `decode_head.<task>.*`."""

    def __init__(self, backbone: nn.Module, decode_heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.backbone = backbone
        self.decode_head = nn.ModuleDict(decode_heads)

    def single(self, task: str) -> TaskModel:
        """Backbone and head of one task, which share their parameters with this model."""
        return TaskModel(self.backbone, self.decode_head[task])

    def forward(self, images: Tensor) -> tuple[Tensor | tuple[Tensor, Tensor], ...]:
        """Normalised images [B, T, 3, H, W], one of each place for each of T tasks, in one pass of the backbone.

        Returns:
            What each head returns for its B images, in the order of the heads.

        Raises:
            ValueError: another number of images per place than heads.
        """
        if images.ndim != 5 or images.shape[1] != len(self.decode_head):
            raise ValueError(
                f"images are {tuple(images.shape)}: give [B, {len(self.decode_head)}, 3, H, W], in the order of the "
                f"tasks {', '.join(self.decode_head)}"
            )
        (features,) = self.backbone(images.flatten(0, 1), out_indices=(-1,), out_type="featmap")
        parts = features.unflatten(0, images.shape[:2]).unbind(1)
        return tuple(head(part) for head, part in zip(self.decode_head.values(), parts, strict=True))


def task_head_config(task: str, backbone: str, config: BackboneConfig | None = None) -> HeadConfig:
    """The head's configuration for a task ("pose", "seg", "normal", "pointmap", "albedo") on a named backbone.

    `config`, when given, is the backbone's configuration after overrides: the head follows its width and, for pointmap,
    its token grid. ValueError names the valid tasks and backbones.
    """
    if backbone not in BACKBONES_WITH_HEADS:
        near = difflib.get_close_matches(backbone, BACKBONES_WITH_HEADS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"there is no task head for backbone {backbone!r}; those with heads are "
            f"{', '.join(BACKBONES_WITH_HEADS)}.{hint} For another one, "
            "build TaskModel(Backbone(...), build_head(...)) with a head configuration of your own"
        )
    head = head_config(task, BACKBONES_WITH_HEADS[backbone])
    if config is None:
        return head
    if config.tokenizer_depth:
        raise ValueError(
            f"the heads of {backbone} take a map of {config.patch_size}-pixel tokens, and with tokenizer_depth "
            f"{config.tokenizer_depth} a token is {config.stride} pixels wide: leave tokenizer_depth at 0"
        )
    if isinstance(head, PointmapHeadConfig):
        return dataclasses.replace(head, in_channels=config.width, grid=config.grid)
    return dataclasses.replace(head, in_channels=config.width)


def build_task_model(
    task: str,
    backbone: str,
    config: BackboneConfig | None = None,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> TaskModel:
    """A freshly initialised task model, e.g. `build_task_model("pose", "sapiens2_0.4b")`.

    Arguments as in `task_head_config`; with `device="meta"` nothing is allocated.
    """
    head = task_head_config(task, backbone, config)
    encoder = Backbone(BACKBONES[backbone] if config is None else config, device=device, dtype=dtype)
    return TaskModel(encoder, build_head(head, device=device, dtype=dtype))
