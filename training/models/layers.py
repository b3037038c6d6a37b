"""Small layers of the encoder: linear maps, RMSNorm, LayerScale and the SwiGLU feed-forward network.

Every layer sets its own initial values in its constructor (`reset_parameters`), because under DeepSpeed's `zero.Init`
its parameters are taken apart as soon as the constructor returns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Device = torch.device | str | None


def truncated_normal_(tensor: Tensor) -> None:
    """Fill in place with the initial values of every weight matrix and learned token: normal, std 0.02, cut at +-2."""
    nn.init.trunc_normal_(tensor, std=0.02, a=-2.0, b=2.0)


class Linear(nn.Linear):
    """`nn.Linear` that starts with truncated normal weights (std 0.02) and zero biases."""

    def reset_parameters(self) -> None:
        """Draw new weights from torch's generator."""
        truncated_normal_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class RMSNorm(nn.RMSNorm):
    """`nn.RMSNorm` over the last axis with a learned factor a channel; on CPU about twice as fast."""

    def __init__(self, width: int, eps: float, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__(width, eps, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, in float32 inside: [..., width] to the same."""
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return _RmsNorm.apply(x, self.weight, self.eps)
        # Under autocast the two dtypes differ, and torch's fused kernel wants one.
        wide = torch.promote_types(x.dtype, self.weight.dtype)
        return F.rms_norm(x.to(wide), self.normalized_shape, self.weight.to(wide), self.eps).to(x.dtype)


class _RmsNorm(torch.autograd.Function):
    """RMSNorm in few passes over memory: torch's own is fused on GPU only, and is then the better one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        width = x.shape[-1]
        factors, rows = weight.to(inverse.dtype), inverse.reshape(-1)
        products = (gradient.to(inverse.dtype) * x).reshape(-1, width)
        by_weight = torch.mv(products.T, rows)
        shift = torch.mv(products, factors).mul_(rows).mul_(rows).div_(width).view_as(inverse)
        by_x = (gradient * factors).addcmul_(x.to(inverse.dtype), shift, value=-1).mul_(inverse)
        return by_x.to(x.dtype), by_weight.to(weight.dtype), None


class LayerScale(nn.Module):
    """One learned factor a channel: [..., width] -> [..., width]."""

    def __init__(self, width: int, initial: float, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.initial = initial
        self.weight = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every factor to the initial value."""
        nn.init.constant_(self.weight, self.initial)

    def forward(self, x: Tensor) -> Tensor:
        """Scale the last axis."""
        return x * self.weight


class SwiGLU(nn.Module):
    """Gated feed-forward network: w3(silu(a) * b) with [a | b] = w12(x); [..., width] -> [..., width]."""

    def __init__(self, width: int, hidden: int, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.w12 = Linear(width, 2 * hidden, device=device, dtype=dtype)
        self.w3 = Linear(hidden, width, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map every token by itself."""
        return self.w3(silu_gate(self.w12(x)))


def silu_gate(x: Tensor) -> Tensor:
    """silu(a) * b of x = [a | b], halves of the last axis: [..., 2n] -> [..., n]."""
    if torch.compiler.is_compiling():
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value
    return _SiluGate.apply(x)


class _SiluGate(torch.autograd.Function):
    """`silu_gate` that keeps x only, not silu(a) too, and writes the gradient of either half in its place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate).mul_(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate, value = x.chunk(2, dim=-1)
        result = torch.empty_like(x)
        by_gate, by_value = result.chunk(2, dim=-1)
        torch.ops.aten.silu_backward.grad_input(gradient * value, gate, grad_input=by_gate)
        torch.ops.aten.silu.out(gate, out=by_value).mul_(gradient)
        return result
