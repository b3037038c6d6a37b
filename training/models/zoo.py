"""Every model by name, and how to make one.

Names: the backbones of `config.BACKBONES`, and "<backbone>_<task>" for those with heads, e.g. "sapiens2_0.4b_pose".
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from training.models.backbone import Backbone
from training.models.config import BACKBONES, BackboneConfig
from training.models.heads import TASKS, HeadConfig
from training.models.task_model import BACKBONES_WITH_HEADS, build_task_model, task_head_config

OVERRIDES = ("width", "depth", "heads", "ffn_width", "tokenizer_depth", "image_size", "rope_dtype")

SAPIENS2_LICENCE = (
    "Sapiens2 License (custom: no surveillance, biometric processing, deepfakes or military use; redistribution under "
    "the same terms). The weights are not bundled here; whoever loads them accepts it"
)
NO_WEIGHTS = "no weights are published"


@dataclass(frozen=True)
class ModelSpec:
    """A model of the zoo: what it is, before anything is built."""

    name: str
    backbone: str
    task: str | None
    """One of `heads.TASKS`, or None for a bare backbone."""
    config: BackboneConfig
    head: HeadConfig | None

    @property
    def weights_file(self) -> str | None:
        """Name of the released file, None where none is published (0.1B to 5B have one; albedo and tiny have not)."""
        if not self.backbone.startswith("sapiens2_") or self.task == "albedo":
            return None
        return f"{self.backbone}_{self.task or 'pretrain'}.safetensors"

    @property
    def licence(self) -> str:
        """Licence of the released weights (of the code here it says nothing)."""
        return SAPIENS2_LICENCE if self.weights_file else NO_WEIGHTS


def list_models(pattern: str | None = None) -> list[str]:
    """Names of all models, or of those that a shell pattern matches, e.g. "*_pose"."""
    names = []
    for backbone in BACKBONES:
        names.append(backbone)
        if backbone in BACKBONES_WITH_HEADS:
            names += [f"{backbone}_{task}" for task in TASKS]
    return names if pattern is None else fnmatch.filter(names, pattern)


def model_spec(name: str, **overrides: Any) -> ModelSpec:
    """What `name` stands for, with other values of `OVERRIDES`.

    A head follows the backbone's width, and for pointmap its token grid.

    Raises:
        ValueError: the name is not in the zoo, or the values do not fit together; the message has the valid ones.
        TypeError: an override is not one of `OVERRIDES`.
    """
    names = list_models()
    if name not in names:
        near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"there is no model {name!r}{hint} The models are {', '.join(names)}")
    for key in overrides:
        if key not in OVERRIDES:
            near = difflib.get_close_matches(key, OVERRIDES, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise TypeError(f"{key!r} cannot be overridden{hint}; what can: {', '.join(OVERRIDES)}, device, dtype")
    backbone, task = name, None
    if name not in BACKBONES:
        backbone, _, task = name.rpartition("_")
    config = BACKBONES[backbone].replace(**overrides) if overrides else BACKBONES[backbone]
    head = task_head_config(task, backbone, config) if task else None
    return ModelSpec(name, backbone, task, config, head)


def backbone_of(name: str, overrides: Mapping[str, Any]) -> BackboneConfig:
    """The sizes of a backbone that a configuration names.

    Raises:
        ValueError: there is no such backbone, an override is not one of `OVERRIDES`, or it is a task model's name.
    """
    try:
        spec = model_spec(name, **overrides)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if spec.task is not None:
        raise ValueError(f"{name!r} is a task model; give its backbone, {spec.backbone!r}")
    return spec.config


def create(
    name: str, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None, **overrides: Any
) -> nn.Module:
    """A `Backbone` or `TaskModel` with random weights; errors as in `model_spec`.

    Args:
        name: one of `list_models()`.
        device: where the parameters are made; "meta" allocates nothing, and `load_weights` fills it.
        dtype: of the parameters; None = torch's default.
        overrides: other values of `OVERRIDES`, e.g. `depth=2, image_size=(512, 384)`. A new `width` without `ffn_width`
            keeps the ratio of the two.
    """
    spec = model_spec(name, **overrides)
    if spec.task is None:
        return Backbone(spec.config, device=device, dtype=dtype)
    return build_task_model(spec.task, spec.backbone, spec.config, device=device, dtype=dtype)
