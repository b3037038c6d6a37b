"""Attention with QK-norm, RoPE and grouped keys and values, and the pre-norm block around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.layers import Device, LayerScale, Linear, RMSNorm, SwiGLU
from training.models.rope import Rope, rotate


class Attention(nn.Module):
    """Multi-head attention without a mask: [B, N, width] -> [B, N, width].

    Query head j reads key and value head j // (heads / kv_heads).

    Args:
        width: channels of a token.
        heads: query heads.
        kv_heads: key and value heads; divides `heads`.
        qk_norm: RMSNorm of queries and keys over a head's channels, before RoPE.
        layer_scale: initial LayerScale of the result; None = no LayerScale.
        eps: epsilon of the norms.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        qk_norm: bool = True,
        layer_scale: float | None = None,
        eps: float = 1e-6,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        kv_width = kv_heads * self.head_dim
        self.wq = Linear(width, width, device=device, dtype=dtype)
        self.wk = Linear(width, kv_width, device=device, dtype=dtype)
        self.wv = Linear(width, kv_width, device=device, dtype=dtype)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if qk_norm:
            self.q_norm = RMSNorm(self.head_dim, eps, device=device, dtype=dtype)
            self.k_norm = RMSNorm(self.head_dim, eps, device=device, dtype=dtype)
        self.proj = Linear(width, width, device=device, dtype=dtype)
        self.gamma: nn.Module = nn.Identity()
        if layer_scale is not None:
            self.gamma = LayerScale(width, layer_scale, device=device, dtype=dtype)

    def forward(self, x: Tensor, rope: Rope | None = None, queries: int | None = None) -> Tensor:
        """Mix the tokens.

        Args:
            x: [B, N, width].
            rope: tables for N tokens; None = no positions.
            queries: compute only that many first tokens of the result; all tokens still serve as keys and values.
        """
        q = self.q_norm(self.wq(x[:, :queries]).unflatten(-1, (self.heads, self.head_dim))).transpose(1, 2)
        k = self.k_norm(self.wk(x).unflatten(-1, (self.kv_heads, self.head_dim))).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        if rope is not None:
            q = rotate(q, (rope[0][..., :queries, :], rope[1][..., :queries, :]))
            k = rotate(k, rope)
        if v.device.type == "cpu":
            v = v.contiguous()  # the kernel reads keys and values many times; heads side by side cost it about 3 %
        mixed = grouped_attention(q, k, v)
        return self.gamma(self.proj(mixed.transpose(1, 2).flatten(2)))


def grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v without a mask; keys and values are never repeated in memory.

    Args:
        q: [B, heads, N, head_dim].
        k: [B, kv_heads, M, head_dim]; query head j reads its head j // (heads / kv_heads).
        v: as k.

    Returns:
        [B, heads, N, head_dim].
    """
    if q.shape[1] == k.shape[1]:
        return F.scaled_dot_product_attention(q, k, v)
    if q.device.type == "cpu" or q.dtype in (torch.float16, torch.bfloat16):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return folded_attention(q, k, v)


def folded_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`grouped_attention` for kernels that know no groups: query heads of one group become one longer sequence.

    On a GPU torch documents `enable_gqa` for its flash kernel, which is for 16-bit dtypes, and for plain arithmetic,
    which would hold all N * M scores. No copy of q where it is contiguous, as after RoPE.
    """
    group = q.shape[1] // k.shape[1]
    mixed = F.scaled_dot_product_attention(q.reshape(len(q), k.shape[1], -1, q.shape[-1]), k, v)
    return mixed.unflatten(2, (group, -1)).flatten(1, 2)


class Block(nn.Module):
    """Pre-norm transformer block: x + attention(norm(x)), then x + feed-forward(norm(x)); [B, N, width] to the same.

    The arguments are those of `Attention`; `ffn_width` is the inner width of the feed-forward network.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        ffn_width: int,
        qk_norm: bool = True,
        layer_scale: float | None = None,
        eps: float = 1e-6,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.ln1 = RMSNorm(width, eps, device=device, dtype=dtype)
        self.attn = Attention(width, heads, kv_heads, qk_norm, layer_scale, eps, device, dtype)
        self.ln2 = RMSNorm(width, eps, device=device, dtype=dtype)
        self.ffn = SwiGLU(width, ffn_width, device, dtype)

    def forward(self, x: Tensor, rope: Rope | None = None, queries: int | None = None) -> Tensor:
        """Apply the block; with `queries`, only that many first tokens of the result are computed and returned."""
        # Not in place: a forward hook on a branch must see the branch's own output.
        x = x[:, :queries] + self.attn(self.ln1(x), rope, queries)
        return x + self.ffn(self.ln2(x))
