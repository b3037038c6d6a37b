"""Links keep their columns through all that is done to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup.links import LINK_SCHEMA, Kind, Links

ROWS = st.integers(-(2**62), 2**62)
LINK = st.tuples(st.sampled_from(Kind), ROWS, ROWS, st.floats(0, 64, width=32))


def as_links(rows: list[tuple[Kind, int, int, float]]) -> Links:
    return Links.concat(Links.of(kind, [a], [b], value) for kind, a, b, value in rows)


def as_list(links: Links) -> list[tuple[int, int, int, float]]:
    columns = (links.kind, links.a, links.b, links.value)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(st.lists(LINK, max_size=10), st.integers(0, 10))
@settings(deadline=None, max_examples=60)
def test_links_survive_arrow_and_keep_their_order(rows: list[tuple[Kind, int, int, float]], cut: int) -> None:
    links = as_links(rows)
    assert as_list(links) == [(kind, min(a, b), max(a, b), value) for kind, a, b, value in rows]
    assert len(links) == len(rows)
    table = links.to_table()
    assert table.schema == LINK_SCHEMA
    assert as_list(Links.from_table(table)) == as_list(links)
    # Tables come back from storage in pieces.
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    back = Links.from_table(pieces)
    assert as_list(back) == as_list(links)
    assert (back.kind.dtype, back.a.dtype, back.b.dtype, back.value.dtype) == (np.int8, np.int64, np.int64, np.float32)


def test_links_of_one_kind() -> None:
    links = Links.of(Kind.NEAR_HASH, [5, -1, 2], [1, 3, 2], [4, 0, 1])
    assert as_list(links) == [(2, 1, 5, 4), (2, -1, 3, 0), (2, 2, 2, 1)]
    same = Links.of(Kind.SAME_VECTOR, np.array([0, 0]), np.array([1, 2]), 1)
    assert as_list(same) == [(3, 0, 1, 1), (3, 0, 2, 1)]
    assert (same.kind.dtype, same.a.dtype, same.value.dtype) == (np.int8, np.int64, np.float32)
    assert len(Links.of(Kind.SAME_BYTES, [], [], 0)) == 0


def test_some_of_the_links_by_mask_and_by_position() -> None:
    links = Links.of(Kind.NEAR_HASH, [0, 1, 2], [3, 4, 5], [1, 2, 3])
    assert as_list(links.take(links.value > 1)) == as_list(links)[1:]
    assert as_list(links.take(np.array([2, 0, 2]))) == [as_list(links)[at] for at in (2, 0, 2)]
    assert len(links.take(np.zeros(3, bool))) == 0


def test_no_links() -> None:
    for links in (Links.none(), Links.concat([]), Links.concat([Links.none(), Links.none()])):
        assert as_list(links) == []
        assert links.to_table().schema == LINK_SCHEMA
        assert as_list(Links.from_table(links.to_table())) == []
        assert (links.kind.dtype, links.b.dtype) == (np.int8, np.int64)
    assert as_list(Links.from_table(LINK_SCHEMA.empty_table())) == []


def test_a_schema_without_nulls_is_what_storage_holds(tmp_path: Path) -> None:
    path = tmp_path / "links.parquet"
    pq.write_table(Links.of(Kind.NEAR_VECTOR, [1], [2], 0.5).to_table(), path)
    assert pq.read_table(path).schema == LINK_SCHEMA
