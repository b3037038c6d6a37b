"""A hierarchy depends on the set of vectors alone, and its upper levels are not drawn to where the pool is dense."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from curation.balance import hierarchical_kmeans, training_rows


def blobs(sizes: list[int], seed: int = 0, dimensions: int = 16, noise: float = 0.05) -> np.ndarray:
    """Rows around random directions, blob after blob. float16 [sum(sizes), d]."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((len(sizes), dimensions))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    rows = np.repeat(centres, sizes, axis=0)
    return (rows + noise * rng.standard_normal(rows.shape)).astype(np.float16)


def test_levels_shapes_and_parents() -> None:
    rows = blobs([60] * 10)
    tree = hierarchical_kmeans(rows, (40, 10, 3), iterations=8)
    assert [centres.shape for centres in tree.centroids] == [(40, 16), (10, 16), (3, 16)]
    assert [parent.shape for parent in tree.parents] == [(40,), (10,)]
    for centres in tree.centroids:
        assert centres.dtype == np.float32
        assert np.allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    for level, parent in enumerate(tree.parents):
        similar = tree.centroids[level].astype(float) @ tree.centroids[level + 1].T.astype(float)
        assert np.array_equal(parent, similar.argmax(axis=1))


def test_leaves_do_not_mix_what_is_far_apart() -> None:
    rows = blobs([50] * 6, noise=0.02)
    leaf = hierarchical_kmeans(rows, (24, 6), iterations=20).assign(rows)
    blob = np.repeat(np.arange(6), 50)
    assert len(np.unique(leaf)) > 20
    assert all(len(np.unique(blob[leaf == one])) == 1 for one in np.unique(leaf))


def test_the_same_bytes_for_any_order_of_rows_and_any_threads() -> None:
    rows = blobs([300, 80, 40, 10, 5], seed=1)
    rows = np.concatenate([rows, rows[:50], rows[:50]])
    first = hierarchical_kmeans(rows, (30, 8, 2), iterations=6, train_rows=200, seed=3)
    for seed in range(2):
        shuffled = rows[np.random.default_rng(seed).permutation(len(rows))]
        with threadpool_limits(seed + 1):
            assert (
                hierarchical_kmeans(shuffled, (30, 8, 2), iterations=6, train_rows=200, seed=3).to_bytes()
                == first.to_bytes()
            )
    assert hierarchical_kmeans(rows, (30, 8, 2), iterations=6, train_rows=200, seed=4).to_bytes() != first.to_bytes()


def test_the_sample_of_parts_samples_is_the_sample_of_the_whole() -> None:
    rows = blobs([100, 20], seed=2)
    rows = np.concatenate([rows, rows[:30]])
    whole = rows[training_rows(rows, 25, seed=5)]
    parts = [part[training_rows(part, 25, seed=5)] for part in (rows[:70], rows[70:71], rows[71:])]
    merged = np.concatenate(parts)
    assert np.array_equal(merged[training_rows(merged, 25, seed=5)], whole)
    assert len(np.unique(whole, axis=0)) == 25
    assert not np.array_equal(rows[training_rows(rows, 25, seed=6)], whole)


def test_copies_do_not_get_clusters_of_their_own() -> None:
    rows = blobs([40, 40, 40], seed=4)
    copies = np.concatenate([rows, np.repeat(rows[:1], 5000, axis=0)])
    assert (
        hierarchical_kmeans(copies, (12, 3), iterations=5).to_bytes()
        == hierarchical_kmeans(rows, (12, 3), iterations=5).to_bytes()
    )


def test_rows_without_direction_are_left_out() -> None:
    rows = blobs([30, 30], seed=5).astype(np.float32)
    odd = np.zeros((4, 16), np.float32)
    odd[1, 3], odd[2, 0], odd[3, 5] = np.nan, np.inf, -np.inf
    mixed = np.concatenate([odd[:2], rows, odd[2:]])
    tree = hierarchical_kmeans(mixed, (8, 2), iterations=5, train_rows=50)
    assert tree.to_bytes() == hierarchical_kmeans(rows, (8, 2), iterations=5, train_rows=50).to_bytes()
    leaf = tree.assign(mixed)
    assert (leaf[[0, 1, -2, -1]] == -1).all()
    assert (leaf[2:-2] >= 0).all()


@pytest.mark.parametrize("kind", ["none", "unusable", "one", "equal", "few"])
def test_fewer_vectors_than_clusters(kind: str) -> None:
    rows = {
        "none": np.empty((0, 4), np.float16),
        "unusable": np.zeros((5, 4), np.float16),
        "one": np.ones((1, 4), np.float16),
        "equal": np.ones((500, 4), np.float16),
        "few": np.eye(4, dtype=np.float16)[:3],
    }[kind]
    distinct = {"none": 0, "unusable": 0, "one": 1, "equal": 1, "few": 3}[kind]
    tree = hierarchical_kmeans(rows, (10, 4, 2))
    assert [len(centres) for centres in tree.centroids] == [min(distinct, clusters) for clusters in (10, 4, 2)]
    leaf = tree.assign(rows)
    assert len(leaf) == len(rows)
    assert len(np.unique(leaf[leaf >= 0])) == distinct
    assert ((leaf >= 0) == (rows != 0).any(axis=1)).all()


def test_one_level() -> None:
    tree = hierarchical_kmeans(blobs([20, 20]), (4,))
    assert len(tree.centroids) == 1
    assert tree.parents == ()


def test_resampling_evens_the_upper_levels() -> None:
    # 90 % of the rows lie in one narrow region, so it gets most leaves, and plain k-means gives it most tops too.
    rows = blobs([3000, *[30] * 20], seed=7, dimensions=24, noise=0.15)
    region = np.repeat(np.arange(21), [3000, *[30] * 20])
    tops = {}
    for resample in (0, 10):
        tree = hierarchical_kmeans(rows, (150, 20), iterations=10, resample=resample)
        node = tree.path(tree.assign(rows))[:, 1]
        tops[resample] = len(np.unique(node[region == 0]))
    assert tops[10] < tops[0]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"levels": (4, 4)}, "strictly decreasing"),
        ({"levels": ()}, "at least one"),
        ({"levels": (4, 0)}, "1 or more"),
        ({"levels": (4.5,)}, "1 or more"),
        ({"levels": (4,), "iterations": 0}, "iterations must be at least 1"),
        ({"levels": (4,), "train_rows": 0}, "train_rows must be at least 1"),
        ({"levels": (4,), "resample": -1}, "resample"),
        ({"levels": (4,), "resample_members": 0}, "resample_members"),
        ({"levels": (4,), "seed": -1}, "seed"),
    ],
)
def test_bad_numbers_are_errors(arguments, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        hierarchical_kmeans(np.ones((3, 2), np.float32), **arguments)


def test_bad_vectors_are_errors() -> None:
    with pytest.raises(TypeError, match="float64"):
        hierarchical_kmeans(np.ones((3, 2)), (2,))
    with pytest.raises(ValueError, match="dimensions"):
        hierarchical_kmeans(np.ones(3, np.float32), (2,))
