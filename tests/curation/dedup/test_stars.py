"""Links resolve to the stars that going through every pair of rows one by one gives."""

from __future__ import annotations

from itertools import combinations, product
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import survivors
from curation.dedup.components import local_components
from curation.dedup.links import Kind, Links
from curation.dedup.stars import Stars, removed_curve, resolve_links

Relations = dict[tuple[int, int], tuple[int, float]]


def expand(links: Links) -> Relations:
    """Every related pair of rows (a < b), with the strongest kind and its value."""
    items = list(zip(links.kind.tolist(), links.a.tolist(), links.b.tolist(), links.value.tolist(), strict=True))
    rows = {end for _, a, b, _ in items for end in (a, b)}
    found: Relations = {}

    def relate(x: int, y: int, kind: Kind, value: float) -> None:
        key = (min(x, y), max(x, y))
        better = (kind, value if kind != Kind.NEAR_VECTOR else -value)
        old = found.get(key)
        if x != y and (old is None or better < (old[0], old[1] if old[0] != Kind.NEAR_VECTOR else -old[1])):
            found[key] = (kind, value)

    for same, near, at_zero in (
        (Kind.SAME_BYTES, None, (Kind.SAME_BYTES, 0.0)),
        (Kind.SAME_HASH, Kind.NEAR_HASH, (Kind.NEAR_HASH, 0.0)),
        (Kind.SAME_VECTOR, Kind.NEAR_VECTOR, (Kind.NEAR_VECTOR, 1.0)),
    ):
        groups: dict[int, set[int]] = {row: {row} for row in rows}
        for kind, a, b, _ in items:
            if kind == same:
                groups[a].add(b)
        for group in groups.values():
            for x, y in combinations(group, 2):
                relate(x, y, *at_zero)
        for kind, a, b, value in items:
            if near is not None and kind == near:
                for x, y in product(groups[a], groups[b]):
                    relate(x, y, near, value)
    return found


def plainly(relations: Relations, nodes: list[int], rank: dict[int, int]) -> dict[int, tuple[int, int, float]]:
    """{dropped row: (keeper, kind, value)}, by the rule, pair by pair."""
    order = sorted((n for n in nodes if n < 0), reverse=True) + sorted((n for n in nodes if n >= 0), key=rank.get)
    kept: list[int] = []
    dropped = {}
    for row in order:
        keepers = [other for other in kept if (min(row, other), max(row, other)) in relations]
        if row < 0 or not keepers:
            kept.append(row)
        else:
            dropped[row] = (keepers[0], *relations[min(row, keepers[0]), max(row, keepers[0])])
    return dropped


def as_dict(stars: Stars) -> dict[int, tuple[int, int, float]]:
    assert (np.diff(stars.row) > 0).all()
    return {
        row: (keeper, kind, value)
        for row, keeper, kind, value in zip(
            stars.row.tolist(), stars.keeper.tolist(), stars.kind.tolist(), stars.value.tolist(), strict=True
        )
    }


@st.composite
def graphs(draw: st.DrawFn, smallest: int = -4) -> tuple[Links, list[int], dict[int, int]]:
    """Random groups of each sort, random links between them, some of them repeated with other values."""
    rows = list(range(smallest, 14))
    parts = []
    for same, near, values in (
        (Kind.SAME_BYTES, None, ()),
        (Kind.SAME_HASH, Kind.NEAR_HASH, (1, 2, 3, 4)),
        (Kind.SAME_VECTOR, Kind.NEAR_VECTOR, (0.25, 0.5, 0.75)),
    ):
        labels = draw(st.lists(st.integers(0, 25), min_size=len(rows), max_size=len(rows)))
        name = [min(row for row, other in zip(rows, labels, strict=True) if other == label) for label in labels]
        members = [(n, row) for n, row in zip(name, rows, strict=True) if n != row]
        parts.append(Links.of(same, [n for n, _ in members], [row for _, row in members], float(same == 3)))
        names = sorted(set(name))
        if near is not None and len(names) > 1:
            ends = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
            edges = draw(st.lists(st.tuples(ends, st.sampled_from(values)), max_size=15))
            parts.append(Links.of(near, [a for (a, _), _ in edges], [b for (_, b), _ in edges], [v for _, v in edges]))
    links = Links.concat(parts)
    shuffled = links.take(np.array(draw(st.permutations(range(len(links)))), dtype=np.int64))
    return shuffled, rows, dict(zip(rows, draw(st.permutations(range(len(rows)))), strict=True))


def resolve(links: Links, nodes: list[int], rank: dict[int, int]) -> Stars:
    return resolve_links(links, np.array(nodes, np.int64), np.array([rank[node] for node in nodes], np.int64))


