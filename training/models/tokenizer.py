"""Patches of an image, and the window tokenizer of the 4K model that turns 4 x 4 of them into one token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from training.models.attention import Block
from training.models.config import BackboneConfig
from training.models.layers import Device, truncated_normal_

CHUNK = 1024
"""Windows that the tokenizer handles at a time; limits memory, changes no value."""


def extract_windows(images: Tensor, patch_size: int, window: int, keep: Tensor | None = None) -> Tensor:
    """Cut images into windows of patches; both row-major.

    Args:
        images: [B, C, H, W]; H and W are multiples of patch_size * window.
        patch_size: side of a patch in pixels.
        window: side of a window in patches; 1 = windows are patches.
        keep: int64 [B, K], windows to take; None = all, in order. Pixels outside them are not read.

    Returns:
        [B, K, window * window, C * patch_size * patch_size], pixels of a patch in the order of a convolution's weight.
    """
    batch, channels, height, width = images.shape
    side = patch_size * window
    columns = width // side
    shape = (batch, channels, height // side, window, patch_size, columns, window, patch_size)
    cells = images.reshape(shape).permute(0, 2, 5, 3, 6, 1, 4, 7)
    if keep is None:
        cells = cells.flatten(1, 2)
    else:
        sample = torch.arange(batch, device=keep.device)[:, None]
        cells = cells[sample, keep // columns, keep % columns]
    return cells.reshape(batch, -1, window * window, channels * patch_size * patch_size)


class PatchProjection(nn.Module):
    """The patch convolution as a linear map of cut-out patches: [..., 3 * p * p] -> [..., width].

    The weight has a convolution's shape, [width, 3, p, p].
    """

    def __init__(self, width: int, patch_size: int, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, 3, patch_size, patch_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights from torch's generator."""
        truncated_normal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, patches: Tensor) -> Tensor:
        """Project every patch."""
        return F.linear(patches.to(self.weight.dtype), self.weight.flatten(1), self.bias)


class PatchEmbed(nn.Module):
    """Images [B, 3, H, W] to embedded patches [B, K, patches of a window, width]; only kept windows are computed."""

    def __init__(self, config: BackboneConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.window = config.window if config.tokenizer_depth else 1
        self.projection = PatchProjection(config.width, config.patch_size, device, dtype)

    def forward(self, images: Tensor, keep: Tensor | None = None) -> Tensor:
        """Cut out and project the patches; `keep` as in `extract_windows`."""
        return self.projection(extract_windows(images, self.patch_size, self.window, keep))


class Tokenizer(nn.Module):
    """Attention inside windows of patches; a learned token per window collects each window's result.

    Full attention with the encoder's heads, without positions by RoPE, QK-norm or LayerScale, no norm at the end.
    """

    def __init__(self, config: BackboneConfig, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        width, tokens = config.width, 1 + config.window**2
        self.w_cls = nn.Parameter(torch.empty(1, 1, width, device=device, dtype=dtype))
        self.local_pos_embed = nn.Parameter(torch.empty(1, tokens, width, device=device, dtype=dtype))
        self.blocks = nn.ModuleList(
            Block(width, config.heads, config.heads, config.ffn_width, False, None, config.eps, device, dtype)
            for _ in range(config.tokenizer_depth)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new learned tokens from torch's generator; the blocks are left alone."""
        truncated_normal_(self.w_cls)
        truncated_normal_(self.local_pos_embed)

    def forward(self, windows: Tensor) -> Tensor:
        """Embedded patches by window, [B, K, window * window, width] -> tokens [B, K, width].

        Windows go through in chunks of at most `CHUNK`; in training each chunk's activations are computed again in
        the backward pass instead of being kept.
        """
        batch, count = windows.shape[:2]
        chunks = windows.flatten(0, 1).split(CHUNK)
        if self.training and torch.is_grad_enabled():
            # Nothing in a block is random.
            tokens = [checkpoint(self._chunk, x, use_reentrant=False, preserve_rng_state=False) for x in chunks]
        else:
            tokens = [self._chunk(chunk) for chunk in chunks]
        # The dtype of the embedded patches, also under autocast, where the tokens come out in float32.
        return torch.cat(tokens).to(windows.dtype).unflatten(0, (batch, count))

    def _chunk(self, patches: Tensor) -> Tensor:
        x = torch.cat([self.w_cls.expand(len(patches), -1, -1), patches], dim=1) + self.local_pos_embed
        # Only the window's own token is read at the end, so the last block computes nothing else.
        for block in self.blocks[:-1]:
            x = block(x)
        return self.blocks[-1](x, queries=1)[:, 0]
