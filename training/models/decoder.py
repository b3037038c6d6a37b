"""The decoder of masked reconstruction: from the encoder's visible tokens to pixels of the masked ones.

Sapiens2 states 8 layers of width 512 (paper, A.1.1); 16 heads, an MLP ratio of 4, fixed sine-cosine positions and a CLS
token that is carried through and dropped are MAE's defaults, which the paper builds on. Blocks are plain pre-norm
transformer blocks as MAE's: LayerNorm (eps 1e-6), GELU, biases everywhere; linear layers start from Xavier-uniform
weights and zero biases, the mask token from a normal of std 0.02. The encoder's register tokens are dropped (our
choice; the paper is silent).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from training.models.initialise import reset_all_parameters
from training.models.layers import Device
from training.models.visible import check_positions

if TYPE_CHECKING:
    from training.models.config import BackboneConfig

_EPS = 1e-6
_FREQUENCY_BASE = 10_000.0


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the decoder; `encoder_width` is the backbone's, `registers` how many of its front tokens follow CLS.

    `pixels` is the side, in pixels, of the square that one token is decoded to: 16 for 1K models; 32 for 4K ones, which
    decode a 4096x3072 image at 2048x1536.
    """

    encoder_width: int
    pixels: int = 16
    width: int = 512
    depth: int = 8
    heads: int = 16
    mlp_ratio: int = 4
    registers: int = 8
    channels: int = 3

    def __post_init__(self) -> None:
        for name in ("encoder_width", "pixels", "width", "depth", "heads", "mlp_ratio", "channels"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"decoder {name} is {value!r}; give a whole number of at least 1")
        if self.registers < 0:
            raise ValueError(f"decoder registers is {self.registers}; give 0 or more")
        if self.width % self.heads:
            raise ValueError(f"decoder width {self.width} must divide by its {self.heads} heads")
        if self.width % 4:
            raise ValueError(f"decoder width {self.width} must divide by 4: sine and cosine, of row and of column")

    @property
    def outputs(self) -> int:
        """Values per token, rows outer, columns, then channels: 768 for 1K models, 3072 for 4K ones."""
        return self.pixels * self.pixels * self.channels

    @classmethod
    def for_backbone(cls, config: BackboneConfig, **overrides: Any) -> DecoderConfig:
        """The published decoder for a backbone: 16x16 pixels per token, with the window tokenizer 32x32.

        A token of the 4K model covers window * patch = 64 pixels a side and is reconstructed at half resolution.
        """
        pixels = config.patch_size if config.tokenizer_depth == 0 else config.patch_size * config.window // 2
        fields = {"encoder_width": config.width, "pixels": pixels, "registers": config.registers} | overrides
        return cls(**fields)

    @classmethod
    def tiny(cls, config: BackboneConfig, **overrides: Any) -> DecoderConfig:
        """A decoder to go with the tiny backbones on two CPU cores: 2 layers of width 96, 3 heads."""
        return cls.for_backbone(config, **({"width": 96, "depth": 2, "heads": 3} | overrides))


def masked_positions(keep: Tensor, tokens: int) -> Tensor:
    """Row-major positions [B, tokens - K] (int64, ascending) that `keep` [B, K] leaves out.

    The order in which `PretrainDecoder(..., masked_only=True)` returns its predictions, so the loss gathers its targets
    with it. No copy to the host and shapes that do not depend on values, so it compiles and does not stall a GPU.
    """
    visible = torch.zeros(keep.shape[0], tokens, dtype=torch.uint8, device=keep.device).scatter_(1, keep, 1)
    return visible.argsort(dim=1, stable=True)[:, : tokens - keep.shape[1]]


def sincos_positions(positions: Tensor, grid: tuple[int, int], width: int) -> Tensor:
    """Fixed 2-D position embeddings at row-major `positions` [...] of a grid (h, w): [..., width], float32.

    Channels: sine of the row, cosine of the row, sine of the column, cosine of the column, width / 4 each, at
    frequencies 10000^(-i / (width / 4)). Only h + w rows of the table are computed.
    """
    quarter = width // 4
    steps = torch.arange(quarter, dtype=torch.float32, device=positions.device)
    frequencies = _FREQUENCY_BASE ** (-steps / quarter)
    index = torch.arange(max(grid), dtype=torch.float32, device=positions.device)
    angles = index[:, None] * frequencies
    table = torch.cat([angles.sin(), angles.cos()], dim=-1)
    rows, columns = positions // grid[1], positions % grid[1]
    return torch.cat([table[rows], table[columns]], dim=-1)