@given(graphs(), st.sampled_from([0, 2, 24]))
@settings(deadline=None, max_examples=60)
def test_equals_the_rule_applied_pair_by_pair(graph: tuple[Links, list[int], dict[int, int]], few: int) -> None:
    links, nodes, rank = graph
    # Groups with many links are marked in another way; here few are many.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("curation.dedup.stars._FEW", few)
        assert as_dict(resolve(links, nodes, rank)) == plainly(expand(links), nodes, rank)


@given(graphs(smallest=0))
@settings(deadline=None, max_examples=30)
def test_equals_survivors_of_all_pairs(graph: tuple[Links, list[int], dict[int, int]]) -> None:
    links, nodes, rank = graph
    pairs = np.array(list(expand(links)), dtype=np.int64).reshape(-1, 2)
    keeper = survivors(pairs, [-rank[node] for node in nodes], nodes)
    stars = resolve(links, nodes, rank)
    assert stars.row.tolist() == np.flatnonzero(keeper >= 0).tolist()
    assert stars.keeper.tolist() == keeper[keeper >= 0].tolist()


@given(graphs(), st.permutations(range(4)))
@settings(deadline=None, max_examples=30)
def test_components_can_be_resolved_apart(graph: tuple[Links, list[int], dict[int, int]], workers: list[int]) -> None:
    links, nodes, rank = graph
    ends, label = local_components(links)
    merged: dict[int, tuple[int, int, float]] = {}
    for worker in workers:
        mine = ends[label % 4 == worker]
        part = links.take(np.isin(links.a, mine))
        merged |= as_dict(resolve(part, mine.tolist(), rank))
    assert merged == as_dict(resolve(links, nodes, rank))


@given(graphs(), st.sampled_from(["hash", "vector"]))
@settings(deadline=None, max_examples=30)
def test_the_curve_counts_what_resolving_at_each_threshold_drops(
    graph: tuple[Links, list[int], dict[int, int]], kind: str
) -> None:
    links, nodes, rank = graph
    thresholds = [0, 2, 4, 1, 3] if kind == "hash" else [1.0, 0.3, 0.5, 0.25]
    expected = []
    for threshold in thresholds:
        relations = expand(
            links.take(
                (links.kind == Kind.SAME_BYTES)
                | (np.isin(links.kind, [1, 2]) & (links.value <= threshold) & (kind == "hash"))
                | (np.isin(links.kind, [3, 4]) & (links.value >= threshold) & (kind == "vector"))
            )
        )
        expected.append(len(plainly(relations, nodes, rank)))
    numbers = np.array([rank[node] for node in nodes])
    counts = removed_curve(links, np.array(nodes), numbers, kind, thresholds)  # type: ignore[arg-type]
    assert counts.dtype == np.int64
    assert counts.tolist() == expected


def test_a_link_exactly_at_the_threshold_counts() -> None:
    # Links hold 0.95 as a float32, which is below the float64 of that name.
    links = Links.of(Kind.NEAR_VECTOR, [0], [1], 0.95)
    assert removed_curve(links, np.arange(2), np.arange(2), "vector", [0.95]).tolist() == [1]


def test_chain_drops_every_second_row() -> None:
    n = 100_001
    links = Links.of(Kind.NEAR_HASH, np.arange(n - 1), np.arange(1, n), 4)
    stars = resolve_links(links, np.arange(n), np.arange(n))
    assert stars.row.tolist() == list(range(1, n, 2))
    assert stars.keeper.tolist() == list(range(0, n - 1, 2))
    assert (stars.value == 4).all()


@pytest.mark.parametrize("centre_rank", [0, 100_000])
def test_star_loses_its_rays_or_its_centre(centre_rank: int) -> None:
    n = 100_001
    rank = np.roll(np.arange(n), 0 if centre_rank == 0 else -1)
    rank = np.concatenate([[centre_rank], rank[1:] if centre_rank == 0 else np.arange(n - 1)])
    stars = resolve_links(Links.of(Kind.NEAR_HASH, np.zeros(n - 1), np.arange(1, n), 1), np.arange(n), rank)
    assert stars.row.tolist() == (list(range(1, n)) if centre_rank == 0 else [0])
    assert set(stars.keeper.tolist()) == ({0} if centre_rank == 0 else {1})


