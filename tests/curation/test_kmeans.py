"""Centroids and assignments are exact and the same for any order of rows, block and number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from curation import kmeans as module
from curation.kmeans import nearest, spherical_kmeans
from curation.vectors import cosines, unit_rows


def unit(seed: int, n: int, d: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32))[0]


def blobs(seed: int, n: int, d: int, centres: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    which = rng.integers(0, centres, n)
    rows = unit(seed + 1, centres, d)[which] + noise / d**0.5 * rng.standard_normal((n, d)).astype(np.float32)
    return unit_rows(rows.astype(np.float32))[0], which


def rank(rows: np.ndarray, centroids: np.ndarray, count: int) -> np.ndarray:
    """Every cosine in float64, one pair at a time."""
    n, k = len(rows), len(centroids)
    score = cosines(np.repeat(rows, k, axis=0), np.tile(centroids, (n, 1))).reshape(n, k)
    score[np.isnan(score)] = 0
    return np.argsort(-score, axis=1, kind="stable")[:, :count].astype(np.int32)


@pytest.mark.parametrize("count", [1, 2, 3, 9, 40, 100])
@pytest.mark.parametrize("d", [1, 2, 33])
def test_nearest_is_the_exact_ranking(count: int, d: int) -> None:
    rows, centroids = unit(0, 200, d), unit(1, 40, d)
    assert np.array_equal(nearest(rows, centroids, count), rank(rows, centroids, min(count, 40)))


def test_nearest_decides_what_float32_cannot() -> None:
    # Centroids a few float32 steps apart: products in float32 order them at random.
    rng = np.random.default_rng(2)
    base = rng.standard_normal(256)
    centroids = unit_rows((base + 1e-6 * rng.standard_normal((50, 256))).astype(np.float32))[0]
    rows = unit_rows((base + 0.3 * rng.standard_normal((60, 256))).astype(np.float32))[0]
    expected = rank(rows, centroids, 3)
    assert (np.argsort(-(rows @ centroids.T), axis=1)[:, :3] != expected).any()
    assert np.array_equal(nearest(rows, centroids, 3), expected)


def test_equally_near_centroids_go_by_index() -> None:
    rows, few = unit(3, 30, 8), unit(4, 5, 8)
    centroids = np.repeat(few, 3, axis=0)
    found = nearest(rows, centroids, 4)
    assert (found[:, 0] % 3 == 0).all()
    assert (found[:, :3] == found[:, :1] + np.arange(3)).all()
    assert (found[:, 3] % 3 == 0).all()


def test_a_row_of_zeros_is_equally_near_to_all() -> None:
    rows = np.concatenate([np.zeros((1, 8), np.float32), unit(5, 3, 8), np.zeros((2, 8), np.float32)])
    found = nearest(rows, unit(6, 20, 8), 3)
    assert found[[0, 4, 5]].tolist() == [[0, 1, 2]] * 3
    assert np.array_equal(found[1:4], rank(rows[1:4], unit(6, 20, 8), 3))


def test_nearest_does_not_depend_on_blocks_or_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = blobs(7, 3000, 48, 30, 0.5)
    centroids = np.concatenate([rows[:60], rows[:60]])
    expected = nearest(rows, centroids, 3)
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert np.array_equal(nearest(rows, centroids, 3), expected)
            assert np.array_equal(nearest(rows[1000:1017], centroids, 3), expected[1000:1017])
    monkeypatch.setattr(module, "_TILE", 1)
    assert np.array_equal(nearest(rows, centroids, 3), expected)


def test_nearest_of_no_rows() -> None:
    assert nearest(np.zeros((0, 4), np.float32), unit(0, 3, 4), 2).shape == (0, 2)


@pytest.mark.parametrize(
    ("rows", "centroids", "count", "message"),
    [
        (unit(0, 3, 4), unit(1, 3, 4), 0, "count"),
        (unit(0, 3, 4), unit(1, 3, 5), 1, "dimensions"),
        (unit(0, 3, 4), unit(1, 0, 4), 1, "at least one centroid"),
        (unit(0, 3, 4).astype(np.float16), unit(1, 3, 4), 1, "float16"),
        (2 * unit(0, 3, 4), unit(1, 3, 4), 1, "row 0 of the vectors"),
        (unit(0, 3, 4), np.zeros((3, 4), np.float32), 1, "row 0 of the centroids"),
        (np.full((3, 4), np.nan, np.float32), unit(1, 3, 4), 1, "row 0 of the vectors"),
    ],
)
def test_nearest_refuses(rows: np.ndarray, centroids: np.ndarray, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest(rows, centroids, count)


def test_planted_clusters_are_found() -> None:
    rows, which = blobs(8, 2000, 32, 12, 0.3)
    # More clusters than planted ones: a random start puts two into one blob now and then.
    assigned = nearest(rows, spherical_kmeans(rows, 48, seed=0, iterations=20))[:, 0]
    table = np.zeros((48, 12), int)
    np.add.at(table, (assigned, which), 1)
    assert table.max(axis=1).sum() / table.sum() > 0.95


def test_a_spread_start_finds_each_of_few_blobs() -> None:
    sizes = {"random": [], "spread": []}
    for seed in range(12):
        rows, which = blobs(seed, 400, 16, 8, 0.2)
        for start, found in sizes.items():
            centroids = spherical_kmeans(rows, 8, seed=seed, iterations=20, start=start)
            assigned = nearest(rows, centroids)[:, 0]
            found.append(len(np.unique(which * 8 + assigned)))
    # Eight when each blob is one cluster; a random start joins two and splits another almost every time.
    assert sizes["spread"].count(8) >= 6
    assert sizes["random"].count(8) <= 2


def test_a_spread_start_takes_distinct_rows_and_does_not_see_their_order() -> None:
    rows = np.concatenate([unit(3, 30, 8), np.repeat(unit(4, 1, 8), 50, axis=0)])
    shuffled = rows[np.random.default_rng(0).permutation(len(rows))]
    first = spherical_kmeans(rows, 30, seed=5, iterations=0, start="spread")
    assert len(np.unique(first, axis=0)) == 30
    assert np.array_equal(first, spherical_kmeans(shuffled, 30, seed=5, iterations=0, start="spread"))


def test_iterations_raise_the_mean_cosine() -> None:
    rows, _ = blobs(9, 600, 16, 20, 0.8)

    def objective(iterations: int) -> float:
        centroids = spherical_kmeans(rows, 20, seed=3, iterations=iterations)
        return float(cosines(rows, centroids[nearest(rows, centroids)[:, 0]]).mean())

    values = [objective(iterations) for iterations in (0, 1, 3, 10)]
    assert values == sorted(values)
    assert values[3] > values[0] + 0.02


def test_a_fixed_point_is_the_mean_direction() -> None:
    rows, _ = blobs(10, 600, 16, 5, 0.3)
    centroids = spherical_kmeans(rows, 5, seed=0, iterations=200)
    assigned = nearest(rows, centroids)[:, 0]
    for cluster in range(5):
        mean = rows[assigned == cluster].astype(np.float64).sum(axis=0)
        assert np.allclose(mean / np.linalg.norm(mean), centroids[cluster], atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_order_of_rows_and_the_threads_do_not_matter(threads: int) -> None:
    rows, _ = blobs(11, 1500, 24, 20, 0.5)
    rows = np.concatenate([rows, rows[:200], rows[:50]])
    weights = np.random.default_rng(0).uniform(0.1, 2, len(rows))
    expected = spherical_kmeans(rows, 60, seed=5, iterations=6, weights=weights)
    order = np.random.default_rng(1).permutation(len(rows))
    with threadpool_limits(threads):
        found = spherical_kmeans(rows[order], 60, seed=5, iterations=6, weights=weights[order])
    assert found.tobytes() == expected.tobytes()
    assert not np.array_equal(spherical_kmeans(rows, 60, seed=6, iterations=6, weights=weights), expected)


def test_rows_too_many_to_copy_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = blobs(16, 900, 24, 20, 0.5)
    rows = np.concatenate([rows, rows[:100]])
    expected = spherical_kmeans(rows, 40, seed=5, iterations=4)
    monkeypatch.setattr(module, "_GATHER", 0)
    monkeypatch.setattr(module, "_TILE", 4000)
    assert spherical_kmeans(rows, 40, seed=5, iterations=4).tobytes() == expected.tobytes()


def test_equal_rows_count_as_often_as_they_come() -> None:
    rows, _ = blobs(12, 300, 8, 6, 0.5)
    times = np.random.default_rng(2).integers(1, 5, 300)
    repeated = spherical_kmeans(np.repeat(rows, times, axis=0), 10, seed=0, iterations=5)
    assert repeated.tobytes() == spherical_kmeans(rows, 10, seed=0, iterations=5, weights=times).tobytes()
    assert repeated.tobytes() != spherical_kmeans(rows, 10, seed=0, iterations=5).tobytes()


def test_weight_pulls_the_centroid() -> None:
    rows = unit_rows(np.array([[1, 0], [0, 1]], np.float32))[0]
    centroid = spherical_kmeans(rows, 1, seed=0, iterations=3, weights=[3, 1])
    assert np.allclose(centroid, np.array([[3, 1]]) / 10**0.5)


@given(
    st.integers(0, 12), st.integers(1, 15), st.integers(0, 4), st.lists(st.integers(0, 12), max_size=20), st.booleans()
)
@settings(max_examples=80, deadline=None)
def test_any_number_of_clusters_and_points(n: int, clusters: int, iterations: int, repeats: list, line: bool) -> None:
    rows = unit(13, n, 1 if line else 3)
    rows = np.concatenate([rows, rows[[at for at in repeats if at < n]]])
    distinct = np.unique(rows, axis=0)
    centroids = spherical_kmeans(rows, clusters, seed=0, iterations=iterations)
    assert centroids.shape == (min(clusters, len(distinct)), rows.shape[1])
    assert np.allclose(np.linalg.norm(centroids, axis=1), 1)
    if clusters >= len(distinct):
        assert np.array_equal(np.unique(centroids, axis=0), distinct)


def test_all_equal_rows_are_one_cluster() -> None:
    rows = np.repeat(unit(14, 1, 5), 50, axis=0)
    assert np.array_equal(spherical_kmeans(rows, 7, seed=0, iterations=5), rows[:1])


def test_opposite_rows_leave_the_centroid_where_it_was() -> None:
    rows = np.array([[1, 0], [-1, 0]], np.float32)
    centroid = spherical_kmeans(rows, 1, seed=0, iterations=4)
    assert centroid.tolist() in ([[1, 0]], [[-1, 0]])


def test_an_empty_cluster_takes_the_farthest_row_of_the_largest() -> None:
    rows = unit_rows(np.array([[1, 0], [1, 0.1], [1, 0.5], [0, 1], [0.1, 1]], np.float32))[0]
    centres = unit_rows(np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32))[0]
    assigned = np.array([0, 0, 0, 1, 1])
    module._fill_empty(rows, np.arange(5), assigned, centres)
    # Row 2 is the farthest of three; then both clusters have two rows, and the first gives its farther one.
    assert assigned.tolist() == [0, 3, 2, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clusters": 0}, "clusters"),
        ({"iterations": -1}, "iterations"),
        ({"seed": -1}, "seed"),
        ({"weights": [1.0, 2.0]}, "weights"),
        ({"weights": [0.0] * 10}, "above 0"),
        ({"weights": [np.nan] * 10}, "above 0"),
        ({"vectors": np.zeros((10, 4), np.float32)}, "all zero"),
        ({"vectors": np.ones((10, 4), np.float32)}, "unit length"),
        ({"vectors": np.ones(10, np.float32)}, "float32"),
    ],
)
def test_kmeans_refuses(change: dict, message: str) -> None:
    arguments = {"vectors": unit(15, 10, 4), "clusters": 2, "seed": 0, "iterations": 1} | change
    with pytest.raises(ValueError, match=message):
        spherical_kmeans(arguments.pop("vectors"), arguments.pop("clusters"), **arguments)
