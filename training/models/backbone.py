"""The Sapiens2 encoder: a plain vision transformer, with a window tokenizer in front for 4K images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.models.attention import Block
from training.models.config import BackboneConfig
from training.models.initialise import reset_all_parameters
from training.models.layers import Device, RMSNorm, truncated_normal_
from training.models.rope import RopeEmbed
from training.models.tokenizer import PatchEmbed, Tokenizer
from training.models.visible import check_positions

OutType = Literal["raw", "cls", "featmap"]
Checkpointing = Literal["none", "blocks"]


class Backbone(nn.Module):
    """Encoder of images. Names and shapes of the state dict are those of the released pretrained weights.

    Constructed with random weights drawn from torch's generator, on any device: with `device="meta"` nothing is
    allocated; then `to_empty(device=...)` and `init_weights()`, or loading a checkpoint, fills it. Inside DeepSpeed's
    `zero.Init` every layer is initialised, then taken apart, one by one.

    Args:
        config: the architecture, for example `BACKBONES["sapiens2_0.4b"]`.
        device: where the parameters are made.
        dtype: of the parameters; the RoPE periods have their own (`config.rope_dtype`).
    """

    def __init__(self, config: BackboneConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.config = config
        self.embed_dim = config.width
        self._checkpointing: Checkpointing = "none"
        self.cls_token = nn.Parameter(torch.empty(1, 1, config.width, device=device, dtype=dtype))
        self.storage_tokens = nn.Parameter(torch.empty(1, config.registers, config.width, device=device, dtype=dtype))
        self.patch_embed = PatchEmbed(config, device, dtype)
        self.tokenizer = Tokenizer(config, device, dtype) if config.tokenizer_depth else None
        self.rope_embed = RopeEmbed(config, device)
        self.blocks = nn.ModuleList(
            Block(
                config.width,
                config.heads,
                config.kv_heads(block),
                config.ffn_width,
                qk_norm=True,
                layer_scale=config.layer_scale,
                eps=config.eps,
                device=device,
                dtype=dtype,
            )
            for block in range(config.depth)
        )
        self.ln1 = RMSNorm(config.width, config.eps, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new [CLS] and register tokens from torch's generator; everything else is left alone."""
        truncated_normal_(self.cls_token)
        truncated_normal_(self.storage_tokens)

    def init_weights(self) -> None:
        """Initialise everything, RoPE periods included, from torch's generator, in the order of the constructor.

        Matrices, the patch projection and learned tokens: normal, std 0.02, cut at +-2; biases 0; norms 1; LayerScale
        at `config.layer_scale`.
        """
        reset_all_parameters(self)

    def set_activation_checkpointing(self, mode: Checkpointing) -> None:
        """Choose what training keeps: "none" = every activation, "blocks" = the inputs of the blocks only."""
        if mode not in get_args(Checkpointing):
            raise ValueError(f"mode is {mode!r}, allowed are {', '.join(map(repr, get_args(Checkpointing)))}")
        self._checkpointing = mode

    def forward(
        self,
        images: Tensor,
        keep: Tensor | None = None,
        out_indices: Sequence[int] = (-1,),
        out_type: OutType = "raw",
    ) -> tuple[Tensor, ...]:
        """Encode images.

        Args:
            images: floating [B, 3, H, W], normalised; H and W are multiples of `config.stride` (16; 64 with the
                tokenizer) and need not be those of the configuration.
            keep: int64 [B, K], the visible tokens of every image: row-major positions in the grid of H / stride rows
                and W / stride columns, distinct within an image, in any order. Nothing of the other tokens is read
                or computed. None = all.
            out_indices: blocks whose outputs are wanted, negative ones counted from the end. Blocks after the last of
                them are not run.
            out_type: "raw" = all tokens, "cls" = [CLS] only, "featmap" = the image tokens as a map (not with `keep`).

        Returns:
            One tensor for every index, in the order of the blocks. Only the output of the last block is normalised.
            raw: [B, 1 + registers + K, width], [CLS] first, then the registers, then the tokens (those of `keep`, in
            its order); cls: [B, width]; featmap: [B, width, H / stride, W / stride].

        Raises:
            TypeError: images are not floating, or keep is not int64.
            ValueError: a shape, an index or `out_type` is not allowed.
        """
        grid = self._check(images, keep, out_type)
        wanted = self._blocks_wanted(out_indices)
        x = self.patch_embed(images, keep)
        x = self.tokenizer(x) if self.tokenizer is not None else x.squeeze(2)
        front = torch.cat([self.cls_token, self.storage_tokens], dim=1).to(x.dtype).expand(len(x), -1, -1)
        x = torch.cat([front, x], dim=1)
        rope = self.rope_embed(grid, keep)
        recompute = self._checkpointing == "blocks" and self.training and torch.is_grad_enabled()
        outputs = []
        for index in range(wanted[-1] + 1):
            block = self.blocks[index]
            if recompute:  # nothing in a block is random
                x = checkpoint(block, x, rope, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, rope)
            if index in wanted:
                last = index == self.config.depth - 1
                outputs.append(self._output(self.ln1(x) if last else x, grid, out_type))
        return tuple(outputs)

    def _output(self, x: Tensor, grid: tuple[int, int], out_type: OutType) -> Tensor:
        if out_type == "raw":
            return x
        if out_type == "cls":
            return x[:, 0]
        return x[:, self.config.front_tokens :].unflatten(1, grid).permute(0, 3, 1, 2)

    def _blocks_wanted(self, out_indices: Sequence[int]) -> list[int]:
        depth = self.config.depth
        outside = [index for index in out_indices if not -depth <= index < depth]
        wanted = sorted({index % depth for index in out_indices})
        if outside or not wanted or len(wanted) != len(out_indices):
            raise ValueError(
                f"out_indices is {tuple(out_indices)}, but must name one or more different blocks between "
                f"{-depth} and {depth - 1}"
            )
        return wanted

    def _check(self, images: Tensor, keep: Tensor | None, out_type: OutType) -> tuple[int, int]:
        if out_type not in get_args(OutType):
            raise ValueError(f"out_type is {out_type!r}, allowed are {', '.join(map(repr, get_args(OutType)))}")
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images have shape {list(images.shape)}, but must be [B, 3, H, W]")
        if not images.is_floating_point():
            raise TypeError(f"images are {images.dtype}, but must be floating and normalised")
        grid = self.config.grid_of(images.shape[2], images.shape[3])
        if keep is None:
            return grid
        if out_type == "featmap":
            raise ValueError('out_type "featmap" needs every token: leave keep out, or ask for "raw"')
        if keep.dtype != torch.int64:
            raise TypeError(f"keep is {keep.dtype}, but must be torch.int64 positions (not a mask)")
        if keep.ndim != 2 or len(keep) != len(images) or not 1 <= keep.shape[1] <= grid[0] * grid[1]:
            raise ValueError(
                f"keep has shape {list(keep.shape)}, but must be [{len(images)}, K] with K from 1 to "
                f"{grid[0] * grid[1]} (the grid has {grid[0]} x {grid[1]} tokens)"
            )
        check_positions(keep, grid[0] * grid[1])
        return grid
