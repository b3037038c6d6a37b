"""The pretraining decoder against a slow one that scatters by loops; order of `keep`; gradients; sizes; errors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from training.models.backbone import Backbone
from training.models.config import BACKBONES
from training.models.decoder import DecoderConfig, PretrainDecoder, masked_positions, sincos_positions

CONFIG = DecoderConfig(encoder_width=20, pixels=2, width=16, depth=3, heads=2, registers=8)
GRID = (4, 3)
TOKENS = 12


def _decoder() -> PretrainDecoder:
    """Every weight non-trivial, norms and biases included."""
    decoder = PretrainDecoder(CONFIG)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in decoder.named_parameters():
            if "norm" in name and name.endswith("weight"):
                value.uniform_(0.5, 1.5, generator=generator)
            else:
                value.normal_(std=0.5, generator=generator)
    return decoder


def _inputs(visible: int = 5, batch: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    keep = torch.stack([torch.randperm(TOKENS, generator=generator)[:visible] for _ in range(batch)])
    return torch.randn(batch, 9 + visible, 20, generator=generator), keep


def _slow(decoder: PretrainDecoder, encoded: Tensor, keep: list[int]) -> Tensor:
    """One image, written out: mask tokens and positions one by one, attention with an explicit softmax."""
    w = {name: value.detach() for name, value in decoder.named_parameters()}

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    rows = [linear(encoded[0], "embed")]  # CLS; the eight registers after it are dropped
    for position in range(TOKENS):
        if position in keep:
            token = linear(encoded[9 + keep.index(position)], "embed").clone()
        else:
            token = w["mask_token"][0, 0].clone()
        row, column = divmod(position, GRID[1])
        for i in range(4):
            frequency = 10_000 ** (-i / 4)
            token[i] += math.sin(row * frequency)
            token[4 + i] += math.cos(row * frequency)
            token[8 + i] += math.sin(column * frequency)
            token[12 + i] += math.cos(column * frequency)
        rows.append(token)
    x = torch.stack(rows)
    for block in range(CONFIG.depth):
        pre = f"blocks.{block}."
        q, k, v = linear(norm(x, f"{pre}norm1"), f"{pre}qkv").split(16, dim=-1)
        heads = []
        for head in range(2):
            part = slice(8 * head, 8 * head + 8)
            heads.append(torch.softmax(q[:, part] @ k[:, part].T / math.sqrt(8), dim=-1) @ v[:, part])
        x = x + linear(torch.cat(heads, dim=-1), f"{pre}proj")
        hidden = linear(norm(x, f"{pre}norm2"), f"{pre}fc1")
        x = x + linear(hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2))), f"{pre}fc2")
    return linear(norm(x, "norm"), "pred")[1:]


@pytest.mark.parametrize("checkpointing", ["none", "blocks"])
def test_equals_the_slow_decoder_for_all_tokens_and_for_the_masked_ones(checkpointing: str) -> None:
    decoder = _decoder()
    decoder.set_activation_checkpointing(checkpointing)
    encoded, keep = _inputs()
    everything = decoder(encoded, keep, GRID)
    masked = decoder(encoded, keep, GRID, masked_only=True)
    assert everything.shape == (3, TOKENS, 12)
    assert masked.shape == (3, TOKENS - 5, 12)
    for image in range(3):
        visible = keep[image].tolist()
        expected = _slow(decoder, encoded[image], visible)
        torch.testing.assert_close(everything[image], expected, rtol=1e-4, atol=1e-4)
        hidden = [position for position in range(TOKENS) if position not in visible]
        assert masked_positions(keep, TOKENS)[image].tolist() == hidden
        torch.testing.assert_close(masked[image], expected[hidden], rtol=1e-4, atol=1e-4)


def test_the_order_of_keep_does_not_matter() -> None:
    decoder = _decoder()
    encoded, keep = _inputs()
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = torch.cat([encoded[:, :9], encoded[:, 9:][:, order]], dim=1)
    for masked_only in (False, True):
        expected = decoder(encoded, keep, GRID, masked_only)
        torch.testing.assert_close(decoder(shuffled, keep[:, order], GRID, masked_only), expected, rtol=1e-4, atol=1e-4)
    # It is the tokens that carry their positions: exchanging two of them is seen.
    assert not torch.allclose(decoder(shuffled, keep, GRID), decoder(encoded, keep, GRID), atol=1e-2)


def test_registers_are_not_read_and_the_rest_is() -> None:
    decoder = _decoder()
    encoded, keep = _inputs()
    encoded.requires_grad_()
    decoder(encoded, keep, GRID, masked_only=True).square().sum().backward()
    reach = encoded.grad.abs().sum(dim=(0, 2))  # type: ignore[union-attr]
    assert (reach[1:9] == 0).all()
    assert (reach[[0, *range(9, 14)]] > 0).all()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in decoder.parameters())
    assert decoder.mask_token.grad.shape == (1, 1, 16)  # type: ignore[union-attr]


def test_gradients_of_both_variants_and_of_checkpointing_agree() -> None:
    encoded, keep = _inputs()
    masked = masked_positions(keep, TOKENS)
    found = []
    for masked_only, checkpointing in ((True, "none"), (False, "none"), (True, "blocks")):
        decoder = _decoder()
        decoder.set_activation_checkpointing(checkpointing)
        out = decoder(encoded, keep, GRID, masked_only)
        out = out if masked_only else out.gather(1, masked[..., None].expand(-1, -1, 12))
        out.square().mean().backward()
        found.append({name: p.grad for name, p in decoder.named_parameters()})
    for other in found[1:]:
        for name, grad in found[0].items():
            torch.testing.assert_close(other[name], grad, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("visible", [1, TOKENS])
def test_one_visible_token_and_all_visible(visible: int) -> None:
    decoder = _decoder()
    encoded, keep = _inputs(visible)
    assert decoder(encoded, keep, GRID, masked_only=True).shape == (3, TOKENS - visible, 12)
    expected = _slow(decoder, encoded[0], keep[0].tolist())
    torch.testing.assert_close(decoder(encoded, keep, GRID)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "outputs"), [("sapiens2_0.1b", 768), ("sapiens2_1b", 768), ("sapiens2_5b", 768), ("sapiens2_1b_4k", 3072)]
)
def test_published_sizes(name: str, outputs: int) -> None:
    config = DecoderConfig.for_backbone(BACKBONES[name])
    decoder = PretrainDecoder(config, device="meta")
    assert (config.depth, config.width, config.heads, config.outputs) == (8, 512, 16, outputs)
    # 64x48 tokens from 1024x768 images, and from 4096x3072 ones, which are then reconstructed at 2048x1536.
    assert BACKBONES[name].grid == (64, 48)
    encoded = torch.empty(2, 9 + 768, BACKBONES[name].width, device="meta")
    keep = torch.empty(2, 768, dtype=torch.int64, device="meta")
    assert decoder(encoded, keep, (64, 48), masked_only=True).shape == (2, 2304, outputs)
    assert decoder(encoded, keep, (64, 48)).shape == (2, 3072, outputs)


@pytest.mark.parametrize("name", ["tiny", "tiny_4k"])
def test_follows_the_tiny_backbones(name: str) -> None:
    torch.manual_seed(0)
    config = BACKBONES[name].replace(depth=2, full_kv_blocks=1)
    encoder, decoder = Backbone(config), PretrainDecoder(DecoderConfig.tiny(config))
    keep = torch.stack([torch.randperm(config.tokens)[: config.tokens // 4] for _ in range(2)])
    encoded = encoder(torch.randn(2, 3, *config.image_size), keep=keep)[0]
    out = decoder(encoded, keep, config.grid, masked_only=True)
    side = 32 if name == "tiny_4k" else 16
    assert out.shape == (2, config.tokens - config.tokens // 4, side * side * 3)
    out.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.patch_embed.parameters())


def test_compiles_without_graph_breaks() -> None:
    decoder = _decoder()
    encoded, keep = _inputs()
    compiled = torch.compile(decoder, fullgraph=True, backend="eager")
    for masked_only in (False, True):
        expected = decoder(encoded, keep, GRID, masked_only)
        torch.testing.assert_close(compiled(encoded, keep, GRID, masked_only), expected)


def test_works_under_autocast() -> None:
    decoder = _decoder()
    encoded, keep = _inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = decoder(encoded, keep, GRID)
    assert low.dtype == torch.bfloat16
    high = decoder(encoded, keep, GRID)
    assert (low - high).abs().mean() < 0.05 * high.abs().mean()  # bfloat16 keeps 8 bits


def test_positions_of_a_grid_that_is_not_square() -> None:
    table = sincos_positions(torch.arange(TOKENS), GRID, 16)
    assert table.shape == (TOKENS, 16)
    assert len({tuple(row.tolist()) for row in table}) == TOKENS
    # Same row: first half equal; same column: second half equal.
    torch.testing.assert_close(table[0, :8], table[2, :8])
    torch.testing.assert_close(table[1, 8:], table[10, 8:])


def test_initial_values_and_drawing_them_after_the_meta_device() -> None:
    config = DecoderConfig(encoder_width=64, width=64, depth=1, heads=4)
    torch.manual_seed(0)
    direct = PretrainDecoder(config)
    for name, p in direct.named_parameters():
        if name == "mask_token":
            assert 0.01 < p.std().item() < 0.03
        elif p.ndim > 1:
            bound = math.sqrt(6 / sum(p.shape))
            assert 0.97 * bound < p.abs().max().item() <= bound, name
        else:
            assert (p == (1 if "norm" in name and name.endswith("weight") else 0)).all(), name
    later = PretrainDecoder(config, device="meta").to_empty(device="cpu")
    later.init_weights()
    assert all(p.isfinite().all() and p.std() > 0 for p in later.parameters() if p.ndim > 1)
    assert all((p == 1).all() for name, p in later.named_parameters() if "norm" in name and name.endswith("weight"))


def test_shapes_that_do_not_fit_are_refused() -> None:
    decoder = _decoder()
    encoded, keep = _inputs()
    for bad_encoded, bad_keep, grid, message in (
        (encoded[:, 1:], keep, GRID, "encoded has shape .*decoder takes"),
        (encoded[..., :19], keep, GRID, "encoded has shape"),
        (encoded[:2], keep, GRID, "encoded has shape"),
        (encoded, keep.int(), GRID, "keep is torch.int32"),
        (encoded, keep[0], GRID, "keep is torch.int64 of shape"),
        (encoded, keep, (2, 2), "keep names 5 tokens, but a grid of 2x2 has 4"),
    ):
        with pytest.raises(ValueError, match=message):
            decoder(bad_encoded, bad_keep, grid)
    with pytest.raises(ValueError, match="'none' or 'blocks'"):
        decoder.set_activation_checkpointing("all")
    for changes, message in (
        ({"heads": 3}, "width 16 must divide by its 3 heads"),
        ({"width": 18}, "width 18 must divide by 4"),
        ({"depth": 0}, "depth is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            DecoderConfig(**({"encoder_width": 20, "width": 16, "heads": 2} | changes))
