"""Keys of rows are uniform, and depend on the id and the seed alone: pinned, since samples rest on them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.mixing import id_keys, mix64
from curation.records import record_id

ALL = (1 << 64) - 1


def mixed(value: int) -> int:
    """The finaliser of SplitMix64 in whole numbers."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & ALL
    return value ^ (value >> 31)


def unmixed(value: int) -> int:
    """Its inverse."""
    value ^= (value >> 31) ^ (value >> 62)
    value = value * pow(0x94D049BB133111EB, -1, 1 << 64) & ALL
    value ^= (value >> 27) ^ (value >> 54)
    value = value * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & ALL
    return value ^ (value >> 30) ^ (value >> 60)


def test_the_published_generator_comes_out() -> None:
    # First outputs of SplitMix64 from seed 0, as in the reference implementation of xoshiro's seeding.
    golden = 0x9E3779B97F4A7C15
    states = [golden * step & ALL for step in (1, 2, 3)]
    assert [hex(value) for value in mix64(states).tolist()] == [
        "0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f",
    ]  # fmt: skip


@given(st.lists(st.integers(0, ALL), max_size=20))
@settings(deadline=None, max_examples=50)
def test_mixing_is_one_to_one_and_leaves_its_input_alone(values: list[int]) -> None:
    given_ = np.array(values, np.uint64)
    out = mix64(given_)
    assert given_.tolist() == values
    assert out.dtype == np.uint64
    assert out.tolist() == [mixed(value) for value in values]
    assert [unmixed(value) for value in out.tolist()] == values


def test_a_number_alone_and_negative_rows() -> None:
    assert int(mix64(np.uint64(7))) == mixed(7)
    assert mix64(np.array([-1, -2])).tolist() == [mixed(ALL), mixed(ALL - 1)]


@given(st.lists(st.text(max_size=5), max_size=10), st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=50)
def test_a_key_is_a_function_of_the_id_and_the_seed(names: list[str], seed: int) -> None:
    ids = [record_id(name, "") for name in names]
    expected = [mixed(int(name[:16], 16) ^ mixed(seed)) for name in ids]
    assert id_keys(pa.array(ids, pa.string()), seed).tolist() == expected
    chunks = pa.chunked_array([ids[:2], ids[2:]], pa.string())
    assert id_keys(chunks, seed).tolist() == expected
    # A part of an array: its text begins in the middle of a buffer.
    assert id_keys(pa.array(ids, pa.string()).slice(1), seed).tolist() == expected[1:]


def test_keys_are_uniform_and_seeds_have_nothing_to_do_with_each_other() -> None:
    ids = pa.array([record_id(str(number), "") for number in range(20_000)])
    keys = [id_keys(ids, seed) for seed in (0, 1)]
    for key in keys:
        counts = np.bincount((key >> np.uint64(60)).astype(np.int64), minlength=16)
        assert (((counts - 1250) ** 2) / 1250).sum() < 45  # chi^2 of 15 degrees of freedom, p about 1e-4
    assert abs(np.corrcoef(keys[0].astype(np.float64), keys[1].astype(np.float64))[0, 1]) < 0.03


@pytest.mark.parametrize("bad", ["", "abc", "A" * 32, "g" * 32, "0" * 33, "0" * 31 + "\n", None])
def test_what_is_no_record_id_is_refused(bad: str | None) -> None:
    with pytest.raises(ValueError, match="record ids: 32 hexadecimal characters"):
        id_keys(pa.array([record_id("a", ""), bad], pa.string()))
