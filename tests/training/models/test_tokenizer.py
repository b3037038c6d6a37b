"""Patches are cut like a convolution cuts them, and windows become tokens on their own, chunk by chunk."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fixtures.slow_encoder import SlowEncoder, randomise
from training.models import tokenizer as module
from training.models.config import BackboneConfig
from training.models.tokenizer import PatchEmbed, Tokenizer, extract_windows


def config(tokenizer_depth: int) -> BackboneConfig:
    return BackboneConfig(
        width=32, depth=1, heads=2, ffn_width=24, tokenizer_depth=tokenizer_depth, image_size=(64, 64)
    )


def images(height: int, width: int) -> Tensor:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))


def test_patches_are_those_of_a_convolution() -> None:
    embed = PatchEmbed(config(0))
    randomise(embed)
    x = images(48, 80)
    weight, bias = embed.projection.weight, embed.projection.bias
    expected = F.conv2d(x, weight, bias, stride=16).flatten(2).mT
    torch.testing.assert_close(embed(x).squeeze(2), expected, atol=1e-5, rtol=1e-5)
    keep = torch.tensor([[14, 0, 3], [7, 8, 2]])
    kept = torch.stack([expected[sample, keep[sample]] for sample in range(2)])
    torch.testing.assert_close(embed(x, keep).squeeze(2), kept, atol=1e-5, rtol=1e-5)


def test_windows_hold_their_patches_row_by_row() -> None:
    x = images(128, 192)
    windows = extract_windows(x, 16, 4)
    assert windows.shape == (2, 6, 16, 768)
    for window in range(6):
        for patch in range(16):
            row, column = window // 3 * 4 + patch // 4, window % 3 * 4 + patch % 4
            pixels = x[1, :, row * 16 :, column * 16 :][:, :16, :16]
            assert torch.equal(windows[1, window, patch], pixels.flatten())
    keep = torch.tensor([[5, 1], [0, 4]])
    assert torch.equal(extract_windows(x, 16, 4, keep)[1], windows[1, keep[1]])


@pytest.mark.parametrize("depth", [1, 2])
def test_token_of_every_window(depth: int) -> None:
    embed, tokenizer = PatchEmbed(config(depth)), Tokenizer(config(depth))
    randomise(embed, 1)
    randomise(tokenizer, 2)
    weights = {f"patch_embed.{k}": v for k, v in embed.state_dict().items()}
    weights |= {f"tokenizer.{k}": v for k, v in tokenizer.state_dict().items()}
    slow, x = SlowEncoder(config(depth), weights), images(64, 128)
    tokens = tokenizer(embed(x))
    assert tokens.shape == (2, 2, 32)
    for window in range(2):
        expected = slow.token(x[1].double(), 0, window)
        torch.testing.assert_close(tokens[1, window].double(), expected, atol=1e-4, rtol=1e-4)


def test_chunks_change_no_value_and_are_recomputed_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(config(1))
    randomise(tokenizer)
    windows = torch.randn(2, 5, 16, 32, generator=torch.Generator().manual_seed(1))
    whole = tokenizer.eval()(windows)
    whole.square().mean().backward()
    gradients = [parameter.grad for parameter in tokenizer.parameters()]
    tokenizer.zero_grad()
    monkeypatch.setattr(module, "CHUNK", 3)  # 10 windows: the last chunk is short
    torch.testing.assert_close(tokenizer(windows), whole)
    seen = []
    tokenizer.blocks[0].register_forward_pre_hook(lambda _module, inputs: seen.append(len(inputs[0])))
    chunked = tokenizer.train()(windows)
    assert seen == [3, 3, 3, 1]
    chunked.square().mean().backward()
    assert sorted(seen) == [1, 1, 3, 3, 3, 3, 3, 3]
    torch.testing.assert_close(chunked, whole)
    for parameter, gradient in zip(tokenizer.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-5, rtol=1e-4)


def test_tokens_have_the_dtype_of_the_patches_under_autocast() -> None:
    embed, tokenizer = PatchEmbed(config(1)), Tokenizer(config(1))
    with torch.autocast("cpu", torch.bfloat16):
        patches = embed(images(64, 64))
        assert patches.dtype == torch.bfloat16
        assert tokenizer(patches).dtype == torch.bfloat16
