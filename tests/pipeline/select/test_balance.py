"""A budget is kept to the row, spread evenly over clusters and strata, and the same however the work is dealt out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.balance import BalanceConfig, StratumConfig, cell_quotas, effective_number, water_fill
from curation.dedup import NeighbourConfig
from curation.mixing import id_keys
from curation.vectors import cosines, unit_rows
from pipeline.select import SelectConfig, Selection
from pipeline.select.balance import cell_codes, load_hierarchy
from pipeline.select.steps import Steps
from tests.fixtures.inline import InlineSelector, inline_select, inline_selector
from tests.fixtures.selection import Picture, Run

SIZES = (60, 20, 8, 3)
"""Rows around each of four directions."""
YAWS = (-60.0, 0.0, 0.0, 0.0, 0.0, 60.0, None)
BY_YAW = StratumConfig(column="head_yaw", edges=(-30.0, 30.0))
NAMES = {None: "head_yaw unknown", -60.0: "head_yaw < -30", 0.0: "head_yaw [-30, 30)", 60.0: "head_yaw >= 30"}


def pool() -> list[Picture]:
    """Clusters of very different sizes, six rows without a usable embedding, two that do not pass; shuffled."""
    rng = np.random.default_rng(3)
    pictures = []
    for cluster, count in enumerate(SIZES):
        for number in range(count):
            vector = 10 * np.eye(4)[cluster] + rng.standard_normal(4)
            pictures.append(Picture(f"{cluster}-{number}", f"{cluster} {number}", vector=vector.astype(np.float16)))
    for number in range(6):
        pictures.append(
            Picture(f"none-{number}", f"n {number}", vector=None if number % 2 else np.zeros(4, np.float16))
        )
    pictures += [Picture(f"small-{number}", f"s {number}", vector=(1, 0, 0, 0), size=9) for number in range(2)]
    random.Random(1).shuffle(pictures)
    return [
        Picture(one.name, one.content, vector=one.vector, size=one.size, yaw=YAWS[at % len(YAWS)])
        for at, one in enumerate(pictures)
    ]


POOL = pool()


def config(**values: Any) -> SelectConfig:
    balance = {"budget": 30, "levels": (4,)} | values
    return SelectConfig(exact_duplicates=False, near_duplicates=None, balance=BalanceConfig(**balance))


def outcome(run: Run, selection: Selection) -> dict[str, tuple[Any, ...]]:
    """name -> (reason, detail, cluster, stratum)."""
    columns = ("reason", "detail", "cluster", "stratum")
    return {run.pictures[mark["row"]].name: tuple(mark[name] for name in columns) for mark in run.marks(selection)}


def tally(found: dict[str, tuple[Any, ...]], kept: bool = False) -> Counter[Any]:
    """Rows by family of the pool, of all or of those that stay."""
    return Counter(name.partition("-")[0] for name, mark in found.items() if not kept or mark[0] is None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("balance"), POOL, chunk_rows=25)


@pytest.mark.usefixtures("ray_cluster")
def test_a_budget_is_spread_evenly_over_clusters_on_a_cluster_of_machines(run: Run) -> None:
    choice = config(seed=1)  # k-means finds the families from this start
    selection = run.select(choice, "ray", partitions=2)
    found = outcome(run, selection)
    families = [str(number) for number in range(len(SIZES))]
    assert tally(found) == {**dict(zip(families, SIZES, strict=True)), "none": 6}
    # The rows without an embedding are one more cluster.
    shares = water_fill([*SIZES, 6], 30)
    kept = tally(found, kept=True)
    assert sorted(kept.values()) == sorted(shares.tolist())
    assert kept == {"0": kept["0"], "1": kept["1"], "2": kept["2"], "3": 3, "none": 6}
    # Clusters are the families, and every row says where it belongs.
    clusters = {family: {mark[2] for name, mark in found.items() if name.startswith(family)} for family in kept}
    assert clusters.pop("none") == {-1}
    assert sorted(cluster for members in clusters.values() for cluster in members) == [0, 1, 2, 3]
    assert {mark[3] for mark in found.values()} == {"all"}
    for name, (reason, detail, _, _) in found.items():
        family = name.partition("-")[0]
        total = tally(found)[family]
        over = f"{kept[family]} of the {total} rows of its cell stay"
        assert (reason, detail) in [(None, None), ("over_represented", over)]
    summary = selection.summary["balance"]
    assert summary["budget"] == 30
    assert summary["rows"] == {"before": 97, "after": 30}
    assert summary["no_embedding"] == {"before": 6, "after": 6}
    (level,) = summary["levels"]
    assert (level["before"]["rows"], level["after"]["rows"]) == (91, 24)
    assert level["before"]["effective"] == effective_number(SIZES)
    assert level["after"]["effective"] == effective_number([kept[family] for family in families])
    assert level["after"]["effective"] > level["before"]["effective"]
    assert level["before"]["largest"] == 60
    # Without a cluster of machines the same comes out.
    other = inline_select(run, choice, "inline", partitions=5)
    assert outcome(run, other) == found
    assert other.summary == selection.summary


def test_the_same_rows_stay_however_the_work_is_dealt_out(run: Run, tmp_path: Path) -> None:
    variants: dict[str, dict[str, Any]] = {
        "plain": {"levels": (9, 3), "share": 0.3, "budget": None},
        "sampled": {"levels": (5, 2), "train_rows": 40, "pick": "nearest", "seed": 5},
        "strata": {"strata": (BY_YAW,), "pick": "farthest"},
    }
    for name, values in variants.items():
        choice = config(**values)
        expected = inline_select(run, choice, f"{name}-1", partitions=1)
        marks = outcome(run, expected)
        assert len({mark[0] for mark in marks.values()}) == 2
        for partitions in (3, 8) if name == "plain" else (8,):
            other = inline_select(run, choice, f"{name}-{partitions}", partitions=partitions)
            assert outcome(run, other) == marks
            assert other.summary == expected.summary
        shuffled = Run(tmp_path / name, random.Random(2).sample(POOL, len(POOL)), chunk_rows=41)
        other = inline_select(shuffled, choice)
        assert outcome(shuffled, other) == marks
        assert other.summary == expected.summary


@pytest.mark.parametrize("pick", ["random", "nearest", "farthest"])
def test_which_rows_of_a_cluster_stay(run: Run, pick: str) -> None:
    selection = inline_select(run, config(pick=pick, seed=7), f"pick-{pick}")
    found = outcome(run, selection)
    centroids = load_hierarchy(selection.storage).centroids[0]
    pictures = {one.name: one for one in POOL}
    for cluster in range(-1, 4):
        names = [name for name, mark in found.items() if mark[2] == cluster]
        keys = id_keys(pa.array([pictures[name].id for name in names]), 8)  # the seed itself picks the training sample
        order = dict(zip(names, keys.tolist(), strict=True))
        if pick != "random" and cluster >= 0:
            vectors = unit_rows(np.array([pictures[name].vector for name in names], np.float16))[0]
            cosine = cosines(vectors, np.repeat(centroids[cluster][None], len(names), axis=0))
            assert len(set(cosine.tolist())) == len(names)
            order = dict(zip(names, (cosine if pick == "farthest" else -cosine).tolist(), strict=True))
        kept = [name for name in names if found[name][0] is None]
        assert sorted(kept) == sorted(sorted(names, key=order.__getitem__)[: len(kept)])
        assert kept


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_strata_are_crossed_with_clusters(run: Run, order: Literal["outside", "inside"]) -> None:
    choice = config(strata=(BY_YAW,), strata_order=order, budget=40)
    selection = inline_select(run, choice, f"strata-{order}")
    found = outcome(run, selection)
    yaw = {one.name: one.yaw for one in POOL}
    assert {name: mark[3] for name, mark in found.items()} == {name: NAMES[yaw[name]] for name in found}
    names = sorted({mark[3] for mark in found.values()})
    before = Counter((mark[2], mark[3]) for mark in found.values())
    after = Counter((mark[2], mark[3]) for mark in found.values() if mark[0] is None)
    codes = {name: code for code, name in enumerate(NAMES.values())}
    cells = sorted(before)
    quotas = cell_quotas(
        [cluster for cluster, _ in cells], [codes[name] for _, name in cells], [before[cell] for cell in cells], (), 40,
        order=order, seed=0,
    )  # fmt: skip
    assert {cell: after[cell] for cell in cells} == dict(zip(cells, quotas.tolist(), strict=True))
    strata = selection.summary["balance"]["strata"]
    assert sorted(one["name"] for one in strata["each"]) == names
    for one in strata["each"]:
        rows = [
            sum(count for (_, name), count in tallied.items() if name == one["name"]) for tallied in (before, after)
        ]
        assert one["rows"] == {"before": rows[0], "after": rows[1]}
    assert strata["effective"]["after"] > strata["effective"]["before"]
    if order == "outside":
        totals = [sum(count for (_, name), count in before.items() if name == one) for one in names]
        assert sorted(one["rows"]["after"] for one in strata["each"]) == sorted(water_fill(totals, 40).tolist())


def test_a_budget_above_the_rows_keeps_all(run: Run) -> None:
    variants: dict[str, dict[str, Any]] = {"more": {"budget": 10**9}, "share": {"budget": None, "share": 1.0}}
    for name, values in variants.items():
        selection = inline_select(run, config(**values), name)
        found = outcome(run, selection)
        assert len(found) == 97
        assert {mark[:2] for mark in found.values()} == {(None, None)}
        assert selection.summary["balance"]["rows"] == {"before": 97, "after": 97}
        levels = selection.summary["balance"]["levels"]
        assert all(level["before"] == level["after"] for level in levels)
    one = inline_select(run, config(budget=1), "one")
    assert sum(mark[0] is None for mark in outcome(run, one).values()) == 1


def test_rows_that_are_dropped_already_take_no_part(tmp_path: Path) -> None:
    """Copies of one picture would fill the budget of their cluster."""
    copies = [Picture(f"copy-{number}", "one content", vector=(1, 0, 0, 0)) for number in range(30)]
    run = Run(tmp_path, [*copies, *POOL], chunk_rows=50)
    choice = config().model_copy(update={"exact_duplicates": True})
    selection = inline_select(run, choice)
    found = outcome(run, selection)
    reasons = Counter(mark[0] for mark in found.values())
    assert reasons == {"exact_duplicate": 29, "over_represented": 68, None: 30}
    assert selection.summary["balance"]["rows"] == {"before": 98, "after": 30}
    for mark in found.values():
        assert (mark[2] is None) == (mark[0] == "exact_duplicate")
    assert sum(level["before"]["rows"] for level in selection.summary["balance"]["levels"]) == 92


def test_no_embeddings_at_all_and_no_rows_at_all(tmp_path: Path) -> None:
    bare = Run(tmp_path / "bare", [Picture(str(at), "x", yaw=YAWS[at % 7]) for at in range(20)], 7)
    selection = inline_select(bare, config(budget=8, strata=(BY_YAW,)))
    found = outcome(bare, selection)
    assert {mark[2] for mark in found.values()} == {-1}
    # 2 or 3 rows of three strata, 12 of the fourth.
    kept = Counter(mark[3] for mark in found.values() if mark[0] is None)
    assert sorted(kept.values()) == [2, 2, 2, 2]
    assert selection.summary["balance"]["no_embedding"] == {"before": 20, "after": 8}
    small = Run(tmp_path / "small", [Picture("a", "x", vector=(1, 0, 0, 0), size=5)])
    nothing = inline_select(small, config())
    assert outcome(small, nothing) == {}
    assert nothing.summary["balance"]["rows"] == {"before": 0, "after": 0}
    empty = Run(tmp_path / "empty", [])
    assert inline_select(empty, config()).summary["candidates"] == 0


def test_a_balance_that_is_stopped_anywhere_goes_on_to_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after every few tasks, with all steps of a selection switched on."""
    choice = config(levels=(5, 2), strata=(BY_YAW,)).model_copy(
        update={"exact_duplicates": True, "semantic_duplicates": NeighbourConfig(threshold=0.999, partitions=3)}
    )
    expected = inline_select(run, choice, "whole", partitions=3)
    assert set(Counter(mark[0] for mark in outcome(run, expected).values())) == {
        None, "over_represented", "semantic_duplicate",
    }  # fmt: skip

    class Stopped(Exception):
        pass

    def few(task: Any, items: Sequence[Any], **_: Any) -> Iterator[tuple[int, Any]]:
        for position, item in enumerate(items):
            if next(left, None) is None:
                raise Stopped
            yield position, task(item)

    monkeypatch.setattr("pipeline.select.steps.run_tasks", few)
    stops = 0
    while True:
        left = iter(range(4))
        selector = inline_selector(run, choice, "stopped", partitions=3, most_links=10)
        steps = Steps(selector.storage, selector.steps.progress)
        try:
            selection = InlineSelector(steps, *list(vars(selector).values())[1:])()
            break
        except Stopped:
            stops += 1
    assert stops > 10
    assert outcome(run, selection) == outcome(run, expected)
    assert selection.summary == expected.summary


@given(st.lists(st.tuples(st.integers(-1, 50), st.integers(0, 6)), unique=True, max_size=30))
@settings(deadline=None, max_examples=50)
def test_a_cell_has_a_number_of_its_own(cells: list[tuple[int, int]]) -> None:
    leaf, stratum = (np.array([cell[side] for cell in cells], np.int64) for side in (0, 1))
    codes = cell_codes(leaf, stratum, 7)
    assert len({*codes.tolist()}) == len(cells)
    assert (codes >= 0).all()
    assert (codes // 7 - 1).tolist() == leaf.tolist()
    assert (codes % 7).tolist() == stratum.tolist()