class _Linear(nn.Linear):
    """A linear layer that starts from Xavier-uniform weights and zero bias; drawn while the layer is built."""

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class _Block(nn.Module):
    def __init__(self, config: DecoderConfig, device: Device, dtype: torch.dtype | None) -> None:
        super().__init__()
        width, hidden = config.width, config.width * config.mlp_ratio
        self.heads = config.heads
        self.norm1 = nn.LayerNorm(width, eps=_EPS, device=device, dtype=dtype)
        self.qkv = _Linear(width, 3 * width, device=device, dtype=dtype)
        self.proj = _Linear(width, width, device=device, dtype=dtype)
        self.norm2 = nn.LayerNorm(width, eps=_EPS, device=device, dtype=dtype)
        self.fc1 = _Linear(width, hidden, device=device, dtype=dtype)
        self.fc2 = _Linear(hidden, width, device=device, dtype=dtype)

    def forward(self, x: Tensor, first: int) -> Tensor:
        """[B, T, width] -> [B, T - first, width]: the tokens from `first` on, which attend to all T."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q[:, :, first:], k, v)
        x = x[:, first:] + self.proj(attended.transpose(1, 2).reshape(batch, tokens - first, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class PretrainDecoder(nn.Module):
    """Predicts the pixels of image tokens from the encoder's output on the visible ones."""

    def __init__(self, config: DecoderConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.config = config
        self.embed = _Linear(config.encoder_width, config.width, device=device, dtype=dtype)
        self.mask_token = nn.Parameter(torch.empty(1, 1, config.width, device=device, dtype=dtype))
        self.blocks = nn.ModuleList(_Block(config, device, dtype) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=_EPS, device=device, dtype=dtype)
        self.pred = _Linear(config.width, config.outputs, device=device, dtype=dtype)
        self._checkpoint_blocks = False
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the mask token anew; the layers below draw their own weights."""
        nn.init.normal_(self.mask_token, std=0.02)

    def init_weights(self) -> None:
        """Draw all weights anew, as on construction."""
        reset_all_parameters(self)

    def set_activation_checkpointing(self, mode: str) -> None:
        """Choose what training keeps: "none" = every activation, "blocks" = the inputs of the blocks only."""
        if mode not in ("none", "blocks"):
            raise ValueError(f"activation checkpointing is {mode!r}; give 'none' or 'blocks'")
        self._checkpoint_blocks = mode == "blocks"

    def forward(self, encoded: Tensor, keep: Tensor, grid: tuple[int, int], masked_only: bool = False) -> Tensor:
        """Predicted (per-patch normalised) pixels.

        Args:
            encoded: the encoder's raw output on the visible tokens, [B, 1 + registers + K, encoder_width]: CLS,
                registers, then the tokens in the order of `keep`.
            keep: int64 [B, K], row-major positions of the visible tokens in the grid, any order, distinct within a row
                (not checked: that would stall a GPU).
            grid: (height, width) in tokens.
            masked_only: predict for the masked tokens only, which is all the loss needs and saves the last layers'
                work for the visible ones.

        Returns:
            [B, N, outputs] with N = height * width in row-major order, or, masked only, [B, N - K, outputs] in the
            ascending order of `masked_positions(keep, N)`.

        Raises:
            ValueError: shapes that do not fit together.
        """
        tokens = self._check(encoded, keep, grid)
        visible = keep.shape[1]
        masked = masked_positions(keep, tokens)
        # Attention does not see order, only the position embeddings do. So the masked tokens simply follow the visible
        # ones, and neither a scatter on the way in nor a gather on the way out (masked only) is needed.
        order = torch.cat([keep, masked], dim=1)
        cls = self.embed(encoded[:, :1])
        seen = self.embed(encoded[:, 1 + self.config.registers :])
        hidden = self.mask_token.to(seen.dtype).expand(len(keep), tokens - visible, -1)
        positions = sincos_positions(order, grid, self.config.width).to(seen.dtype)
        x = torch.cat([cls, torch.cat([seen, hidden], dim=1) + positions], dim=1)

        # The last block's queries are needed only for the tokens that are predicted.
        first = 1 + visible if masked_only else 1
        recompute = self._checkpoint_blocks and self.training and torch.is_grad_enabled()
        for index, block in enumerate(self.blocks):
            start = first if index == self.config.depth - 1 else 0
            x = checkpoint(block, x, start, use_reentrant=False) if recompute else block(x, start)
        out = self.pred(self.norm(x))
        if masked_only:
            return out
        return torch.zeros_like(out).scatter(1, order[..., None].expand_as(out), out)

    def _check(self, encoded: Tensor, keep: Tensor, grid: tuple[int, int]) -> int:
        """How many tokens the grid has; ValueError for shapes that do not fit together."""
        config = self.config
        tokens = grid[0] * grid[1]
        if keep.ndim != 2 or keep.dtype != torch.int64:
            raise ValueError(
                f"keep is {keep.dtype} of shape {tuple(keep.shape)}; give int64 positions [batch, visible]"
            )
        expected = (keep.shape[0], 1 + config.registers + keep.shape[1], config.encoder_width)
        if tuple(encoded.shape) != expected:
            raise ValueError(
                f"encoded has shape {tuple(encoded.shape)}; with keep {tuple(keep.shape)} the decoder takes "
                f'{expected}: CLS, {config.registers} registers and the visible tokens, the backbone\'s out_type="raw"'
            )
        if keep.shape[1] > tokens:
            raise ValueError(f"keep names {keep.shape[1]} tokens, but a grid of {grid[0]}x{grid[1]} has {tokens}")
        check_positions(keep, tokens)
        return tokens
