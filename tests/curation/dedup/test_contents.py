"""Rows with the same bytes form one group, named by its smallest row."""

from __future__ import annotations

import hashlib
import random as randomness

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup.contents import content_keys, same_bytes_links
from curation.dedup.links import Kind


def digest(content: int) -> str:
    return hashlib.sha256(str(content).encode()).hexdigest()


def test_a_key_is_the_first_half_of_the_digest() -> None:
    digests = ["0" * 64, "f" * 64, "0123456789abcdeffedcba9876543210" + "1" * 32]
    keys = content_keys(pa.array(digests))
    assert keys.dtype == np.uint64
    assert keys.tolist() == [[0, 0], [2**64 - 1] * 2, [0x0123456789ABCDEF, 0xFEDCBA9876543210]]
    chunked = pa.chunked_array([digests[:1], [], digests[1:]], pa.string())
    assert content_keys(chunked).tolist() == keys.tolist()
    assert content_keys(pa.array(digests).slice(2)).tolist() == keys[2:].tolist()
    assert content_keys(pa.array([], pa.string())).shape == (0, 2)


@pytest.mark.parametrize("bad", [None, "", "a" * 31, "A" * 64, "g" * 64])
def test_a_row_without_a_digest_is_refused(bad: str | None) -> None:
    with pytest.raises(ValueError, match="SHA-256 must be given for every row"):
        content_keys(pa.array([digest(0), bad], pa.string()))


@given(st.dictionaries(st.integers(-8, 30), st.integers(0, 6), max_size=25), st.randoms())
@settings(deadline=None, max_examples=60)
def test_groups_are_those_of_a_dictionary(content_of: dict[int, int], random: randomness.Random) -> None:
    rows = list(content_of)
    random.shuffle(rows)
    keys = content_keys(pa.array([digest(content_of[row]) for row in rows], pa.string()))
    links = same_bytes_links(keys, np.array(rows, np.int64))
    groups: dict[int, list[int]] = {}
    for row in sorted(content_of):
        groups.setdefault(content_of[row], []).append(row)
    expected = {(group[0], row) for group in groups.values() if group[-1] >= 0 for row in group[1:]}
    assert sorted(zip(links.a.tolist(), links.b.tolist(), strict=True)) == sorted(expected)
    assert set(links.kind.tolist()) <= {Kind.SAME_BYTES}
    assert not links.value.any()


def test_digests_that_agree_in_one_half_only_are_apart() -> None:
    keys = np.array([[1, 2], [1, 3], [0, 2], [1, 2]], np.uint64)
    links = same_bytes_links(keys, np.arange(4))
    assert (links.a.tolist(), links.b.tolist()) == ([0], [3])


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_one_giant_group_costs_one_link_a_row(count: int) -> None:
    rows = np.random.default_rng(0).permutation(count)
    links = same_bytes_links(np.full((count, 2), 7, np.uint64), rows)
    assert set(links.a.tolist()) <= {0}
    assert sorted(links.b.tolist()) == list(range(1, count))
