"""Distances between planted pictures, on hashes and vectors of known distance."""

from __future__ import annotations

import numpy as np

from eval.benchmarks.planted import KINDS
from eval.benchmarks.planted_measured import NO_DISTANCE, Measured, measure


def known() -> Measured:
    """Three families of (original, copy): 2 bits apart; a mirrored copy; a copy whose hash is degenerate."""
    phash = np.array([[0b1111, 0b1001], [0xFF00, 0x00FF], [0b1111, 0b1111]], np.uint64)
    mirrored = np.array([[0xF0F0, 0xF0F0], [0x00FF, 0xFF01], [0xFF01, 0b1111]], np.uint64)
    vectors = np.array([[[1, 0], [1, 0]], [[0, 2], [3, 0]], [[1, 1], [1, 0]]], np.float16)
    usable = np.array([[True, True], [True, True], [True, False]])
    return Measured(
        ("original", "copy"), np.array(["a", "a", "b"]), np.array(["x", "y", "y"]), phash, mirrored, usable, vectors
    )


def test_distances_to_copies() -> None:
    assert known().distance("copy", mirrored=False).tolist() == [2, 16, NO_DISTANCE]
    assert known().distance("copy", mirrored=True).tolist() == [2, 1, NO_DISTANCE]
    assert np.allclose(known().cosine("copy"), [1, 0, 0.5**0.5])


def test_pairs_of_originals() -> None:
    # In the order (0, 1), (0, 2), (1, 2).
    assert known().pair_distance(mirrored=False).tolist() == [12, 0, 12]
    assert known().pair_distance(mirrored=True).tolist() == [4, 0, 1]
    assert known().apart().tolist() == [False, True, False]
    assert np.allclose(known().pair_cosine(), [0, 0.5**0.5, 0.5**0.5])


def test_originals_alone_are_measured_without_embeddings() -> None:
    alone = measure(2, seed=5, relatives=False)
    assert alone.kinds == KINDS[:1]
    assert alone.phash.shape == alone.mirrored.shape == alone.usable.shape == (2, 1)
    assert alone.embedding.shape == (2, 0)
    assert alone.usable.all()
    again = measure(1, seed=5, relatives=False)
    assert again.phash[0, 0] == alone.phash[0, 0] != alone.phash[1, 0]
