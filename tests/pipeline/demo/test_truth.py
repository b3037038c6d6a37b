from __future__ import annotations

from pipeline.demo.truth import TRUTH_SCHEMA, Truth, to_table


def test_rows_are_sorted_by_locator_and_typed() -> None:
    rows = [
        Truth("2", "b.tar", "x", "kept", ("near_duplicate",), "g", "person", "none", True, "n", 2**64 - 1),
        Truth("1", "a.jpg", "", "empty", (), "h", "empty", "none", False, "n", None),
        Truth("3", "b.tar", "a", "kept", (), "g", "person", "none", True, "n", 0),
    ]
    table = to_table(rows)
    assert table.schema.equals(TRUTH_SCHEMA)
    assert table.column("id").to_pylist() == ["1", "3", "2"]
    assert table.column("phash").to_pylist() == [None, 0, 2**64 - 1]
    assert table.column("acceptable").to_pylist() == [[], [], ["near_duplicate"]]
