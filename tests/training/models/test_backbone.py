"""The encoder equals a slow second implementation, at any size, on all tokens or on the visible ones only."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.fixtures.slow_encoder import SlowEncoder, randomise
from training.models.backbone import Backbone
from training.models.config import BACKBONES, BackboneConfig, RopeDtype


def config(tokenizer_depth: int = 0, rope_dtype: RopeDtype = "bfloat16", **changes: Any) -> BackboneConfig:
    """Three blocks, the middle one with grouped keys and values."""
    small = BackboneConfig(
        width=32,
        depth=3,
        heads=2,
        ffn_width=48,
        tokenizer_depth=tokenizer_depth,
        image_size=(64, 64),
        full_kv_blocks=1,
        rope_dtype=rope_dtype,
    )
    return small.replace(**changes)


def model(tokenizer_depth: int = 0, rope_dtype: RopeDtype = "bfloat16", **changes: Any) -> Backbone:
    backbone = Backbone(config(tokenizer_depth, rope_dtype, **changes))
    randomise(backbone)
    return backbone.eval()


def pictures(rows: int, columns: int, stride: int) -> Tensor:
    return torch.randn(2, 3, rows * stride, columns * stride, generator=torch.Generator().manual_seed(1))


# float32 against float64. In bfloat16 mode a query or key next to a rounding border may fall on its other side, a
# difference of 2^-8 in one channel; without the rounding the features differ by far more (tested below).
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-3}
KEEP = torch.tensor([[5, 0, 3], [1, 4, 2]])


@pytest.mark.parametrize("rope_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("tokenizer_depth", [0, 1])
@pytest.mark.parametrize("keep", [None, KEEP])
def test_equals_the_slow_encoder(rope_dtype: RopeDtype, tokenizer_depth: int, keep: Tensor | None) -> None:
    backbone = model(tokenizer_depth, rope_dtype)
    slow = SlowEncoder(backbone.config, backbone.state_dict())
    images = pictures(2, 3, backbone.config.stride)
    with torch.no_grad():
        (got,) = backbone(images, keep)
    visible = [list(range(6))] * 2 if keep is None else keep.tolist()
    expected = torch.stack([slow(image, kept) for image, kept in zip(images, visible, strict=True)])
    assert got.shape == (2, 9 + len(visible[0]), 32)
    scale = float(expected.abs().max())
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=TOLERANCE[rope_dtype] * scale)


def test_rounding_in_rope_is_part_of_the_released_numerics() -> None:
    weights = model().state_dict()
    images = pictures(4, 3, 16)
    exact = Backbone(config(rope_dtype="float32"))
    exact.load_state_dict(weights)
    with torch.no_grad():
        difference = (model()(images)[0] - exact(images)[0]).abs()
    assert difference.max() > 5 * TOLERANCE["bfloat16"]


@pytest.mark.parametrize("tokenizer_depth", [0, 1])
def test_nothing_of_masked_tokens_reaches_the_visible_ones(tokenizer_depth: int) -> None:
    backbone = model(tokenizer_depth).train()
    stride = backbone.config.stride
    images = pictures(2, 3, stride).requires_grad_()
    (features,) = backbone(images, KEEP)
    features.square().sum().backward()
    assert images.grad is not None
    for sample in range(2):
        for token in range(6):
            rows, columns = token // 3 * stride, token % 3 * stride
            gradient = images.grad[sample, :, rows : rows + stride, columns : columns + stride]
            if token in KEEP[sample]:
                assert gradient.abs().min() > 0
            else:
                assert not gradient.any()


def test_masked_tokens_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the tokenizer, or the patch projection, sees masked windows."""
    backbone = model(1)
    seen = {}
    for name in ("patch_embed.projection", "tokenizer.blocks.0", "blocks.0"):
        hook = lambda _module, inputs, name=name: seen.update({name: inputs[0].shape[:-1].numel()})  # noqa: E731
        backbone.get_submodule(name).register_forward_pre_hook(hook)
    backbone(pictures(2, 3, 64), KEEP)
    assert seen == {"patch_embed.projection": 2 * 3 * 16, "tokenizer.blocks.0": 2 * 3 * 17, "blocks.0": 2 * (9 + 3)}


