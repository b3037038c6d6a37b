"""Masks: the exact number for every grid, ratio and kind; rectangles that fit; draws that depend on the key alone."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from training.models.visible import check_positions
from training.objectives.masks import MaskConfig, sample_blocks, sample_keep, visible_count

GRID = (64, 48)


def _rng(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([*key, 0][:2], np.uint64)))


configs = st.builds(
    MaskConfig,
    ratio=st.floats(0, 0.99),
    block_probability=st.sampled_from([0.0, 0.4, 1.0]),
    min_block=st.integers(1, 40),
    max_block_share=st.floats(0.01, 1),
    aspect=st.floats(0.05, 1),
    attempts=st.integers(1, 12),
)


@settings(max_examples=200, deadline=None)
@given(config=configs, grid=st.tuples(st.integers(1, 24), st.integers(1, 24)), key=st.integers(0, 2**63))
def test_every_draw_has_the_exact_number_sorted_and_distinct(
    config: MaskConfig, grid: tuple[int, int], key: int
) -> None:
    keep = sample_keep(_rng(key), grid, config)
    tokens = grid[0] * grid[1]
    assert keep.dtype == np.int64
    assert keep.shape == (visible_count(tokens, config.ratio),)
    assert (np.diff(keep) > 0).all()
    assert keep[0] >= 0
    assert keep[-1] < tokens
    assert (sample_keep(_rng(key), grid, config) == keep).all()


@settings(max_examples=200, deadline=None)
@example(config=MaskConfig(aspect=1.0), grid=(12, 9), key=0)
@given(config=configs, grid=st.tuples(st.integers(1, 24), st.integers(1, 24)), key=st.integers(0, 2**63))
def test_block_masks_are_rectangles_topped_up(config: MaskConfig, grid: tuple[int, int], key: int) -> None:
    config = config.model_copy(update={"block_probability": 1.0})
    visible = set(sample_keep(_rng(key), grid, config).tolist())
    hidden = grid[0] * grid[1] - len(visible)
    rng = _rng(key)
    rng.random()  # the draw of the kind comes first
    union: set[int] = set()
    for top, left, rows, columns in sample_blocks(rng, grid, hidden, config):
        assert 0 <= top <= top + rows - 1 < grid[0]
        assert 0 <= left <= left + columns - 1 < grid[1]
        cells = {r * grid[1] + c for r in range(top, top + rows) for c in range(left, left + columns)}
        assert cells - union, "every rectangle hides something new"
        # Sides are rounded, each by half a token at most.
        largest = max(config.min_block, config.max_block_share * grid[0] * grid[1])
        assert (rows - 0.5) * (columns - 0.5) <= largest or min(rows, columns) == 1
        union |= cells
    assert len(union) <= hidden
    assert not union & visible


@given(tokens=st.integers(1, 5000), percent=st.integers(0, 99))
def test_visible_count_is_exact_whatever_floats_do(tokens: int, percent: int) -> None:
    hidden = math.floor(Fraction(percent, 100) * tokens + Fraction(1, 2))
    # The share as a float may lie a hair below a half.
    exact = Fraction(percent, 100) * tokens % 1 == Fraction(1, 2)
    assert visible_count(tokens, percent / 100) in {max(1, tokens - hidden), max(1, tokens - hidden + exact)}


def test_the_recipe_leaves_768_of_3072_tokens_in_both_kinds() -> None:
    assert visible_count(3072, 0.75) == 768
    for probability in (0.0, 1.0):
        keep = sample_keep(_rng(1), GRID, MaskConfig(block_probability=probability))
        assert len(keep) == 768
        check_positions(torch.from_numpy(keep)[None], 3072)
    assert len(sample_keep(_rng(1), GRID, MaskConfig(ratio=0))) == 3072
    assert len(sample_keep(_rng(1), (1, 1), MaskConfig())) == 1


def _like_neighbours(keep: np.ndarray) -> float:
    """The share of pairs of tokens side by side that are both visible or both hidden."""
    visible = np.zeros(GRID[0] * GRID[1], bool)
    visible[keep] = True
    grid = visible.reshape(GRID)
    return float((grid[:, 1:] == grid[:, :-1]).mean())


def test_blocks_come_with_their_probability_and_look_like_blocks() -> None:
    # Token by token, neighbours agree in 0.75^2 + 0.25^2 = 0.625 of pairs; around rectangles in most.
    single = [_like_neighbours(sample_keep(_rng(2, i), GRID, MaskConfig(block_probability=0))) for i in range(50)]
    block = [_like_neighbours(sample_keep(_rng(2, i), GRID, MaskConfig(block_probability=1))) for i in range(50)]
    assert max(single) < 0.67 < 0.8 < min(block)
    mixed = [_like_neighbours(sample_keep(_rng(3, i), GRID, MaskConfig())) > 0.75 for i in range(400)]
    assert 0.4 - 0.1 < np.mean(mixed) < 0.4 + 0.1  # four standard deviations


def test_rectangles_hide_nearly_all_of_it() -> None:
    hidden, config = 2304, MaskConfig()
    tall: list[bool] = []
    for i in range(50):
        mask = np.zeros(GRID, bool)
        for top, left, rows, columns in sample_blocks(_rng(4, i), GRID, hidden, config):
            mask[top : top + rows, left : left + columns] = True
            # Sides are rounded, each by half a token at most.
            assert 0.3 * (columns - 0.5) <= rows + 0.5
            assert 0.3 * (rows - 0.5) <= columns + 0.5
            tall.append(rows > columns)
        assert 0.9 * hidden < mask.sum() <= hidden
    assert 0.4 < np.mean(tall) < 0.6


def test_tokens_are_hidden_evenly() -> None:
    seen = np.zeros(192)
    config = MaskConfig(block_probability=0)
    for i in range(800):
        seen[sample_keep(_rng(5, i), (16, 12), config)] += 1
    # Binomial, 800 draws of 1/4: 200 with deviation 12.2.
    assert seen.min() > 140
    assert seen.max() < 260


def test_other_keys_give_other_masks() -> None:
    draws = {sample_keep(_rng(6, i), GRID, MaskConfig()).tobytes() for i in range(20)}
    assert len(draws) == 20


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="a grid of 0x3 tokens"):
        sample_keep(_rng(0), (0, 3), MaskConfig())
    with pytest.raises(ValueError, match="0 tokens"):
        visible_count(0, 0.5)
    with pytest.raises(ValueError, match=r"a share of 1\.0"):
        visible_count(9, 1.0)
    for bad in ({"ratio": 1.0}, {"ratio": -0.1}, {"min_block": 0}, {"aspect": 0.0}, {"attempts": 0}, {"blocks": 1}):
        with pytest.raises(ValidationError):
            MaskConfig(**bad)
