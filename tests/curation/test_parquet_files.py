"""Damage to the data of our Parquet files is an error, and never another value."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from curation.parquet_files import parquet_writer, read_parquet, write_parquet

TABLE = pa.table({"score": pa.array([0.5, 0.25, 0.125], pa.float32()), "name": ["a", "b", "a"]})


def written(by_writer: bool) -> bytes:
    file = io.BytesIO()
    if by_writer:
        with parquet_writer(file, TABLE.schema, dictionary=False) as writer:
            writer.write_table(TABLE)
    else:
        write_parquet(TABLE, file)
    return file.getvalue()


@pytest.mark.parametrize("by_writer", [False, True])
def test_every_flipped_bit_of_the_pages_is_an_error(by_writer: bool) -> None:
    data = written(by_writer)
    assert written(by_writer) == data
    assert read_parquet(pa.BufferReader(data)) == TABLE
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for position in range(4, footer):
        damaged = bytearray(data)
        damaged[position] ^= 4
        try:
            found = read_parquet(pa.BufferReader(bytes(damaged)))
        except (pa.ArrowException, OSError):
            continue
        # A flip in what a page's header says beside its data (a statistic) changes no value.
        assert found == TABLE


def test_some_columns() -> None:
    assert read_parquet(pa.BufferReader(written(False)), ["name"]).column_names == ["name"]
