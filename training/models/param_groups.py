"""Parameter groups for an optimizer: no weight decay on norms and biases, lower learning rates in earlier layers.

The rules are those of the released training code: weight decay 0 for tensors of one axis, for biases and for position
embeddings; layer ids 0 for the embedding, i + 1 for block i of L and L + 1 for everything else; the learning rate of a
layer is multiplied by rate ** (L + 1 - id). Rates of the released task recipes: 0.80 (0.4B), 0.85 (0.8B), 0.90 (1B) and
0.94 (5B).
"""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from training.models.backbone import Backbone
from training.models.load_plan import full_shape

# Parts of a backbone that come before its blocks.
_EMBEDDING = ("cls_token", "storage_tokens", "mask_token", "pos_embed", "patch_embed", "tokenizer")
_TOKENS = ("cls_token", "storage_tokens", "mask_token", "w_cls")
_BLOCK = re.compile(r"blocks\.(\d+)\.")


def param_groups(
    module: nn.Module,
    lr: float,
    weight_decay: float = 0.1,
    layer_decay: float = 1.0,
    decay_tokens: bool = True,
) -> list[dict[str, Any]]:
    """Groups for a torch optimizer, merged by learning rate and weight decay.

    Args:
        module: a `Backbone`, a `TaskModel`, or anything that holds backbones. Every backbone counts its own layers;
            what is outside of one has layer id L + 1, the full learning rate.
        lr: learning rate of the last layers, at least 0.
        weight_decay: of matrices, at least 0.
        layer_decay: factor from a layer to the one before, in (0, 1]; 1 = the same rate everywhere.
        decay_tokens: whether [CLS], registers, mask and window tokens are decayed: True in the released fine-tuning
            code; the pretraining recipe has no decay on them (Sapiens2 paper, A.1.1).

    Returns:
        Dicts with `params`, `lr`, `weight_decay`, `lr_scale` (the multiplier, for schedules) and `names`, by rising
        learning rate. Every parameter that requires a gradient is in exactly one.

    Raises:
        ValueError: a number is out of its range, nothing is trainable, or `layer_decay` is below 1 and there is no
            backbone to count layers in.
    """
    if not lr >= 0 or not weight_decay >= 0:
        raise ValueError(f"lr is {lr} and weight_decay {weight_decay}; both must be 0 or more")
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay is {layer_decay}; give a factor above 0 and at most 1 (1 = no decay)")
    backbones = {name: child for name, child in module.named_modules() if isinstance(child, Backbone)}
    if layer_decay < 1 and not backbones:
        raise ValueError(f"layer_decay is {layer_decay}, but this {type(module).__name__} has no Backbone with layers")
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        below_top = layers_below_top(name, backbones)
        scale = layer_decay**below_top
        decayed = has_weight_decay(name, len(full_shape(parameter)), decay_tokens)
        key = (scale, weight_decay if decayed else 0.0)
        if key not in groups:
            groups[key] = {"params": [], "lr": lr * scale, "weight_decay": key[1], "lr_scale": scale, "names": []}
        groups[key]["params"].append(parameter)
        groups[key]["names"].append(name)
    if not groups:
        raise ValueError(f"no parameter of this {type(module).__name__} requires a gradient: everything is frozen")
    return [groups[key] for key in sorted(groups)]


def layers_below_top(name: str, backbones: dict[str, Backbone]) -> int:
    """L + 1 - layer id of a parameter: 0 for heads and final norms, L + 1 for the embedding.

    `backbones` are those of the module, by name ("" for the module itself).
    """
    for prefix, backbone in backbones.items():
        start = f"{prefix}." if prefix else ""
        if not name.startswith(start):
            continue
        inside = name.removeprefix(start)
        if inside.startswith(_EMBEDDING):
            return backbone.config.depth + 1
        if match := _BLOCK.match(inside):
            return backbone.config.depth - int(match[1])
        return 0
    return 0


def has_weight_decay(name: str, axes: int, decay_tokens: bool = True) -> bool:
    """Whether a parameter is decayed. `axes` is the number of axes of its shape."""
    if axes <= 1 or name.endswith(".bias") or "pos_embed" in name:
        return False
    return decay_tokens or name.rpartition(".")[2] not in _TOKENS
