"""Which task model a checkpoint in released names holds, read off its tensors' shapes.

Everything but three things has a shape: the size of the images (that of the zoo's backbone with these shapes, else it
has to be given), the base of RoPE (100 always; `load_weights` compares the periods), and pointmap's token grid, of
which the shapes have only the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from training.models.config import BACKBONES, BackboneConfig
from training.models.convert_transformers import detect_in_memory
from training.models.heads import TASKS, HeadConfig
from training.models.heads.config import (
    AlbedoHeadConfig,
    NormalHeadConfig,
    PointmapHeadConfig,
    PoseHeadConfig,
    SegmentationHeadConfig,
)
from training.models.task_model import BACKBONES_WITH_HEADS, task_head_config
from training.models.tensor_files import WeightsError, open_tensors
from training.tasks.frames import Size

Shapes = Mapping[str, tuple[int, ...]]

_HEAD = "decode_head."
_DENSE: dict[str, type[NormalHeadConfig] | type[AlbedoHeadConfig] | type[PointmapHeadConfig]] = {
    "normal": NormalHeadConfig,
    "albedo": AlbedoHeadConfig,
    "pointmap": PointmapHeadConfig,
}


def architecture(
    task: str, weights: str | Path, backbone: str | None = None, size: Size | None = None
) -> tuple[BackboneConfig, HeadConfig]:
    """The configurations of encoder and head that fit a checkpoint.

    Args:
        task: one of `heads.TASKS`.
        weights: as `load_weights` takes them.
        backbone: a name of the zoo; None: by the shapes. Needed for the names that transformers has in memory.
        size: (height, width) in pixels of what the network sees; None: of the backbone in the zoo.

    Raises:
        ValueError: no such task or backbone, or a size that does not fit.
        WeightsError: the file holds another task, a bare backbone or names that say nothing, or no size is known.
    """
    if task not in TASKS:
        raise ValueError(f"there is no task {task!r}; task is one of {', '.join(TASKS)}")
    if backbone is not None and backbone not in BACKBONES:
        raise ValueError(f"there is no backbone {backbone!r}; the backbones are {', '.join(BACKBONES)}")
    with open_tensors(weights) as stored:
        shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in stored.tensors.items()}
    if backbone in BACKBONES_WITH_HEADS and detect_in_memory(shapes):
        # load_weights knows these names, and says what is missing.
        encoder = BACKBONES[backbone].replace(image_size=size or BACKBONES[backbone].image_size)
        return encoder, task_head_config(task, backbone, encoder)
    if not any(name.startswith("backbone.blocks.") for name in shapes) or f"{_HEAD}{_last(task)}" not in shapes:
        raise WeightsError(f"{weights}: {_why_not(task, shapes)}")
    try:
        encoder = _backbone(shapes) if backbone is None else BACKBONES[backbone]
        named = next((config for config in BACKBONES.values() if _same(config, encoder)), None)
        if size is None and named is None:
            raise WeightsError(
                f"{weights}: its encoder (width {encoder.width}, {encoder.depth} blocks) is none of the zoo's, so the "
                "size of its images is not known: give size=(height, width) in pixels (--size), as it was trained"
            )
        encoder = replace(named or encoder, image_size=size or (named or encoder).image_size)
        return encoder, _head(task, shapes, encoder)
    except KeyError as error:
        raise WeightsError(f"{weights}: {error.args[0]} is missing, so that no model can be built") from None


def _last(task: str) -> str:
    return f"conv_{task}.weight"


def _why_not(task: str, shapes: Shapes) -> str:
    others = [other for other in TASKS if f"{_HEAD}{_last(other)}" in shapes]
    if others:
        return f"these are weights for {others[0]}, not for {task}; load them as task {others[0]!r}"
    if any(name.startswith(("blocks.", "backbone.blocks.")) for name in shapes):
        return (
            f"a backbone without a head for {task}: fine-tune it first (`finetune` in the configuration), or give a "
            "task checkpoint"
        )
    some = ", ".join(sorted(shapes)[:3])
    return (
        f"no head for {task} in released names, its names are {some}, ...: give a task checkpoint; for transformers' "
        f"names also backbone=, one of {', '.join(BACKBONES_WITH_HEADS)}"
    )


def _count(shapes: Shapes, name: Callable[[int], str], step: int = 1) -> int:
    """How many layers there are, at 0, step, 2 step, ..."""
    number = 0
    while name(number * step) in shapes:
        number += 1
    return number


def _backbone(shapes: Shapes) -> BackboneConfig:
    def block(number: int, leaf: str) -> tuple[int, ...]:
        return shapes[f"backbone.blocks.{number}.{leaf}"]

    width, _, patch, _ = shapes["backbone.patch_embed.projection.weight"]
    depth = _count(shapes, lambda number: f"backbone.blocks.{number}.ln1.weight")
    full = [block(number, "attn.wk.weight")[0] == width for number in range(depth)]
    # Outer blocks have a key and value head for every query head; with no other blocks any number does.
    outer = full.index(False) if False in full else depth
    return BackboneConfig(
        width=width,
        depth=depth,
        heads=width // block(0, "attn.q_norm.weight")[0],
        ffn_width=block(0, "ffn.w3.weight")[1],
        tokenizer_depth=_count(shapes, lambda number: f"backbone.tokenizer.blocks.{number}.ln1.weight"),
        image_size=(64 * patch, 48 * patch),
        full_kv_blocks=outer,
        registers=shapes["backbone.storage_tokens"][1],
        patch_size=patch,
    )


def _same(one: BackboneConfig, other: BackboneConfig) -> bool:
    names = ("width", "depth", "heads", "ffn_width", "tokenizer_depth", "registers", "patch_size")
    return all(getattr(one, name) == getattr(other, name) for name in names) and all(
        one.kv_heads(block) == other.kv_heads(block) for block in range(one.depth)
    )


def _head(task: str, shapes: Shapes, encoder: BackboneConfig) -> HeadConfig:
    def get(name: str) -> tuple[int, ...]:
        return shapes[f"{_HEAD}{name}"]

    def stack(name: str, axis: int) -> tuple[int, ...]:
        """Channels of a stack of convolution, norm and activation."""
        count = _count(shapes, lambda number: f"{_HEAD}{name}.{number}.weight", 3)
        return tuple(get(f"{name}.{3 * number}.weight")[axis] for number in range(count))

    outputs = get(_last(task))[0]
    conv = stack("conv_layers", 0)
    kernel = get("conv_layers.0.weight")[-1] if conv else 1
    if task in ("pose", "seg"):
        deconv_kernel = get("deconv_layers.0.weight")[-1]
        kind = PoseHeadConfig if task == "pose" else SegmentationHeadConfig
        return kind(encoder.width, stack("deconv_layers", 1), conv, outputs, deconv_kernel, kernel)
    blocks = _count(shapes, lambda number: f"{_HEAD}upsample_blocks.{number}.0.weight")
    upsample = tuple(get(f"upsample_blocks.{number}.0.weight")[0] // 4 for number in range(blocks))
    plain = _DENSE[task](encoder.width, upsample, conv, outputs, kernel)
    if not isinstance(plain, PointmapHeadConfig):
        return plain
    hidden = _count(shapes, lambda number: f"{_HEAD}scale_final_layer.{number + 1}.weight", 2) - 1
    head = replace(
        plain,
        scale_channels=stack("scale_conv_layers", 0),
        scale_hidden=tuple(get(f"scale_final_layer.{2 * number + 1}.weight")[0] for number in range(hidden)),
        grid=encoder.grid,
    )
    height, width = head.scale_grid
    found, wanted = get("scale_final_layer.1.weight")[1], head.scale_channels[-1] * height * width
    if found != wanted:
        raise WeightsError(
            f"the scale branch takes {found} numbers, but images of {encoder.image_size[0]} x {encoder.image_size[1]} "
            f"(height x width) give {wanted}: give size=(height, width) as the weights were trained"
        )
    return head
