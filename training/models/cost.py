"""Parameters, tokens, arithmetic and memory of a model, from its configuration alone.

Arithmetic counts matrix products: linear layers, convolutions, attention scores and attention-weighted values. One
multiply-accumulate (MAC) is two floating-point operations (FLOPs). Left out: norms, RoPE, softmax, activations, biases,
residual sums and resampling, which together are about 1 % at the released sizes. Published tables for this family
report MACs without attention as "FLOPs" (Sapiens2, arXiv:2604.21681, Table 1), so they are about half to a third of the
FLOPs here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.models.config import BackboneConfig
from training.models.head_cost import head_activation_elements, head_layers
from training.models.heads import HeadConfig
from training.models.tokenizer import CHUNK

BF16, FP32 = 2, 4


@dataclass(frozen=True)
class Cost:
    """What one image costs. Memory is in bytes."""

    backbone_parameters: int
    head_parameters: int
    image_size: tuple[int, int]
    tokens: int
    """Image tokens at this size, all of them."""
    visible: int
    """Image tokens that are encoded; [CLS] and the registers come on top."""
    macs: dict[str, int]
    """Of a forward pass, by part: patch_embed, tokenizer, blocks_linear, blocks_attention, head."""
    activations: int
    """Kept for the backward pass in bf16, every block's activations."""
    activations_checkpointed: int
    """The same with checkpointing per block: inputs of the blocks, and at the peak the inside of one of them."""

    @property
    def parameters(self) -> int:
        """Of the whole model; RoPE periods are a buffer and not counted."""
        return self.backbone_parameters + self.head_parameters

    @property
    def forward_macs(self) -> int:
        """Multiply-accumulates of a forward pass."""
        return sum(self.macs.values())

    @property
    def forward_flops(self) -> int:
        """Floating-point operations of a forward pass: twice the MACs."""
        return 2 * self.forward_macs

    @property
    def training_flops(self) -> int:
        """Model FLOPs of forward and backward: three times the forward. Recomputation is not counted, as usual for
        model-FLOPs utilisation; block checkpointing adds about one forward pass of work."""
        return 3 * self.forward_flops

    @property
    def inference_memory(self) -> dict[str, int]:
        """Weights by dtype."""
        return {"bfloat16": BF16 * self.parameters, "float32": FP32 * self.parameters}

    @property
    def training_state(self) -> int:
        """AdamW in mixed precision, without activations: bf16 weights and gradients, float32 master weights and two
        moments, 16 bytes a parameter. ZeRO-3 divides it by the number of ranks."""
        return (2 * BF16 + 3 * FP32) * self.parameters


def model_cost(
    config: BackboneConfig,
    head: HeadConfig | None = None,
    image_size: tuple[int, int] | None = None,
    keep_ratio: float = 1.0,
) -> Cost:
    """The cost of one image.

    Args:
        config: the backbone.
        head: on its feature map, or None.
        image_size: (height, width); None = the configuration's.
        keep_ratio: visible share of the image tokens, above 0 and at most 1. Below 1 there can be no head.

    Raises:
        ValueError: a value is outside of its range, or the image does not divide into tokens.
    """
    if not 0 < keep_ratio <= 1:
        raise ValueError(f"keep_ratio is {keep_ratio}; give the visible share of the tokens, above 0 and at most 1")
    if head is not None and keep_ratio < 1:
        raise ValueError(f"keep_ratio is {keep_ratio}, but a head needs the whole feature map: give 1, or no head")
    size = config.image_size if image_size is None else image_size
    grid = config.grid_of(*size)
    tokens = grid[0] * grid[1]
    visible = max(1, round(keep_ratio * tokens))
    macs = backbone_macs(config, visible)
    kept, checkpointed = backbone_activations(config, visible)
    head_parameters = head_activations = 0
    if head is not None:
        layers = head_layers(head, grid)
        macs["head"] = sum(layer.macs for layer in layers)
        head_parameters = sum(layer.parameters for layer in layers)
        head_activations = BF16 * head_activation_elements(head, grid)
    return Cost(
        backbone_parameters=backbone_parameters(config),
        head_parameters=head_parameters,
        image_size=size,
        tokens=tokens,
        visible=visible,
        macs=macs,
        activations=kept + head_activations,
        activations_checkpointed=checkpointed + head_activations,
    )


def backbone_parameters(config: BackboneConfig) -> int:
    """Number of parameters of a backbone."""
    width, kv_widths = config.width, [config.kv_heads(i) * config.head_dim for i in range(config.depth)]
    feed_forward = 3 * width * config.ffn_width + 2 * config.ffn_width + width
    count = width * (1 + config.registers) + width * 3 * config.patch_size**2 + width + width
    for kv_width in kv_widths:
        attention = 2 * width * width + 2 * width + 2 * kv_width * (width + 1)
        # Two norms and LayerScale; query and key norm.
        count += attention + feed_forward + 3 * width + 2 * config.head_dim
    if config.tokenizer_depth:
        count += width * (2 + config.window**2)
        count += config.tokenizer_depth * (4 * width * (width + 1) + feed_forward + 2 * width)
    return count


