"""Damage to the data of our Parquet files is an error, and never another value."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from curation.parquet_files import FOOTER_KEY, open_parquet, parquet_writer, read_parquet, write_parquet

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


@pytest.mark.parametrize("by_writer", [False, True])
def test_no_flipped_bit_of_the_footer_changes_what_is_read(by_writer: bool) -> None:
    """It renames no column, changes no type, and nothing that the file says of itself."""
    schema = TABLE.schema.with_metadata({b"populace": b'{"fingerprints": {"screen": "abc"}}'})
    table = TABLE.replace_schema_metadata(schema.metadata)
    file = io.BytesIO()
    if by_writer:
        with parquet_writer(file, schema, dictionary=False) as writer:
            writer.write_table(table.slice(0, 2))
            writer.write_table(table.slice(2))
            writer.add_key_value_metadata({"unused": "3"})
    else:
        write_parquet(table, file)
    data = file.getvalue()
    whole = open_parquet(pa.BufferReader(data))
    stated = {**whole.metadata.metadata}
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    noticed = 0
    for position in range(footer, len(data)):
        for bit in (1, 2, 16, 64):
            damaged = bytearray(data)
            damaged[position] ^= bit
            try:
                opened = open_parquet(pa.BufferReader(bytes(damaged)))
                found = opened.read()
            except (pa.ArrowException, OSError, ValueError):
                noticed += 1
                continue
            if FOOTER_KEY in (opened.metadata.metadata or {}):
                assert found.equals(whole.read(), check_metadata=False)
                assert {key: value for key, value in opened.metadata.metadata.items() if key != b"ARROW:schema"} == {
                    key: value for key, value in stated.items() if key != b"ARROW:schema"
                }
            else:  # the name of the checksum itself, or all values, without which no score is taken for valid
                assert found.equals(table, check_metadata=False)
    assert noticed > 0.5 * 4 * (len(data) - footer)


def test_some_columns() -> None:
    assert read_parquet(pa.BufferReader(written(False)), ["name"]).column_names == ["name"]
