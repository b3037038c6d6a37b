"""Names and configuration of Hugging Face transformers' Sapiens2 models.

`save_pretrained` writes the released names (it converts on the way), without the RoPE periods, which both sides
compute. Inside a model, and in files saved with `save_original_format=False`, names differ and w12 is split in two;
such files are read as well. transformers has a backbone and heads for pose, segmentation, normals and pointmaps; it has
no window tokenizer (4K), no albedo head and no decoder, so these cannot be written in its format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from training.models.backbone import Backbone
from training.models.config import BackboneConfig
from training.models.heads import (
    DenseHeadConfig,
    HeadConfig,
    NormalHeadConfig,
    PointmapHeadConfig,
    PoseHeadConfig,
    SegmentationHeadConfig,
)
from training.models.task_model import TaskModel
from training.models.tensor_files import WeightsError

NAME = "transformers"
NAME_IN_MEMORY = "transformers (names inside a model)"

_ARCHITECTURES: dict[type[Any], str] = {
    PoseHeadConfig: "Sapiens2ForPoseEstimation",
    SegmentationHeadConfig: "Sapiens2ForSemanticSegmentation",
    NormalHeadConfig: "Sapiens2ForNormalEstimation",
    PointmapHeadConfig: "Sapiens2ForPointmapEstimation",
}
_TOP = {
    "cls_token": "embeddings.cls_token",
    "storage_tokens": "embeddings.register_tokens",
    "patch_embed.projection.weight": "embeddings.patch_embeddings.weight",
    "patch_embed.projection.bias": "embeddings.patch_embeddings.bias",
    "ln1.weight": "norm.weight",
}
_BLOCK = {
    "ln1": ("norm1",),
    "ln2": ("norm2",),
    "attn.wq": ("attention.q_proj",),
    "attn.wk": ("attention.k_proj",),
    "attn.wv": ("attention.v_proj",),
    "attn.q_norm": ("attention.q_norm",),
    "attn.k_norm": ("attention.k_norm",),
    "attn.proj": ("attention.o_proj",),
    "ffn.w12": ("mlp.gate_proj", "mlp.up_proj"),
    "ffn.w3": ("mlp.down_proj",),
}
_IN_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)\.(weight|bias)")
_HEAD_LAYERS = re.compile(
    r"(deconv_layers|conv_layers|scale_conv_layers|upsample_blocks)\.(\d+)(?:\.0)?\.(weight|bias)"
)


def detect_in_memory(names: Iterable[str]) -> bool:
    """Whether these tensor names are those inside a transformers model."""
    return any(name.endswith("embeddings.register_tokens") for name in names)


def sources(key: str) -> tuple[str, ...] | None:
    """The tensor of a `save_pretrained` file for `key`, a name of ours; None where transformers has nothing for it."""
    return (key,) if sources_in_memory(key) else None


def sources_in_memory(key: str) -> tuple[str, ...] | None:
    """The tensors inside a model for `key`, to be joined along the first axis; None where transformers has none.

    Backbone names are those of `Sapiens2Model`; the task models have them below `model.`.
    """
    if key in _TOP:
        return (_TOP[key],)
    if match := _IN_BLOCK.fullmatch(key):
        block, layer, kind = match.groups()
        if layer == "attn.gamma" and kind == "weight":
            return (f"model.layer.{block}.layer_scale1.lambda1",)
        return tuple(f"model.layer.{block}.{part}.{kind}" for part in _BLOCK.get(layer, ())) or None
    if key.startswith("decode_head."):
        return _head_source(key.removeprefix("decode_head."))
    return None


def _head_source(key: str) -> tuple[str, ...] | None:
    if match := re.fullmatch(r"conv_(?:pose|seg|normal|pointmap)\.(weight|bias)", key):
        return (f"decode_head.predictor.{match[1]}",)
    if match := re.fullmatch(r"input_conv\.0\.(weight|bias)", key):
        return (f"decode_head.input_conv.convolution.{match[1]}",)
    if match := _HEAD_LAYERS.fullmatch(key):
        kind, place, leaf = match.groups()
        if kind == "upsample_blocks":
            return (f"decode_head.upsample_layers.{place}.convolution.{leaf}",)
        number = int(place) // 3
        if kind == "deconv_layers":
            return (f"decode_head.upsample_layers.{number}.convolution.{leaf}",)
        owner = "scale_head.conv_layers" if kind == "scale_conv_layers" else "decode_head.conv_layers"
        return (f"{owner}.{number}.convolution.{leaf}",)
    if match := re.fullmatch(r"scale_final_layer\.(\d+)\.(weight|bias)", key):
        # The released scale branch: two hidden layers, then the output.
        layer = {"1": "block1.layers.0", "3": "block2.layers.0", "5": "proj"}.get(match[1])
        return (f"scale_head.predictor.{layer}.{match[2]}",) if layer else None
    return None


def config_of(module: nn.Module) -> dict[str, Any]:
    """config.json for a `Backbone` or a `TaskModel`. WeightsError where transformers has no such model."""
    if isinstance(module, TaskModel) and isinstance(module.backbone, Backbone):
        backbone, head = module.backbone.config, getattr(module.decode_head, "config", None)
    elif isinstance(module, Backbone):
        backbone, head = module.config, None
    else:
        raise WeightsError(f"transformers has no model for a {type(module).__name__}; give a Backbone or a TaskModel")
    config: dict[str, Any] = {
        "model_type": "sapiens2",
        "architectures": ["Sapiens2Model"],
        "attention_dropout": 0.0,
        "drop_path_rate": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "num_channels": 3,
        "use_mask_token": False,
        # Its default would draw a random scale of the positions in training; the released models have none.
        "pos_embed_jitter": None,
        "pos_embed_rescale": None,
        "pos_embed_shift": None,
        **_fields(backbone),
    }
    if head is None:
        return config
    architecture = _ARCHITECTURES.get(type(head))
    if architecture is None:
        raise WeightsError(
            f"transformers has no Sapiens2 model with a {type(module.decode_head).__name__}; it has "
            f'{", ".join(_ARCHITECTURES.values())}. Save with format="sapiens2", or the backbone alone'
        )
    config["architectures"] = [architecture]
    labels = [f"LABEL_{index}" for index in range(head.out_channels)]
    config["id2label"] = {str(index): label for index, label in enumerate(labels)}
    config["label2id"] = {label: index for index, label in enumerate(labels)}
    config["head_config"] = _head_fields(head)
    return config


def _fields(config: BackboneConfig) -> dict[str, Any]:
    """What both sides say about an architecture, under transformers' names."""
    kv_heads = [config.kv_heads(block) for block in range(config.depth)]
    return {
        "hidden_size": config.width,
        "intermediate_size": config.ffn_width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "num_key_value_attention_heads": min(kv_heads),
        "num_key_value_heads_per_layer": kv_heads,
        "num_first_full_attention_layers": config.full_kv_blocks,
        "num_last_full_attention_layers": config.full_kv_blocks,
        "num_register_tokens": config.registers,
        "image_size": list(config.image_size),
        "patch_size": config.patch_size,
        "layerscale_value": config.layer_scale,
        "rms_norm_eps": config.eps,
        "rope_theta": config.rope_base,
        "hidden_act": "silu",
        "query_bias": True,
        "key_bias": True,
        "value_bias": True,
        "proj_bias": True,
        "mlp_bias": True,
        "use_gated_mlp": True,
        "use_qk_norm": True,
    }


