"""Attention shares keys and values among the right heads without copying them, and equals plain softmax attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from tests.fixtures.slow_encoder import randomise
from training.models.attention import Attention, Block, folded_attention, grouped_attention

BATCH, TOKENS, HEAD_DIM = 2, 7, 8


def heads(count: int, seed: int) -> Tensor:
    return torch.randn(BATCH, count, TOKENS, HEAD_DIM, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("attention", [grouped_attention, folded_attention])
@pytest.mark.parametrize(("count", "kv_count"), [(6, 6), (6, 3), (6, 2), (4, 1)])
def test_every_query_head_reads_its_group(attention: object, count: int, kv_count: int) -> None:
    q, k, v = heads(count, 0), heads(kv_count, 1), heads(kv_count, 2)
    got = attention(q, k, v)  # type: ignore[operator]
    assert got.shape == q.shape
    for head in range(count):
        shared = head * kv_count // count
        weights = (q[:, head] @ k[:, shared].mT / HEAD_DIM**0.5).softmax(dim=-1)
        torch.testing.assert_close(got[:, head], weights @ v[:, shared], atol=1e-6, rtol=1e-5)


def test_grouped_keys_are_not_repeated_in_memory() -> None:
    """The largest allocation inside grouped attention is the result, of the size of q."""
    q, k, v = (torch.randn(1, count, 512, 64) for count in (8, 4, 4))
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        grouped_attention(q, k, v)
        repeated = torch.repeat_interleave(k, 2, dim=1)
    size = q.numel() * q.element_size()
    taken = {event.name: event.cpu_memory_usage for event in record.events()}
    assert taken["aten::scaled_dot_product_attention"] < 1.5 * size
    assert taken["aten::repeat_interleave"] >= size == repeated.numel() * repeated.element_size()


def test_first_queries_only() -> None:
    block = Block(32, heads=4, kv_heads=2, ffn_width=64, layer_scale=1e-4)
    randomise(block)
    torch.manual_seed(0)
    x = torch.randn(BATCH, TOKENS, 32)
    rope = (torch.rand(1, 1, TOKENS, 4), torch.rand(1, 1, TOKENS, 4))
    torch.testing.assert_close(block(x, rope, queries=2), block(x, rope)[:, :2], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(block(x, queries=1), block(x)[:, :1], atol=1e-5, rtol=1e-5)


def test_input_is_left_alone_and_gradients_flow_to_every_parameter() -> None:
    block = Block(32, heads=4, kv_heads=2, ffn_width=64, layer_scale=1e-4)
    randomise(block)
    torch.manual_seed(0)
    x = torch.randn(BATCH, TOKENS, 32, requires_grad=True)
    before = x.detach().clone()
    block(x).square().sum().backward()
    assert torch.equal(x.detach(), before)
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None, name
        # Attention does not see a shift of all keys, unless they are normalised, as here.
        assert parameter.grad.abs().max() > 1e-6, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_a_block(dtype: torch.dtype) -> None:
    """By finite differences: the layers have backward passes of their own."""
    block = Block(16, heads=2, kv_heads=1, ffn_width=16, layer_scale=1e-4, dtype=dtype)
    randomise(block)
    x = torch.randn(1, 3, 16, dtype=dtype, generator=torch.Generator().manual_seed(0), requires_grad=True)
    direction = torch.randn(1, 3, 16, dtype=dtype, generator=torch.Generator().manual_seed(1))
    block(x).square().sum().backward()
    step = 1e-3
    with torch.no_grad():
        ahead, behind = (block(x + sign * step * direction).square().sum() for sign in (1, -1))
    assert x.grad is not None
    torch.testing.assert_close((ahead - behind) / (2 * step), (x.grad * direction).sum(), rtol=5e-3, atol=0)


def test_names_without_norm_and_scale() -> None:
    names = set(Attention(16, 2, 2, qk_norm=False).state_dict())
    assert names == {f"{layer}.{kind}" for layer in ("wq", "wk", "wv", "proj") for kind in ("weight", "bias")}
