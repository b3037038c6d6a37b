"""Links become stars, and stars say in the ledger's words why a row goes and for which row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curation.dedup.links import Kind, Links
from pipeline.select import SelectConfig
from pipeline.select.corpora import Corpora
from pipeline.select.duplicates import write_links
from pipeline.select.marks import MARK_SCHEMA, read_marks
from pipeline.select.resolve import (
    RESOLVED_SCHEMA,
    Bin,
    Curves,
    MarkStars,
    Resolve,
    node_info,
    qualities,
    star_marks,
    sum_summaries,
)
from pipeline.select.run import Selector
from tests.fixtures.corpora import corpus
from tests.fixtures.inline import gathered, inline_selector
from tests.fixtures.selection import Picture, Run

CURVES = Curves(radii=(0, 1, 2, 3, 4), cosines=(0.95, 0.97, 1.0))
OLD = [Picture(f"old{number}", f"old {number}") for number in range(4)]
SIZES = (50, 90, 80, 70, 62, 99, 61, 40, 40, 40, 40, 30)
ROWS = [Picture(f"now{number}", f"now {number}", size=size) for number, size in enumerate(SIZES)]


def found() -> list[Links]:
    """Components {0, 5}, {1, 2, 3}, {4, 6}, {7, -1}, {8, -2, -3}, {9, 11, -4}; 10 has no link."""
    return [
        Links.of(Kind.SAME_BYTES, [0, -1], [5, 7], 0),
        Links.concat([
            Links.of(Kind.NEAR_HASH, [1, 2], [2, 3], [4, 1]),
            Links.of(Kind.NEAR_HASH, [-2, -3], [8, 8], [3, 2]),
        ]),
        Links.concat([
            Links.of(Kind.NEAR_VECTOR, [4, -4], [6, 9], [0.97, 0.96]),
            Links.of(Kind.SAME_VECTOR, [9], [11], 1),
        ]),
    ]  # fmt: skip


EXPECTED: dict[int, tuple[Any, ...]] = {
    # row: reason, duplicate_of, distance, similarity, reference
    0: ("exact_duplicate", ROWS[5].id, 0, None, None),
    2: ("near_duplicate", ROWS[1].id, 4, None, None),  # and 3 stays: no chain
    6: ("semantic_duplicate", ROWS[4].id, None, np.float32(0.97), None),
    7: ("in_corpus", OLD[0].id, 0, None, "day1"),
    8: ("in_corpus", OLD[1].id, 3, None, "day1"),  # the first of the corpus, not the nearest
    9: ("in_corpus", OLD[3].id, None, np.float32(0.96), "day1"),
    11: ("in_corpus", OLD[3].id, None, np.float32(0.96), "day1"),
}


@pytest.fixture
def selector(tmp_path: Path) -> Selector:
    """Three batches of four rows, and an earlier corpus of two shards."""
    corpora = corpus(tmp_path / "day1", [OLD[:1], OLD[1:]])
    selector = inline_selector(Run(tmp_path / "run", ROWS, 4), SelectConfig(), corpora=corpora)
    gathered(selector)
    for number, links in enumerate(found()):
        write_links(selector.storage, f"links/{number}", [links])
    return selector


def resolve(selector: Selector, bins: list[Bin], quality: int = 2) -> tuple[dict[int, tuple[Any, ...]], dict[str, Any]]:
    """row -> (reason, duplicate_of, distance, similarity, reference), and the counts."""
    task = Resolve(selector.storage, selector.layout, selector.corpora, quality, CURVES)
    counts = sum_summaries([task(work) for work in bins])
    marks: dict[int, tuple[Any, ...]] = {}
    for batch in selector.batches:
        reasons = MarkStars(selector.storage, len(bins))(batch)
        table = read_marks(selector.storage, ("stars",), batch).to_pylist()
        assert sum(reasons.values()) == len(table)
        columns = ("reason", "duplicate_of", "distance", "similarity", "reference")
        marks |= {row["row"]: tuple(row[name] for name in columns) for row in table}
    return marks, counts


def test_every_dropped_row_says_why_and_for_which(selector: Selector) -> None:
    marks, counts = resolve(selector, [Bin(0, ("links/0", "links/1", "links/2"))])
    assert marks == EXPECTED
    assert counts == {
        "dropped": 7,
        "group_sizes": {"2": 3},  # around rows of this run; {5, 0}, {1, 2}, {4, 6}
        "curve_radii": [2, 3, 4, 4, 4],  # 0 and 7 by bytes; 3 at 1 bit; 8 at 2; at 4 bits 2 goes and 3 comes back
        "curve_cosines": [5, 4, 3],  # 0 and 7; 6 and 9 and 11; 6 and 11; 11
    }


def test_components_can_be_resolved_in_any_bins(selector: Selector) -> None:
    marks, counts = resolve(selector, [Bin(number, (f"links/{number}",)) for number in (0, 1, 2)])
    assert marks == EXPECTED
    assert (counts["dropped"], counts["group_sizes"]) == (7, {"2": 3})
    write_links(selector.storage, "links/empty", [])
    assert resolve(selector, [Bin(0, ("links/empty",)), Bin(1, ())])[0] == {}


def test_without_quality_columns_the_smaller_id_stays(tmp_path: Path) -> None:
    selector = inline_selector(Run(tmp_path, ROWS, 4), SelectConfig(quality=()))
    gathered(selector)
    write_links(selector.storage, "links/0", [Links.of(Kind.SAME_BYTES, [0] * 11, range(1, 12), 0)])
    marks, _ = resolve(selector, [Bin(0, ("links/0",))], quality=0)
    best = min(range(12), key=lambda row: ROWS[row].id)
    assert {row: mark[1] for row, mark in marks.items()} == {row: ROWS[best].id for row in range(12) if row != best}


def test_the_nodes_of_a_batch_come_with_id_and_quality(selector: Selector) -> None:
    nodes = np.array([-2, 1, 4, 6, 11])
    tables = [node_info(selector.storage, batch, nodes, selector.layout, 3) for batch in selector.batches]
    assert [table.column("row").to_pylist() for table in tables] == [[1], [4, 6], [11]]
    assert tables[1].column("id").to_pylist() == [ROWS[4].id, ROWS[6].id]
    assert qualities(tables[1], 3).tolist() == [[3844, 0, 50], [3721, 0, 50]]  # no mode is known here
    assert qualities(tables[1], 1).tolist() == [[3844], [3721]]
    assert qualities(tables[1], 0).tolist() == [[0], [0]]
    none = node_info(selector.storage, 0, np.empty(0, np.int64), selector.layout, 2)
    assert (len(none), none.column_names) == (0, ["row", "id", "quality_0", "quality_1"])


def test_stars_in_the_words_of_the_ledger() -> None:
    table = pa.table(
        [
            [7, 3, 5, 1],
            pa.array([Kind.NEAR_VECTOR, Kind.NEAR_HASH, Kind.SAME_BYTES, Kind.NEAR_HASH], pa.int8()),
            pa.array([0.5, 8, 0, 0], pa.float32()),
            ["a", "b", "c", "d"],
            pa.array([None, None, None, "day1"], pa.string()),
        ],
        schema=RESOLVED_SCHEMA,
    )
    marks = star_marks(table)
    assert marks.schema == MARK_SCHEMA
    assert marks.select(["row", "reason", "duplicate_of", "distance", "similarity", "reference"]).to_pylist() == [
        dict(zip(("row", "reason", "duplicate_of", "distance", "similarity", "reference"), values, strict=True))
        for values in [
            (1, "in_corpus", "d", 0, None, "day1"),
            (3, "near_duplicate", "b", 8, None, None),
            (5, "exact_duplicate", "c", 0, None, None),
            (7, "semantic_duplicate", "a", None, 0.5, None),
        ]
    ]
    assert (
        marks.select(["detail", "cluster", "stratum"]).to_pylist()
        == [dict.fromkeys(("detail", "cluster", "stratum"))] * 4
    )
    assert star_marks(RESOLVED_SCHEMA.empty_table()).equals(MARK_SCHEMA.empty_table())


def test_counts_of_bins_add_up() -> None:
    one = {"dropped": 3, "group_sizes": {"2": 1, "3": 1}, "curve_radii": [1, 3], "curve_cosines": []}
    other = {"dropped": 10, "group_sizes": {"11": 1, "2": 0}, "curve_radii": [10, 10], "curve_cosines": []}
    assert sum_summaries([one, other]) == {
        "dropped": 13, "group_sizes": {"2": 1, "3": 1, "11": 1}, "curve_radii": [11, 13], "curve_cosines": [],
    }  # fmt: skip
    assert list(sum_summaries([other, one])["group_sizes"]) == ["2", "3", "11"]


def test_a_corpus_is_not_read_where_nothing_is_in_it(selector: Selector) -> None:
    """Names of earlier rows are looked up for the stars that need them only."""
    task = Resolve(selector.storage, selector.layout, Corpora(), 2, CURVES)
    write_links(selector.storage, "links/ours", [Links.of(Kind.SAME_BYTES, [0], [5], 0)])
    assert task(Bin(0, ("links/ours",)))["dropped"] == 1