def test_clique_and_one_giant_group_leave_the_best() -> None:
    a, b = np.triu_indices(300, 1)
    clique = resolve_links(Links.of(Kind.NEAR_VECTOR, a, b, 0.99), np.arange(300), np.arange(300)[::-1].copy())
    assert clique.row.tolist() == list(range(299))
    assert set(clique.keeper.tolist()) == {299}
    n = 200_000
    group = Links.of(Kind.SAME_HASH, np.zeros(n - 1), np.arange(1, n), 0)
    rank = (np.arange(n) + 5) % n
    stars = resolve_links(group, np.arange(n), rank)
    assert len(stars) == n - 1
    assert set(stars.keeper.tolist()) == {n - 5}
    assert set(stars.kind.tolist()) == {Kind.NEAR_HASH}
    assert (stars.value == 0).all()


def test_many_kept_rows_of_an_earlier_corpus_follow_the_links_of_their_group_once() -> None:
    # 50,000 kept rows in one group with 50,000 links: each row following each link would take minutes.
    n = 50_000
    links = Links.concat(
        [
            Links.of(Kind.SAME_HASH, np.full(n - 1, -n), np.arange(-n + 1, 0), 0),
            Links.of(Kind.NEAR_HASH, np.full(n, -n), np.arange(n), 3),
        ]
    )
    begin = process_time()
    stars = resolve_links(links, np.arange(-n, n), np.arange(2 * n))
    assert process_time() - begin < 2
    assert stars.row.tolist() == list(range(n))
    assert (stars.keeper == -1).all()


def test_the_strongest_kind_is_named_when_a_pair_has_several() -> None:
    links = Links.concat(
        [
            Links.of(Kind.NEAR_VECTOR, [0, 0, 0], [1, 2, 3], [0.5, 0.75, 0.875]),
            Links.of(Kind.NEAR_HASH, [0, 0, 0], [2, 1, 1], [3, 2, 4]),
            Links.of(Kind.SAME_BYTES, [0], [1], 0),
            Links.of(Kind.SAME_VECTOR, [0], [4], 1),
        ]
    )
    stars = resolve_links(links, np.arange(5), np.arange(5))
    assert as_dict(stars) == {
        1: (0, Kind.SAME_BYTES, 0.0),
        2: (0, Kind.NEAR_HASH, 3.0),
        3: (0, Kind.NEAR_VECTOR, 0.875),
        4: (0, Kind.NEAR_VECTOR, 1.0),
    }


def test_no_links_drop_nothing() -> None:
    empty = np.empty(0, np.int64)
    for nodes in (empty, np.array([-3, 5])):
        stars = resolve_links(Links.none(), nodes, np.arange(len(nodes)))
        assert len(stars) == 0
        assert [a.dtype for a in (stars.row, stars.keeper, stars.kind, stars.value)] == [
            np.int64,
            np.int64,
            np.int8,
            np.float32,
        ]
    assert removed_curve(Links.none(), empty, empty, "hash", [0, 4]).tolist() == [0, 0]
    assert removed_curve(Links.none(), empty, empty, "hash", []).tolist() == []


@pytest.mark.parametrize(
    ("links", "nodes", "rank", "message"),
    [
        (Links.of(Kind.NEAR_HASH, [0], [9], 1), [0, 1], [0, 1], "row 9, which is not among the 2 nodes"),
        (Links.of(Kind.NEAR_HASH, [0], [9], 1), [], [], "not among the 0 nodes"),
        (Links.none(), [1, 0], [0, 1], "must ascend"),
        (Links.none(), [1, 1], [0, 1], "must ascend"),
        (Links.none(), [0, 1], [3, 3], "two nodes have rank 3"),
        (Links.none(), [0, 1], [3], "of one length"),
        (Links.none(), [0.0, 1.0], [0, 1], "nodes must be int64"),
        (Links.of(Kind.SAME_HASH, [0, 1], [2, 2], 0), [0, 1, 2], [0, 1, 2], "SAME_HASH links put row 2"),
        (Links.of(Kind.SAME_BYTES, [0, 1], [1, 2], 0), [0, 1, 2], [0, 1, 2], "SAME_BYTES links put"),
    ],
)
def test_bad_input_is_refused(links: Links, nodes: list, rank: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_links(links, np.array(nodes), np.array(rank))


def test_unknown_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="'hash' or 'vector'"):
        removed_curve(Links.none(), np.arange(2), np.arange(2), "bytes", [1])  # type: ignore[arg-type]


def test_ranks_of_an_earlier_corpus_are_ignored() -> None:
    links = Links.of(Kind.NEAR_HASH, [-2, -1], [0, 0], [1, 2])
    stars = resolve_links(links, np.array([-2, -1, 0]), np.array([0, 0, 0]))
    assert as_dict(stars) == {0: (-1, Kind.NEAR_HASH, 2.0)}
