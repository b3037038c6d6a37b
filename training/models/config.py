"""Sizes of the Sapiens2 encoder: the released ones, and tiny ones that train on two cores.

Widths, depths, heads and the rule for grouped keys and values are those of the released models
(Sapiens2, arXiv:2604.21681, Table 1 and section 4).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

RopeDtype = Literal["bfloat16", "float32"]


@dataclass(frozen=True)
class BackboneConfig:
    """Everything that fixes the architecture of a `Backbone`.

    Attributes:
        width: channels of a token.
        depth: number of transformer blocks.
        heads: query heads; `width` must be 4 * an integer * `heads`, because RoPE splits a head in four.
        ffn_width: inner channels of the SwiGLU feed-forward network; every released size has 4 * width.
        tokenizer_depth: blocks of the window tokenizer of the 4K model; 0 = patches are the tokens.
        image_size: (height, width) in pixels. Nominal: the forward pass takes its grid from the images.
        full_kv_blocks: that many blocks at either end have a key and value head for every query head; the blocks
            between them have half as many.
        registers: learned tokens beside [CLS] that carry no position.
        patch_size: side of a patch in pixels.
        window: side of a tokenizer window in patches.
        eps: epsilon of every RMSNorm.
        layer_scale: initial value of LayerScale, which is on the attention branch only.
        rope_base: base of the RoPE periods.
        rope_dtype: arithmetic of RoPE. "bfloat16" gives the released numerics: angles, queries and keys are rounded
            to bfloat16, whatever the dtype of the model. "float32" does not round.
    """

    width: int
    depth: int
    heads: int
    ffn_width: int
    tokenizer_depth: int = 0
    image_size: tuple[int, int] = (1024, 768)
    full_kv_blocks: int = 8
    registers: int = 8
    patch_size: int = 16
    window: int = 4
    eps: float = 1e-6
    layer_scale: float = 1e-4
    rope_base: float = 100.0
    rope_dtype: RopeDtype = "bfloat16"

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "ffn_width", "patch_size", "window"):
            _whole(name, getattr(self, name), 1)
        for name in ("tokenizer_depth", "full_kv_blocks", "registers"):
            _whole(name, getattr(self, name), 0)
        for name in ("eps", "rope_base"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be above 0")
        if self.width % (4 * self.heads):
            raise ValueError(
                f"width {self.width} does not divide into {self.heads} heads of a multiple of 4 channels "
                f"(RoPE splits a head in four): make width a multiple of {4 * self.heads}"
            )
        if self.heads % 2 and any(self.kv_heads(block) != self.heads for block in range(self.depth)):
            raise ValueError(
                f"heads is {self.heads}, but blocks {self.full_kv_blocks} to {self.depth - self.full_kv_blocks - 1} "
                f"share a key and value head between two query heads: make heads even, or full_kv_blocks at least "
                f"{-(-self.depth // 2)}"
            )
        if self.rope_dtype not in get_args(RopeDtype):
            raise ValueError(
                f"rope_dtype is {self.rope_dtype!r}, allowed are {', '.join(map(repr, get_args(RopeDtype)))}"
            )
        if not isinstance(self.image_size, tuple | list):
            raise ValueError(f"image_size is {self.image_size!r}, but must be (height, width) in pixels")
        size = tuple(self.image_size)
        if len(size) != 2:
            raise ValueError(f"image_size is {self.image_size!r}, but must be (height, width) in pixels")
        for side in size:
            _whole("image_size", side, 1)
        object.__setattr__(self, "image_size", size)
        self.grid_of(*size)

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.width // self.heads

    @property
    def stride(self) -> int:
        """Pixels between tokens in either direction: the patch size, times the window with a tokenizer."""
        return self.patch_size * (self.window if self.tokenizer_depth else 1)

    @property
    def front_tokens(self) -> int:
        """Tokens before those of the image: [CLS] and the registers."""
        return 1 + self.registers

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens at the nominal image size."""
        return self.grid_of(*self.image_size)

    @property
    def tokens(self) -> int:
        """Image tokens at the nominal image size; [CLS] and the registers come on top."""
        rows, columns = self.grid
        return rows * columns

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tokens of an image of height x width pixels.

        Raises:
            ValueError: a side is not a positive multiple of `stride`.
        """
        stride = self.stride
        if height < stride or width < stride or height % stride or width % stride:
            why = f"patches of {self.patch_size} pixels"
            if self.tokenizer_depth:
                why += f" in windows of {self.window} x {self.window}"
            near = tuple(max(stride, round(side / stride) * stride) for side in (height, width))
            raise ValueError(
                f"an image of {height} x {width} pixels (height x width) does not divide into {why}: both sides must "
                f"be multiples of {stride}, for example {near[0]} x {near[1]}"
            )
        return height // stride, width // stride

    def kv_heads(self, block: int) -> int:
        """Key and value heads of a block, counted from 0."""
        if not 0 <= block < self.depth:
            raise IndexError(f"block {block} does not exist: the blocks are 0 to {self.depth - 1}")
        outer = block < self.full_kv_blocks or block >= self.depth - self.full_kv_blocks
        return self.heads if outer else self.heads // 2

    def replace(self, **changes: Any) -> BackboneConfig:
        """A copy with other values. A new `width` without `ffn_width` keeps the ratio of the two.

        Raises:
            TypeError: a name is not a field; the message has the nearest one.
            ValueError: the values do not fit together.
        """
        names = [field.name for field in fields(self)]
        for name in changes:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(names)}"
                raise TypeError(f"BackboneConfig has no field {name!r}: {hint}")
        if "width" in changes and "ffn_width" not in changes:
            changes["ffn_width"] = self.ffn_width * changes["width"] // self.width
        return replace(self, **changes)


def _whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, but must be a whole number of at least {least}")


BACKBONES: dict[str, BackboneConfig] = {
    "sapiens2_0.1b": BackboneConfig(width=768, depth=12, heads=12, ffn_width=3072),
    "sapiens2_0.4b": BackboneConfig(width=1024, depth=24, heads=16, ffn_width=4096),
    "sapiens2_0.8b": BackboneConfig(width=1280, depth=32, heads=16, ffn_width=5120),
    "sapiens2_1b": BackboneConfig(width=1536, depth=40, heads=24, ffn_width=6144),
    "sapiens2_1b_4k": BackboneConfig(
        width=1536, depth=40, heads=24, ffn_width=6144, tokenizer_depth=4, image_size=(4096, 3072)
    ),
    "sapiens2_5b": BackboneConfig(width=2432, depth=56, heads=32, ffn_width=9728),
    # Ours, not released: every kind of block in a few seconds of training on two cores.
    "tiny": BackboneConfig(width=192, depth=6, heads=4, ffn_width=768, image_size=(256, 192), full_kv_blocks=2),
    "tiny_4k": BackboneConfig(
        width=192, depth=6, heads=4, ffn_width=768, tokenizer_depth=1, image_size=(512, 384), full_kv_blocks=2
    ),
}
"""Every backbone by name."""
