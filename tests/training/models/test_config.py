"""The sizes are the released ones, and a configuration that cannot work says why."""

from __future__ import annotations

from typing import Any

import pytest

from training.models.config import BACKBONES, BackboneConfig

SMALL: dict[str, Any] = {"width": 64, "depth": 5, "heads": 4, "ffn_width": 128, "full_kv_blocks": 2}


@pytest.mark.parametrize(
    ("name", "grouped", "head_dim"),
    [
        ("sapiens2_0.1b", [], 64),
        ("sapiens2_0.4b", list(range(8, 16)), 64),
        ("sapiens2_0.8b", list(range(8, 24)), 80),
        ("sapiens2_1b", list(range(8, 32)), 64),
        ("sapiens2_5b", list(range(8, 48)), 76),
        ("tiny", [2, 3], 48),
    ],
)
def test_grouped_blocks(name: str, grouped: list[int], head_dim: int) -> None:
    config = BACKBONES[name]
    assert [block for block in range(config.depth) if config.kv_heads(block) != config.heads] == grouped
    assert {config.kv_heads(block) for block in grouped} <= {config.heads // 2}
    assert config.head_dim == head_dim


def test_grids() -> None:
    assert BACKBONES["sapiens2_1b"].grid == (64, 48)
    # Sixteen times the pixels, the same number of tokens.
    assert BACKBONES["sapiens2_1b_4k"].grid == (64, 48)
    assert BACKBONES["sapiens2_1b_4k"].tokens == 3072
    assert BACKBONES["sapiens2_1b"].grid_of(16, 320) == (1, 20)
    with pytest.raises(ValueError, match=r"100 x 64 pixels.*multiples of 16, for example 96 x 64"):
        BACKBONES["tiny"].grid_of(100, 64)
    with pytest.raises(ValueError, match=r"windows of 4 x 4.*multiples of 64, for example 64 x 128"):
        BACKBONES["tiny_4k"].grid_of(16, 128)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 66}, "multiple of 16"),
        ({"heads": 3, "width": 60}, "make heads even, or full_kv_blocks at least 3"),
        ({"depth": 0}, "depth is 0"),
        ({"heads": 2.0}, "heads is 2.0"),
        ({"tokenizer_depth": -1}, "tokenizer_depth is -1"),
        ({"eps": 0.0}, "eps is 0.0"),
        ({"rope_dtype": "float16"}, "allowed are 'bfloat16', 'float32'"),
        ({"image_size": (100, 64)}, "100 x 64"),
        ({"image_size": (64,)}, "must be \\(height, width\\)"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BackboneConfig(**SMALL | change)


def test_odd_heads_without_grouped_blocks() -> None:
    config = BackboneConfig(**SMALL | {"heads": 3, "width": 60, "full_kv_blocks": 3})
    assert [config.kv_heads(block) for block in range(5)] == [3] * 5
    with pytest.raises(IndexError, match="blocks are 0 to 4"):
        config.kv_heads(5)


def test_replace() -> None:
    config = BackboneConfig(**SMALL)
    assert config.replace(width=128).ffn_width == 256
    assert config.replace(width=128, ffn_width=8).ffn_width == 8
    assert config.replace(image_size=[32, 48]).grid == (2, 3)
    with pytest.raises(TypeError, match="did you mean 'rope_dtype'"):
        config.replace(rope_dtyp="float32")
    with pytest.raises(TypeError, match="the fields are width, "):
        config.replace(zzz=1)