def backbone_macs(config: BackboneConfig, visible: int) -> dict[str, int]:
    """Multiply-accumulates of a forward pass over `visible` image tokens, by part.

    With N = visible + 9 tokens, width D, key and value width E and inner width F, a block has N (2 D^2 + 2 D E + 3 D F)
    in its linear layers and 2 N^2 D in attention. Patches outside of the visible tokens are not computed.
    """
    width, hidden = config.width, config.ffn_width
    sequence = visible + config.front_tokens
    cells = config.window**2 if config.tokenizer_depth else 1
    macs = {"patch_embed": visible * cells * width * 3 * config.patch_size**2}
    if config.tokenizer_depth:
        inside = cells + 1
        block = inside * (4 * width**2 + 3 * width * hidden) + 2 * inside**2 * width
        # The last block computes the window's own token only; keys and values need all.
        last = 2 * width**2 + 2 * inside * width**2 + 3 * width * hidden + 2 * inside * width
        macs["tokenizer"] = visible * ((config.tokenizer_depth - 1) * block + last)
    macs["blocks_linear"] = sum(
        sequence * (2 * width**2 + 2 * width * config.kv_heads(i) * config.head_dim + 3 * width * hidden)
        for i in range(config.depth)
    )
    macs["blocks_attention"] = config.depth * 2 * sequence**2 * width
    return macs


def block_activation_bytes(config: BackboneConfig, kv_heads: int, tokens: int, in_tokenizer: bool = False) -> int:
    """Bytes that one block keeps for its backward pass over `tokens` tokens in bf16.

    Values per token: 2 D (inputs of both norms), 2 D (inputs of the linear layers behind them), q before its norm and
    after RoPE 2 D, k likewise 2 E, v E, attention output D, its projection D (for LayerScale), both halves of the
    feed-forward input 2 F, their product F: 8 D + 3 E + 3 F. In float32: four norms' factors and the
    logarithms of softmax sums, 2 + h + kv + h. A tokenizer block has no norm or RoPE on q and k and no LayerScale:
    2 D + E less. What a model in bf16 keeps on the CPU is within 10 % of this; under autocast with float32 weights it
    is about 1.6 times as much.
    """
    width, kv_width = config.width, kv_heads * config.head_dim
    values = 8 * width + 3 * kv_width + 3 * config.ffn_width
    factors = 2 + 2 * config.heads + kv_heads
    if in_tokenizer:
        values -= 2 * width + kv_width
        factors -= config.heads + kv_heads
    return tokens * (BF16 * values + FP32 * factors)


def backbone_activations(config: BackboneConfig, visible: int) -> tuple[int, int]:
    """Bytes kept for the backward pass of one image in bf16: without and with checkpointing of the blocks.

    Counted: cut-out patches, inputs of the tokenizer (which is always checkpointed, in chunks of 1024 windows), the
    blocks, the final norm, the tables of RoPE; with checkpointing the inputs of the blocks and, while one block or one
    tokenizer chunk is computed again, its inside. Not counted: gradients of activations (a few times N F at the peak),
    the loss, workspace of kernels and fragmentation.
    """
    width = config.width
    sequence = visible + config.front_tokens
    cells = config.window**2 if config.tokenizer_depth else 1
    base = BF16 * visible * cells * 3 * config.patch_size**2
    chunk = 0
    if config.tokenizer_depth:
        base += BF16 * visible * cells * width
        block = block_activation_bytes(config, config.heads, min(visible, CHUNK) * (cells + 1), in_tokenizer=True)
        chunk = config.tokenizer_depth * block
    base += sequence * (BF16 * width + FP32)
    base += BF16 * sequence * config.head_dim  # cosines and sines
    blocks = [block_activation_bytes(config, config.kv_heads(i), sequence) for i in range(config.depth)]
    # The tokenizer's turn comes when the blocks are done: in the backward pass their activations are free by then.
    everything = base + max(sum(blocks), chunk)
    inputs = BF16 * config.depth * sequence * width
    return everything, base + max(inputs + max(blocks), chunk)


def readable_bytes(count: int) -> str:
    """Bytes in decimal units, e.g. "5.1 GB"."""
    return _scaled(count, "B", ("", "k", "M", "G", "T"))


def readable_count(count: int) -> str:
    """A large number with three digits, e.g. "395 M" or "1.26 T"."""
    return _scaled(count, "", ("", "k", "M", "G", "T", "P"))


def _scaled(count: float, unit: str, steps: tuple[str, ...]) -> str:
    power = min(len(steps) - 1, int(math.log10(count) // 3)) if count >= 1 else 0
    value = count / 1000**power
    digits = max(0, 2 - int(math.log10(value))) if value >= 1 else 0
    return f"{value:.{digits}f} {steps[power]}{unit}".strip()
