"""What selection says of rows comes back for any run of rows, from all steps, in order."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.select.marks import MARK_SCHEMA, GroupMarks, KeptRows, mark_table, marks_name, read_marks, without
from pipeline.storage import DamagedFileError, Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Marks of two steps on three batches of rows 0..9, 10..11, 12..19."""
    storage = Storage(tmp_path / "selection")
    for batch, (hits, stars) in enumerate([([3], [9, 1, 4]), ([], [11]), ([19, 12], [])]):
        reasons = ["contamination"] * len(hits), ["near_duplicate"] * len(stars)
        storage.write_table(marks_name("hits", batch), mark_table(row=hits, reason=reasons[0]))
        storage.write_table(
            marks_name("stars", batch), mark_table(row=stars, reason=reasons[1], distance=[row % 5 for row in stars])
        )
    return storage


def test_columns_that_are_not_given_are_null() -> None:
    table = mark_table(
        row=np.array([2, 1]),
        similarity=pa.array([0.5, None], pa.float32()),
        cluster=[4, -1],
        stratum=pa.array(["a", "b"]),
    )
    assert table.schema == MARK_SCHEMA
    nothing = dict.fromkeys(MARK_SCHEMA.names)
    assert table.to_pylist() == [
        nothing | {"row": 2, "similarity": 0.5, "cluster": 4, "stratum": "a"},
        nothing | {"row": 1, "cluster": -1, "stratum": "b"},
    ]
    assert mark_table(row=[]).schema == MARK_SCHEMA
    assert len(mark_table(row=[])) == 0


def test_marks_of_all_steps_in_the_order_of_rows(storage: Storage) -> None:
    table = read_marks(storage, ("hits", "stars"), 0)
    assert table.schema == MARK_SCHEMA
    assert table.column("row").to_pylist() == [1, 3, 4, 9]
    assert table.column("reason").to_pylist() == ["near_duplicate", "contamination", "near_duplicate", "near_duplicate"]
    assert table.column("distance").to_pylist() == [1, None, 4, 4]
    assert read_marks(storage, ("stars",), 2).equals(MARK_SCHEMA.empty_table())
    assert read_marks(storage, (), 0).equals(MARK_SCHEMA.empty_table())


@pytest.mark.parametrize(
    ("first", "rows", "expected"),
    [
        (0, 10, [1, 3, 4, 9]),
        (0, 4, [1, 3]),  # a group of the ledger is a part of a batch
        (4, 6, [0, 5]),
        (2, 1, []),
        (10, 2, [1]),
        (12, 8, [0, 7]),
        (19, 1, [0]),
    ],
)
def test_a_group_of_the_ledger_gets_its_marks_counted_from_its_first_row(
    storage: Storage, first: int, rows: int, expected: list[int]
) -> None:
    marks: GroupMarks = pickle.loads(pickle.dumps(GroupMarks(storage, np.array([0, 10, 12, 20]), ("hits", "stars"))))
    table = marks(first, rows)
    assert table.schema == MARK_SCHEMA
    assert table.column("row").to_pylist() == expected
    whole = {
        row["row"]: row
        for row in read_marks(storage, ("hits", "stars"), int(first >= 10) + int(first >= 12)).to_pylist()
    }
    assert [row | {"row": row["row"] + first} for row in table.to_pylist()] == [whole[row + first] for row in expected]


def test_a_selection_without_steps_says_nothing(storage: Storage) -> None:
    assert len(GroupMarks(storage, np.array([0, 10, 12, 20]), ())(4, 6)) == 0


def test_rows_that_a_mark_drops_are_left_out_and_others_are_not(storage: Storage) -> None:
    candidates = pa.table({"row": pa.array([1, 2, 4, 7, 9], pa.int64()), "id": list("abcde")})
    kept = KeptRows(storage, ("hits", "stars"))
    assert kept(0, candidates).column("id").to_pylist() == ["b", "d"]
    assert KeptRows(storage, ())(0, candidates).equals(candidates)
    assert len(kept(0, candidates.slice(0, 0))) == 0
    # A mark without a reason says where a row belongs, and does not drop it.
    marks = mark_table(row=[1, 2], reason=[None, "over_represented"], cluster=[0, 0])
    assert without(candidates, marks).column("id").to_pylist() == ["a", "c", "d", "e"]
    assert without(candidates, mark_table(row=[])).equals(candidates)


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_damaged_marks_are_named_with_what_to_do(storage: Storage, damage: str) -> None:
    path = Path(storage.path(marks_name("stars", 1)))
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"PAR1 nonsense PAR1")
    folders: Any = ("hits", "stars")
    assert len(read_marks(storage, folders, 0)) == 4
    with pytest.raises(DamagedFileError, match=r"stars/000001\.parquet is damaged .* Remove the folder .*selection "):
        read_marks(storage, folders, 1)
