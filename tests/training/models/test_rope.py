"""Angles are the released ones to the bit, follow the kept tokens, and keep their dtype."""

from __future__ import annotations

import pytest
import torch

from tests.fixtures.slow_encoder import angles, turn
from training.models.config import BACKBONES, BackboneConfig, RopeDtype
from training.models.rope import RopeEmbed, rope_periods, rope_table, rotate

RELEASED = {
    "sapiens2_0.4b": "1 1.3359375 1.78125 2.375 3.15625 4.21875 5.625 7.5 10 13.3125 17.75 23.75 31.625 42.25 56.25 75",
    "sapiens2_0.8b": "1 1.2578125 1.5859375 2 2.515625 3.15625 4 5 6.3125 7.90625 10 12.625 15.9375 19.75 25 31.625 40 "
    "50.5 62.75 79",
    "sapiens2_5b": "1 1.2734375 1.625 2.078125 2.640625 3.375 4.28125 5.46875 6.96875 8.875 11.3125 14.3125 18.375 "
    "23.25 30 37.75 48.75 61.5 79",
}


def config(rope_dtype: RopeDtype = "bfloat16") -> BackboneConfig:
    return BackboneConfig(width=64, depth=1, heads=2, ffn_width=8, image_size=(32, 32), rope_dtype=rope_dtype)


@pytest.mark.parametrize("name", RELEASED)
def test_released_periods(name: str) -> None:
    periods = rope_periods(BACKBONES[name])
    assert periods.dtype == torch.bfloat16
    assert periods.tolist() == [float(value) for value in RELEASED[name].split()]


@pytest.mark.parametrize("rope_dtype", ["bfloat16", "float32"])
def test_table_of_every_position(rope_dtype: RopeDtype) -> None:
    # 150 rows: pixel centres above 128 have no exact bfloat16 value.
    rows, columns = 150, 3
    cos, sin = rope_table(rope_periods(config(rope_dtype)), rows, columns)
    expected = torch.stack(
        [angles(config(rope_dtype), row, column, rows, columns) for row in range(rows) for column in range(columns)]
    )
    if rope_dtype == "bfloat16":
        assert torch.equal(cos.double(), expected.cos().bfloat16().double())
        assert torch.equal(sin.double(), expected.sin().bfloat16().double())
    else:
        torch.testing.assert_close(cos.double(), expected.cos(), atol=1e-6, rtol=0)
        torch.testing.assert_close(sin.double(), expected.sin(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("rope_dtype", ["bfloat16", "float32"])
def test_rotation(rope_dtype: RopeDtype) -> None:
    embed = RopeEmbed(config(rope_dtype))
    keep = torch.tensor([[5, 0], [3, 4]])
    rope = embed((2, 3), keep)
    x = torch.randn(2, 2, 9 + 2, 32, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, rope)
    assert turned.dtype == torch.float32
    for sample in range(2):
        for token in range(11):
            angle = None
            if token >= 9:
                index = int(keep[sample, token - 9])
                angle = angles(embed.config, index // 3, index % 3, 2, 3)
            for head in range(2):
                expected = turn(embed.config, x[sample, head, token].double(), angle)
                atol = 0 if rope_dtype == "bfloat16" else 1e-5
                torch.testing.assert_close(turned[sample, head, token].double(), expected, atol=atol, rtol=0)


def test_front_tokens_are_rounded_in_bfloat16_and_untouched_in_float32() -> None:
    x = torch.randn(1, 2, 9 + 4, 32, generator=torch.Generator().manual_seed(0))
    rounded = rotate(x, RopeEmbed(config())((2, 2)))
    assert torch.equal(rounded[:, :, :9], x[:, :, :9].bfloat16().float())
    assert not torch.equal(rounded[:, :, :9], x[:, :, :9])
    assert torch.equal(rotate(x, RopeEmbed(config("float32"))((2, 2)))[:, :, :9], x[:, :, :9])


@pytest.mark.parametrize("rope_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("cast", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_casting_the_model_leaves_the_periods(rope_dtype: RopeDtype, cast: torch.dtype) -> None:
    embed = RopeEmbed(config(rope_dtype))
    before = embed.periods.clone()
    embed.to(cast)
    assert embed.periods.dtype == getattr(torch, rope_dtype)
    assert torch.equal(embed.periods, before)
    assert list(embed.state_dict()) == ["periods"]


def test_periods_come_back_after_the_meta_device() -> None:
    embed = RopeEmbed(config(), device="meta")
    assert embed.periods.is_meta
    embed.to_empty(device="cpu").reset_parameters()
    assert torch.equal(embed.periods, rope_periods(config()))
