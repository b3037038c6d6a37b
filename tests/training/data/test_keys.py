"""Draws depend on their key, and on nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training.data.keys import Purpose, derive_key, generator, permutation

words = st.integers(0, 2**64 - 1)


def mix(value: int) -> int:
    """SplitMix64's finaliser in plain integers."""
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 % 2**64
    value ^= value >> 27
    value = value * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


@given(st.lists(words, max_size=4))
def test_keys_against_plain_integers(parts: list[int]) -> None:
    state = 0
    for part in parts:
        state = mix((state + 0x9E3779B97F4A7C15 + part) % 2**64)
    assert derive_key(*parts) == state


@given(st.integers(0, 60), words)
def test_permutations_against_sorting_plain_integers(count: int, seed: int) -> None:
    key = derive_key(seed, 3)
    states = [mix((key + number * 0x9E3779B97F4A7C15) % 2**64) for number in range(count)]
    assert permutation(count, seed, 3).tolist() == sorted(range(count), key=states.__getitem__)


def test_parts_their_order_and_purposes_make_different_draws() -> None:
    keys = [(1, 2), (2, 1), (1, 2, 0), (3,), (0, 3), (5, Purpose.VIEWS, 7), (5, Purpose.MASK, 7)]
    assert len({generator(*key).random() for key in keys}) == len(keys)
    assert generator(1, 2).random() == generator(1, 2).random()
