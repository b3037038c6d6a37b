"""How our Parquet files are written and read: with a checksum on every page, which every reader compares.

A flipped bit in the data of a page is then an error that names the file, and never another score. The footer has no
checksum of its own; what it says of columns is compared where it matters (`pipeline.scores`), and files that a manifest
lists have a SHA-256 besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

FORMAT = 2
"""Raised when the same table would give other bytes: 2 brought checksums of pages."""

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
    pq.write_table(
        table,
        file,
        row_group_size=row_group_size,
        compression=COMPRESSION,
        use_dictionary=dictionary if isinstance(dictionary, bool) else list(dictionary),
        write_page_checksum=True,
    )


def parquet_writer(file: IO[bytes] | Any, schema: pa.Schema, dictionary: bool = True) -> pq.ParquetWriter:
    """Writes tables of a schema one after the other; the same tables in the same order give the same bytes."""
    return pq.ParquetWriter(file, schema, compression=COMPRESSION, use_dictionary=dictionary, write_page_checksum=True)


def open_parquet(file: IO[bytes] | Any) -> pq.ParquetFile:
    """Open a Parquet file, ours or another's; pages that have a checksum are compared with it as they are read.

    Raises:
        pa.ArrowException, OSError: not Parquet. Reading a damaged page raises OSError.
    """
    return pq.ParquetFile(file, page_checksum_verification=True)


def read_parquet(file: IO[bytes] | Any, columns: Sequence[str] | None = None) -> pa.Table:
    """A whole file, or some of its columns, with its schema metadata; see `open_parquet`."""
    with open_parquet(file) as parquet:
        return parquet.read(columns=None if columns is None else list(columns))