def _head_fields(head: HeadConfig) -> dict[str, Any]:
    if isinstance(head, DenseHeadConfig):
        upsample, kernel = head.upsample_channels, 3
    else:
        upsample, kernel = head.deconv_channels, head.deconv_kernel
    fields: dict[str, Any] = {
        "model_type": "sapiens2_head",
        "use_pixel_shuffle": isinstance(head, DenseHeadConfig),
        "upsample_out_channels": list(upsample),
        "upsample_kernel_sizes": [kernel] * len(upsample),
        "conv_out_channels": list(head.conv_channels),
        "conv_kernel_sizes": [head.conv_kernel] * len(head.conv_channels),
    }
    if isinstance(head, PointmapHeadConfig):
        height, width = head.scale_grid
        fields["scale_conv_out_channels"] = list(head.scale_channels)
        fields["scale_conv_kernel_sizes"] = [1] * len(head.scale_channels)
        fields["scale_final_input_size"] = head.scale_channels[-1] * height * width
        fields["scale_final_hidden_sizes"] = list(head.scale_hidden)
    return fields


# Not checked when weights come in: initial values, and what follows from the images or from other fields.
_FREE = {"image_size", "layerscale_value"} | {
    "num_key_value_attention_heads",
    "num_first_full_attention_layers",
    "num_last_full_attention_layers",
}


def differences(stored: Mapping[str, Any], config: BackboneConfig) -> list[str]:
    """What a transformers config.json says otherwise than `config`, one sentence each.

    Shapes do not show the number of heads in all blocks, the RoPE base or the epsilon; this does. Fields that the file
    leaves out are not compared.
    """
    ours = {name: value for name, value in _fields(config).items() if name not in _FREE}
    return [
        f"{name} is {stored[name]} in config.json and {value} in this model"
        for name, value in ours.items()
        if name in stored and stored[name] is not None and stored[name] != value
    ]
