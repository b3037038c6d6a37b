"""Each row reaches the partition of its key once, in order, whatever the tables and the number of partitions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.shuffle import (
    MOST_PARTITIONS,
    PARTITION_BYTES,
    PARTITION_ROWS,
    partition_count,
    partition_of,
    read_partition,
    write_partitions,
)
from pipeline.storage import DamagedFileError, Storage

SCHEMA = pa.schema(
    [
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float16(), 2)),
        pa.field("flag", pa.bool_()),
    ]
)


def table(keys: list[int]) -> pa.Table:
    """Rows of all sorts of columns that follow from the key, with nulls."""
    vectors = [None if key % 3 == 0 else np.array([key % 7, -1], np.float16) for key in keys]
    return pa.table(
        [
            pa.array(keys, pa.uint64()),
            pa.array([None if key % 5 == 0 else "x" * (key % 11) for key in keys], pa.string()),
            pa.array(vectors, SCHEMA.field("vector").type),
            pa.array([None if key % 2 else key % 4 == 0 for key in keys], pa.bool_()),
        ],
        schema=SCHEMA,
    )


def publish(storage: Storage, parts: list[list[int]], partitions: int) -> list[str]:
    """A file for each of some tables; gives their names."""
    names = []
    for number, keys in enumerate(parts):
        names.append(f"step/{number}.arrow")
        assert write_partitions(storage, names[-1], table(keys), partition_of(keys, partitions), partitions) == len(
            keys
        )
    return names


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=12), min_size=1, max_size=4), st.integers(1, 9))
@settings(deadline=None, max_examples=25)
def test_every_row_lands_once_in_the_partition_of_its_key_in_order(parts: list[list[int]], partitions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        names = publish(storage, parts, partitions)
        rows = [key for keys in parts for key in keys]
        owner = partition_of(rows, partitions).tolist()
        for partition in range(partitions):
            expected = [key for key, place in zip(rows, owner, strict=True) if place == partition]
            found = read_partition(storage, names, partition)
            assert found.schema == SCHEMA
            assert found.to_pylist() == table(expected).to_pylist()


def test_a_table_in_pieces_and_a_part_of_a_table(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    pieces = pa.concat_tables([table([5, 6]), table([]), table([7, 8, 9])]).slice(1)
    write_partitions(storage, "a", pieces, np.array([2, 0, 2, 0]), 4)
    found = [read_partition(storage, ["a"], partition).column("key").to_pylist() for partition in range(4)]
    assert found == [[7, 9], [], [6, 8], []]


def test_more_partitions_than_a_byte_counts(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    keys = list(range(1000))
    owner = np.array(keys) % 300
    write_partitions(storage, "a", table(keys), owner, 300)
    for partition in (0, 44, 255, 256, 299):
        assert read_partition(storage, ["a"], partition).column("key").to_pylist() == keys[partition::300]


def test_nothing_at_all_still_has_its_columns(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    publish(storage, [[], []], 3)
    for partition in range(3):
        assert read_partition(storage, ["step/0.arrow", "step/1.arrow"], partition).equals(SCHEMA.empty_table())


def test_a_skewed_key_is_one_partition_and_the_bytes_are_the_same_again(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    keys = [7] * 3000 + [1, 2, 3]
    assert len({*partition_of([7] * 3000, 8).tolist()}) == 1
    for name in ("a", "b"):
        write_partitions(storage, name, table(keys), partition_of(keys, 8), 8)
    assert storage.read_bytes("a") == storage.read_bytes("b")
    assert sum(len(read_partition(storage, ["a"], partition)) for partition in range(8)) == 3003


@pytest.mark.parametrize("damage", ["cut", "garbage", "gone", "empty", "fewer partitions"])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    storage = Storage(tmp_path / "selection")
    names = publish(storage, [[1, 2, 3], list(range(1000))], 2)
    path = Path(storage.path(names[1]))
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "garbage":
        path.write_bytes(bytes(reversed(data)))
    elif damage == "gone":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        write_partitions(storage, names[1], table([1]), np.zeros(1, np.int64), 1)
    with pytest.raises(DamagedFileError, match=r"selection/step/1\.arrow is damaged .* Remove the folder .*selection "):
        read_partition(storage, names, 1)


def test_the_number_of_partitions_follows_from_the_data_and_is_bounded() -> None:
    assert [partition_count(rows, 100) for rows in (0, 1, PARTITION_ROWS)] == [1, 1, 1]
    assert partition_count(PARTITION_ROWS + 1, 0) == 2
    # Small records are not split further than 64 ways for their number alone.
    assert partition_count(10**8, 1) == 64
    counts = [partition_count(10**power, 1000) for power in range(14)]
    assert counts == sorted(counts)
    assert counts[-1] == MOST_PARTITIONS
    for rows in (10**6, 10**7, 10**9):
        assert rows * 1000 / partition_count(rows, 1000) <= PARTITION_BYTES
    assert partition_count(10**18, 1e6) == MOST_PARTITIONS


def test_keys_are_spread_evenly_and_signed_rows_count_as_their_bits() -> None:
    counts = np.bincount(partition_of(np.arange(80_000), 8), minlength=8)
    assert counts.min() > 9_600
    assert counts.max() < 10_400
    assert partition_of(np.arange(5), 1).tolist() == [0] * 5
    rows = np.array([-1, -2, 3])
    assert partition_of(rows, 7).tolist() == partition_of(rows.astype(np.uint64), 7).tolist()
    assert partition_of(rows, 7).dtype == np.int64