def test_keep_of_all_tokens_in_another_order() -> None:
    backbone, images = model(), pictures(2, 3, 16)
    order = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)])
    with torch.no_grad():
        (whole,), (shuffled,) = backbone(images), backbone(images, order)
    for sample in range(2):
        expected = whole[sample, torch.cat([torch.arange(9), 9 + order[sample]])]
        torch.testing.assert_close(shuffled[sample], expected, atol=1e-2, rtol=0)


def test_outputs() -> None:
    backbone, images = model(), pictures(2, 3, 16)
    with torch.no_grad():
        (raw,) = backbone(images)
        (cls,) = backbone(images, out_type="cls")
        (featmap,) = backbone(images, out_type="featmap")
        several = backbone(images, out_indices=(-1, 0))
    assert torch.equal(cls, raw[:, 0])
    assert featmap.shape == (2, 32, 2, 3)
    assert torch.equal(featmap[1, :, 1, 2], raw[1, 9 + 1 * 3 + 2])
    # In the order of the blocks; only the last one is normalised.
    assert len(several) == 2
    assert torch.equal(several[1], raw)
    hidden = []
    backbone.blocks[0].register_forward_hook(lambda _module, _inputs, output: hidden.append(output.clone()))
    with torch.no_grad():
        (first,) = backbone(images, out_indices=(0,))
    assert torch.equal(first, hidden[0])
    assert torch.equal(first, several[0])


