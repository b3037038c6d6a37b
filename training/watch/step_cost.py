"""Arithmetic of one pretraining step per training image, from configurations alone.

Model FLOPs, as model-FLOPs utilisation wants them: matrix products only (see `training.models.cost`), each
multiply-accumulate two operations; a backward pass costs twice its forward pass; what activation checkpointing computes
again is not counted. The images themselves need no gradient, so that the backward pass of the patch embedding is one
product instead of two.

What runs for one training image of V global and L local views:

    student   V masked global views, L whole local views     forward and backward
    teacher   V whole global views                           forward
    decoder   V views: visible tokens in, masked ones out    forward and backward
    heads     CLS of V + L student and of V teacher views    forward and backward / forward
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from training.models.config import BackboneConfig
from training.models.cost import backbone_macs
from training.models.decoder import DecoderConfig
from training.models.projection import ProjectionConfig


@dataclass(frozen=True)
class StepCost:
    """What one training image costs."""

    flops: dict[str, int]
    """By part: teacher, student_globals, student_locals, decoder, projection. Parts that do not run are 0."""
    student_tokens: int
    """Image tokens that the student encodes: the visible ones of the global views and all of the local views."""
    teacher_tokens: int
    """Image tokens that the teacher encodes."""

    @property
    def total_flops(self) -> int:
        """Of the whole step."""
        return sum(self.flops.values())

    @property
    def tokens(self) -> int:
        """Image tokens that pass an encoder, the student's and the teacher's. [CLS], registers and the decoder's tokens
        are not counted: Sapiens (arXiv:2408.12569) counts its 1.2 T pretraining tokens in patches, too."""
        return self.student_tokens + self.teacher_tokens


def step_cost(
    backbone: BackboneConfig,
    decoder: DecoderConfig | None,
    projection: ProjectionConfig | None,
    *,
    visible: int | None,
    global_size: tuple[int, int] | None = None,
    local_size: tuple[int, int] | None = None,
    global_views: int = 2,
    local_views: int = 4,
    patch_distillation: bool = False,
) -> StepCost:
    """The cost of one training image of the joint objective, or of a part of it.

    Args:
        backbone: of student and teacher.
        decoder: None = no masked reconstruction.
        projection: None = no self-distillation: then there is neither a teacher nor a local view.
        visible: image tokens of a global view that the student sees; None = all.
        global_size: (height, width) of a global view in pixels; None = the backbone's.
        local_size: likewise of a local view; may be None when there are none.
        global_views: V, at least 1.
        local_views: L, 0 or more.
        patch_distillation: the projection head also runs on the student's visible tokens and on the teacher's tokens
            at the same places.

    Raises:
        ValueError: a value is outside of its range, or a size does not divide into tokens.
    """
    if global_views < 1 or local_views < 0:
        raise ValueError(
            f"there are {global_views} global and {local_views} local views; give at least 1 global and 0 local views"
        )
    rows, columns = backbone.grid_of(*(global_size or backbone.image_size))
    tokens = rows * columns
    seen = tokens if visible is None else visible
    if not 1 <= seen <= tokens:
        raise ValueError(f"visible is {seen}; a global view has {tokens} tokens, so give 1 to {tokens}")
    if projection is None:
        local_views = 0
    local_tokens = 0
    if local_views:
        if local_size is None:
            raise ValueError(f"there are {local_views} local views without a size: give local_size = (height, width)")
        local_rows, local_columns = backbone.grid_of(*local_size)
        local_tokens = local_rows * local_columns
    teacher_views = 0 if projection is None else global_views
    flops = {
        "teacher": teacher_views * 2 * sum(backbone_macs(backbone, tokens).values()),
        "student_globals": global_views * _training_flops(backbone, seen),
        "student_locals": local_views * _training_flops(backbone, local_tokens) if local_views else 0,
        "decoder": 0 if decoder is None else global_views * 6 * decoder_macs(decoder, tokens, seen),
        "projection": 0,
    }
    if projection is not None:
        patches = global_views * seen if patch_distillation else 0
        student, teacher = global_views + local_views + patches, global_views + patches
        flops["projection"] = (6 * student + 2 * teacher) * projection_macs(projection)
    return StepCost(
        flops=flops,
        student_tokens=global_views * seen + local_views * local_tokens,
        teacher_tokens=teacher_views * tokens,
    )


def decoder_macs(config: DecoderConfig, tokens: int, visible: int) -> int:
    """Multiply-accumulates of a forward pass of `PretrainDecoder(..., masked_only=True)` for one view.

    Of T = tokens + 1 (CLS) in width D with inner width F, a block has T (4 D^2 + 2 D F) in its linear layers and
    2 T^2 D in attention. The last block has queries, and everything behind attention, for the masked tokens only.

    Args:
        config: the decoder.
        tokens: of the grid.
        visible: of them, encoded by the student; the rest is predicted.
    """
    width, inner = config.width, config.width * config.mlp_ratio
    sequence, masked = tokens + 1, tokens - visible
    block = sequence * (4 * width**2 + 2 * width * inner) + 2 * sequence**2 * width
    last = sequence * 3 * width**2 + masked * (width**2 + 2 * width * inner) + 2 * masked * sequence * width
    embed = (visible + 1) * config.encoder_width * width
    return embed + (config.depth - 1) * block + last + masked * width * config.outputs


def projection_macs(config: ProjectionConfig) -> int:
    """Multiply-accumulates of a forward pass of the projection head for one CLS token, the last layer included."""
    widths = [config.in_width, *[config.hidden] * (config.layers - 1), config.bottleneck, config.prototypes]
    return sum(inputs * outputs for inputs, outputs in pairwise(widths))


def _training_flops(config: BackboneConfig, visible: int) -> int:
    """Forward and backward of the backbone over `visible` tokens of one view."""
    macs = backbone_macs(config, visible)
    return 6 * sum(macs.values()) - 2 * macs["patch_embed"]
