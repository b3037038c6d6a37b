"""The layers compute, and differentiate, what their formulas say, and start from the documented values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.layers import LayerScale, Linear, RMSNorm, SwiGLU, silu_gate


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_initial_values() -> None:
    torch.manual_seed(0)
    layer = Linear(400, 300)
    assert abs(float(layer.weight.detach().std()) - 0.02) < 1e-4
    assert abs(float(layer.weight.detach().mean())) < 3e-4
    assert not layer.bias.detach().any()
    assert torch.equal(LayerScale(3, 1e-4).weight.detach(), torch.full((3,), 1e-4))
    torch.manual_seed(0)
    assert torch.equal(Linear(400, 300).weight, layer.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rmsnorm_and_its_gradients(dtype: torch.dtype) -> None:
    norm = RMSNorm(48, 1e-6, dtype=dtype)
    nn.init.uniform_(norm.weight, 0.5, 2)
    x = normal(3, 5, 48, dtype=dtype).requires_grad_()
    gradient = normal(3, 5, 48, dtype=dtype, seed=1)
    result = norm(x)
    got = torch.autograd.grad(result, [x, norm.weight], gradient)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, norm.weight)]
    expected = exact[0] / (exact[0].square().mean(-1, keepdim=True) + 1e-6).sqrt() * exact[1]
    # Computed in float32 inside, so in bfloat16 only the result is rounded (8 bits).
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2**-8, "atol": 1e-3}
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, **tolerance)
    for ours, theirs in zip(got, torch.autograd.grad(expected, exact, gradient.double()), strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), theirs, **tolerance)


def test_rmsnorm_of_tiny_and_mixed_values() -> None:
    norm = RMSNorm(8, 1e-6)
    assert torch.equal(norm(torch.zeros(2, 8)), torch.zeros(2, 8))
    mixed = norm(normal(2, 8, dtype=torch.bfloat16))
    torch.testing.assert_close(
        mixed.float(), F.rms_norm(normal(2, 8).bfloat16().float(), (8,), eps=1e-6), atol=0.01, rtol=0
    )


def test_silu_gate_and_its_gradient() -> None:
    x = normal(2, 3, 20).requires_grad_()
    gradient = normal(2, 3, 10, seed=1)
    (got,) = torch.autograd.grad(silu_gate(x), x, gradient)
    exact = x.detach().double().requires_grad_()
    gate, value = exact[..., :10], exact[..., 10:]
    expected = gate / (1 + (-gate).exp()) * value
    torch.testing.assert_close(silu_gate(x).double(), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        got.double(), torch.autograd.grad(expected, exact, gradient.double())[0], atol=1e-6, rtol=1e-5
    )
    before = x.detach().clone()
    with torch.no_grad():
        silu_gate(x)
    assert torch.equal(x, before)


def test_first_half_of_w12_is_the_gate() -> None:
    layer = SwiGLU(2, 1)
    with torch.no_grad():
        layer.w12.weight.copy_(torch.eye(2))
        layer.w3.weight.fill_(1.0)
        result = layer(torch.tensor([[3.0, 5.0]]))
    torch.testing.assert_close(result, (F.silu(torch.tensor(3.0)) * 5).expand(1, 2))