def test_blocks_after_the_last_wanted_one_are_not_run() -> None:
    backbone = model()
    backbone.blocks[2].register_forward_hook(lambda *_: pytest.fail("block 2 ran"))
    backbone(pictures(2, 3, 16), out_indices=(1,))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"images": torch.zeros(2, 3, 32, 40)}, ValueError, "32 x 40 pixels.*multiples of 16"),
        ({"images": torch.zeros(2, 1, 32, 32)}, ValueError, r"\[2, 1, 32, 32\].*must be \[B, 3, H, W\]"),
        ({"images": torch.zeros(2, 3, 32, 32, dtype=torch.uint8)}, TypeError, "uint8.*floating"),
        ({"keep": torch.ones(2, 4, dtype=torch.bool)}, TypeError, "torch.bool.*not a mask"),
        ({"keep": torch.zeros(1, 2, dtype=torch.int64)}, ValueError, r"must be \[2, K\] with K from 1 to 4"),
        ({"keep": torch.zeros(2, 5, dtype=torch.int64)}, ValueError, "2 x 2 tokens"),
        ({"keep": torch.zeros(2, 2, dtype=torch.int64), "out_type": "featmap"}, ValueError, "needs every token"),
        ({"out_type": "map"}, ValueError, "allowed are 'raw', 'cls', 'featmap'"),
        ({"out_indices": (3,)}, ValueError, "between -3 and 2"),
        ({"out_indices": (2, -1)}, ValueError, "different blocks"),
        ({"out_indices": ()}, ValueError, "one or more"),
    ],
)
def test_refused(call: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        model()(**{"images": torch.zeros(2, 3, 32, 32)} | call)


@pytest.mark.parametrize("keep", [None, KEEP])
def test_compiles_into_one_graph(keep: Tensor | None) -> None:
    backbone, images = model(), pictures(2, 3, 16)
    compiled = torch.compile(backbone, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(images, keep)[0], backbone(images, keep)[0], atol=1e-2, rtol=0)


def test_compiled_training_of_the_4k_model_with_checkpointing() -> None:
    backbone = model(1, "float32", depth=2).train()
    images = pictures(2, 3, 64)
    plain = gradients(backbone, backbone, images)
    backbone.set_activation_checkpointing("blocks")
    compiled = torch.compile(backbone, fullgraph=True, backend="eager")
    for name, gradient in gradients(backbone, compiled, images).items():
        torch.testing.assert_close(gradient, plain[name], atol=1e-4, rtol=1e-3)


def gradients(backbone: Backbone, run: Any, images: Tensor) -> dict[str, Tensor]:
    backbone.zero_grad()
    run(images, KEEP)[0].square().mean().backward()
    return {name: p.grad.clone() for name, p in backbone.named_parameters() if p.grad is not None}


def test_activation_checkpointing_keeps_values_and_saves_activations() -> None:
    backbone, images = model().train(), pictures(2, 3, 16)
    saved: dict[str, int] = {}
    results = {}
    for mode in ("none", "blocks"):
        backbone.set_activation_checkpointing(mode)  # type: ignore[arg-type]

        def count(tensor: Tensor, mode: str = mode) -> Tensor:
            saved[mode] = saved.get(mode, 0) + tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            results[mode] = gradients(backbone, backbone, images)
    assert saved["blocks"] < 0.6 * saved["none"]
    assert results["blocks"].keys() == results["none"].keys() == dict(backbone.named_parameters()).keys()
    for name, gradient in results["blocks"].items():
        assert torch.equal(gradient, results["none"][name]), name
    with pytest.raises(ValueError, match="allowed are 'none', 'blocks'"):
        backbone.set_activation_checkpointing("all")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_meta_device_then_init_weights_equals_construction(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    direct = Backbone(config(1), dtype=dtype)
    empty = Backbone(config(1), device="meta", dtype=dtype)
    assert all(tensor.is_meta for tensor in empty.state_dict().values())
    empty.to_empty(device="cpu")
    for tensor in empty.state_dict().values():
        tensor.fill_(7)
    torch.manual_seed(3)
    empty.init_weights()
    for name, tensor in direct.state_dict().items():
        assert torch.equal(empty.state_dict()[name], tensor), name
        assert tensor.dtype == (torch.bfloat16 if name == "rope_embed.periods" else dtype), name


def test_initial_values() -> None:
    torch.manual_seed(0)
    backbone = Backbone(config(1, width=128))
    for name, parameter in backbone.named_parameters():
        value = parameter.detach()
        if name.endswith("bias"):
            assert not value.any(), name
        elif name.endswith("gamma.weight"):
            assert torch.equal(value, torch.full_like(value, 1e-4)), name
        elif value.ndim == 1:
            assert torch.equal(value, torch.ones_like(value)), name
        else:
            assert abs(float(value.std()) / 0.02 - 1) < 0.25, name


@pytest.mark.parametrize(("name", "millions"), [("sapiens2_5b", 5066.902976), ("sapiens2_1b_4k", 1606.588928)])
def test_largest_sizes_on_the_meta_device(name: str, millions: float) -> None:
    backbone = Backbone(BACKBONES[name], device="meta")
    assert sum(parameter.numel() for parameter in backbone.parameters()) == round(millions * 1e6)
    assert all(parameter.is_meta for parameter in backbone.parameters())


def test_bfloat16_and_autocast() -> None:
    backbone, images = model(), pictures(2, 3, 16)
    with torch.no_grad():
        (exact,) = backbone(images)
        with torch.autocast("cpu", torch.bfloat16):
            (mixed,) = backbone(images)
        (low,) = backbone.to(torch.bfloat16)(images)
    assert backbone.rope_embed.periods.dtype == torch.bfloat16
    assert low.dtype == torch.bfloat16
    scale = float(exact.abs().max())
    torch.testing.assert_close(mixed.float(), exact, rtol=0, atol=0.05 * scale)
    torch.testing.assert_close(low.float(), exact, rtol=0, atol=0.05 * scale)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rope_dtype", ["bfloat16", "float32"])
def test_autocast_of_either_kind_works(dtype: torch.dtype, rope_dtype: str) -> None:
    model = Backbone(BACKBONES["tiny"].replace(depth=2, rope_dtype=rope_dtype)).eval()
    images = torch.randn(1, 3, 64, 48)
    with torch.no_grad():
        exact = model(images)[0]
        with torch.autocast("cpu", dtype):
            found = model(images)[0]
    assert (found.float() - exact).abs().max() < 0.05 * exact.abs().max()


def test_a_hook_on_a_branch_keeps_what_it_saw() -> None:
    model = Backbone(BACKBONES["tiny"].replace(depth=2)).eval()
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name in ("attn", "attn.gamma", "ffn", "ffn.w3", "ln1"):
        branch = model.blocks[1].get_submodule(name)
        branch.register_forward_hook(lambda module, given, made: seen.append((made, made.clone())))
    model(torch.randn(1, 3, 32, 32))
    assert len(seen) == 5
    assert all(torch.equal(made, copy) for made, copy in seen)
