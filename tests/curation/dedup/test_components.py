"""Components come out the same from one machine and from any number of partitions, in few rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup.components import (
    large_star,
    local_components,
    small_star,
    spanning_edges,
    star_components,
    unsettled,
)
from curation.dedup.links import Kind, Links

edges = st.lists(st.tuples(st.integers(-6, 30), st.integers(-6, 30)), max_size=60).map(
    lambda pairs: np.array(pairs, dtype=np.int64).reshape(-1, 2)
)


def flood(pairs: np.ndarray) -> dict[int, int]:
    """{node: smallest node that can be reached}, by walking."""
    near: dict[int, set[int]] = {}
    for u, v in pairs.tolist():
        near.setdefault(u, set()).add(v)
        near.setdefault(v, set()).add(u)
    label: dict[int, int] = {}
    for start in sorted(near):
        front = [start]
        while front:
            node = front.pop()
            if node not in label:
                label[node] = start
                front.extend(near[node])
    return label


def links(pairs: np.ndarray) -> Links:
    return Links.of(Kind.NEAR_HASH, pairs[:, 0], pairs[:, 1], 1)


def grid(side: int) -> np.ndarray:
    cells = np.arange(side * side).reshape(side, side)
    across = np.stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()], axis=1)
    return np.concatenate([across, np.stack([cells[:-1].ravel(), cells[1:].ravel()], axis=1)])


def path(n: int) -> np.ndarray:
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


def renamed(pairs: np.ndarray, seed: int) -> np.ndarray:
    """The same graph with shuffled, sparse, partly negative node numbers."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.arange(pairs.max() + 1)) * 7 - 1000
    return names[pairs]


@given(edges)
@settings(deadline=None)
def test_local_components_equal_walking_the_graph(pairs: np.ndarray) -> None:
    nodes, label = local_components(links(pairs))
    assert (np.diff(nodes) > 0).all()
    assert dict(zip(nodes.tolist(), label.tolist(), strict=True)) == flood(pairs)


@given(edges, st.integers(1, 9))
@settings(deadline=None)
def test_any_number_of_partitions_gives_the_same(pairs: np.ndarray, partitions: int) -> None:
    nodes, label, _ = star_components(pairs[:, 0], pairs[:, 1], partitions)
    assert dict(zip(nodes.tolist(), label.tolist(), strict=True)) == flood(pairs)


@pytest.mark.parametrize("partitions", [1, 3, 8])
@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("path", path(10_000)),
        ("shuffled path", renamed(path(10_000), 1)),
        ("grid", renamed(grid(100), 2)),
        ("star", np.stack([np.full(9_999, 9_999), np.arange(9_999)], axis=1)),
        ("clique", renamed(np.stack(np.triu_indices(120, 1), axis=1), 3)),
        ("sparse", np.random.default_rng(4).integers(0, 20_000, (11_000, 2))),
        ("pairs", np.arange(20_000).reshape(-1, 2)),
    ],
)
def test_large_graphs_settle_in_few_rounds(name: str, pairs: np.ndarray, partitions: int) -> None:
    nodes, label, rounds = star_components(pairs[:, 0], pairs[:, 1], partitions)
    expected_nodes, expected = local_components(links(pairs))
    np.testing.assert_array_equal(nodes, expected_nodes)
    np.testing.assert_array_equal(label, expected)
    assert rounds <= (0 if partitions == 1 else 14), name


def test_rounds_are_few_without_local_reduction_too() -> None:
    # Each edge on its own worker, so that spanning_edges has nothing to reduce.
    pairs = path(128)
    assert star_components(pairs[:, 0], pairs[:, 1], 127)[2] <= 8


@given(edges)
@settings(deadline=None)
def test_each_step_keeps_the_components_and_adds_no_edges(pairs: np.ndarray) -> None:
    expected = {node: label for node, label in flood(pairs).items() if node != label}
    u, v = spanning_edges(pairs[:, 0], pairs[:, 1])
    assert dict(zip(u.tolist(), v.tolist(), strict=True)) == expected
    loops = pairs[:, 0] == pairs[:, 1]
    a, b = pairs[~loops].min(axis=1), pairs[~loops].max(axis=1)
    distinct = len(set(zip(a.tolist(), b.tolist(), strict=True)))
    for larger, smaller in (large_star(np.concatenate([a, b]), np.concatenate([b, a])), small_star(b, a)):
        assert (larger > smaller).all()
        assert len(set(zip(larger.tolist(), smaller.tolist(), strict=True))) == len(larger) <= distinct
        label = flood(np.stack([larger, smaller], axis=1))
        assert {node: least for node, least in label.items() if node != least} == expected


def test_one_step_by_hand() -> None:
    # 3 has the neighbours 1, 5 and 7: the larger ones go to 1.
    larger, smaller = large_star([3, 3, 3], [1, 5, 7])
    assert list(zip(larger.tolist(), smaller.tolist(), strict=True)) == [(5, 1), (7, 1)]
    # 4 is smaller than all of its neighbours and keeps them.
    assert [end.tolist() for end in large_star([4, 4], [6, 5])] == [[5, 6], [4, 4]]
    # 7 sees 1, 3 and 5: it and they go to 1.
    assert [end.tolist() for end in small_star([7, 7, 7, 7], [3, 1, 5, 1])] == [[3, 5, 7], [1, 1, 1]]


def test_only_stars_around_their_smallest_node_are_settled() -> None:
    def both(pairs: list[tuple[int, int]]) -> int:
        u, v = np.array(pairs + [(v, u) for u, v in pairs], dtype=np.int64).reshape(-1, 2).T
        return unsettled(u, v)

    assert both([]) == 0
    assert both([(0, 1), (0, 2), (5, 6)]) == 0
    assert both([(0, 1), (1, 2)]) == 1
    assert both([(0, 3), (1, 3), (2, 3)]) == 1
    assert both([(0, 1), (1, 2), (0, 2)]) == 2


def test_an_edge_repeated_many_times_is_an_edge() -> None:
    # SciPy adds repeats up; 256 of them in one byte would be 0.
    nodes, label = local_components(links(np.full((256, 2), [4, 9])))
    assert (nodes.tolist(), label.tolist()) == ([4, 9], [4, 4])


def test_no_edges() -> None:
    empty = np.empty(0, np.int64)
    for result in (local_components(Links.none()), spanning_edges([], []), large_star([], []), small_star([], [])):
        assert [part.tolist() for part in result] == [[], []]
        assert all(part.dtype == np.int64 for part in result)
    nodes, label, rounds = star_components(empty, empty, 3)
    assert (nodes.tolist(), label.tolist(), rounds) == ([], [], 0)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        star_components([0], [1], 0)
    with pytest.raises(ValueError, match=r"\(larger, smaller\) only"):
        small_star([0], [1])
    with pytest.raises(ValueError, match="of one length"):
        spanning_edges([0, 1], [1])
    with pytest.raises(ValueError, match="must be integers"):
        large_star([0.5], [1.0])
