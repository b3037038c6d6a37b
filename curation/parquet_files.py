"""How our Parquet files are written and read: with checksums of every page and of the footer, which readers compare.

A flipped bit in the data of a page is then an error that names the file, and never another score. Parquet has no
checksum of the footer, where a flipped bit renames a column or changes what the file says of itself: ours is a value
of its metadata (`FOOTER_KEY`), over names, types, rows and all other values. Files that a manifest lists have a
SHA-256 besides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

FORMAT = 2
"""Raised when the same table would give other bytes: 2 brought checksums."""

FOOTER_KEY = b"populace.footer"
_ARROW_KEY = b"ARROW:schema"  # what it says is in the schema

COMPRESSION = "zstd"


def write_parquet(
    table: pa.Table, file: IO[bytes] | Any, row_group_size: int | None = None, dictionary: bool | Sequence[str] = True
) -> None:
    """Write a table; the same table gives the same bytes under the same version of pyarrow.

    Args:
        file: open for writing.
        row_group_size: rows of a row group; the default is pyarrow's.
        dictionary: columns that are stored by a dictionary of their values; True for all.
    """
    with parquet_writer(file, table.schema, dictionary) as writer:
        writer.write_table(table, row_group_size)


class ParquetWriter(pq.ParquetWriter):
    """pyarrow's writer, which states the checksum of the footer when it is closed."""

    def __init__(self, file: IO[bytes] | Any, schema: pa.Schema, dictionary: bool | Sequence[str]) -> None:
        # A table that was read from such a file still has its checksum.
        stated = {key: value for key, value in (schema.metadata or {}).items() if key != FOOTER_KEY}
        super().__init__(
            file,
            schema.with_metadata(stated or None),
            compression=COMPRESSION,
            use_dictionary=dictionary if isinstance(dictionary, bool) else list(dictionary),
            write_page_checksum=True,
        )
        self._stated: dict[bytes, bytes] = stated
        self._rows = 0

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write a table of the schema."""
        super().write_table(table, row_group_size)
        self._rows += len(table)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Say something of the file besides its schema's metadata."""
        super().add_key_value_metadata(key_value_metadata)
        self._stated.update({key.encode(): value.encode() for key, value in key_value_metadata.items()})

    def close(self) -> None:
        """Write the footer."""
        if self.is_open:
            super().add_key_value_metadata({FOOTER_KEY: _footer_hash(self.schema, self._rows, self._stated)})
        super().close()


def parquet_writer(file: IO[bytes] | Any, schema: pa.Schema, dictionary: bool | Sequence[str] = True) -> ParquetWriter:
    """Writes tables of a schema one after the other; the same tables in the same order give the same bytes."""
    return ParquetWriter(file, schema, dictionary)


def open_parquet(file: IO[bytes] | Any) -> pq.ParquetFile:
    """Open a Parquet file, ours or another's; what has a checksum is compared with it as it is read.

    Raises:
        pa.ArrowException, OSError: not Parquet, or its footer is not the one that was written. Reading a damaged page
            raises OSError.
    """
    parquet = pq.ParquetFile(file, page_checksum_verification=True)
    stated = dict(parquet.metadata.metadata or {})
    expected = stated.pop(FOOTER_KEY, None)
    if expected is not None:
        groups = sum(parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups))
        rows = parquet.metadata.num_rows if parquet.metadata.num_rows == groups else -1
        if expected.decode("latin-1") != _footer_hash(parquet.schema_arrow, rows, stated):
            parquet.close()
            raise OSError("its footer is not the one that was written (names, types, rows or metadata)")
    return parquet


def _footer_hash(schema: pa.Schema, rows: int, stated: Mapping[bytes, bytes]) -> str:
    columns = [[field.name, _kind(field.type)] for field in schema]
    values = sorted((key.hex(), value.hex()) for key, value in stated.items() if key != _ARROW_KEY)
    return hashlib.sha256(json.dumps([columns, rows, values]).encode()).hexdigest()


def _kind(type_: pa.DataType) -> str:
    """A type without the names of list items, which change on the way through Parquet."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"list of {_kind(type_.value_type)}"
    if pa.types.is_struct(type_):
        return f"struct of {[(field.name, _kind(field.type)) for field in type_]}"
    return str(type_)


def read_parquet(file: IO[bytes] | Any, columns: Sequence[str] | None = None) -> pa.Table:
    """A whole file, or some of its columns, with its schema metadata; see `open_parquet`."""
    with open_parquet(file) as parquet:
        table = parquet.read(columns=None if columns is None else list(columns))
    stated = {key: value for key, value in (table.schema.metadata or {}).items() if key != FOOTER_KEY}
    return table.replace_schema_metadata(stated or None)
