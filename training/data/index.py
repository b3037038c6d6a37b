"""The index of one shard: where its images are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.parquet_files import open_parquet
from curation.shards import INDEX_SCHEMA
from curation.sources.redact import describe
from training.data.errors import DataError

_COLUMNS = ("id", "sha256", "image_offset", "image_size")
_SCHEMA = pa.schema([INDEX_SCHEMA.field(name) for name in _COLUMNS])
_AGAIN = "`populace curate CONFIG --verify` writes it anew"
MAX_IMAGE_BYTES = 1 << 30
"""Of one encoded image: far above what decoding takes (`decode.max_bytes`), and far below what a forged index may ask
this machine to reserve."""


class ShardIndex:
    """Ids, hashes and places of the images of a shard; about 120 bytes per sample, in four flat arrays.

    Attributes:
        offsets, sizes: int64 [n], of the images in the tar.
    """

    def __init__(self, table: pa.Table) -> None:
        self._ids, self._hashes = (table.column(name).combine_chunks() for name in ("id", "sha256"))
        self.offsets: npt.NDArray[np.int64] = table.column("image_offset").to_numpy()
        self.sizes: npt.NDArray[np.int64] = table.column("image_size").to_numpy()

    def __len__(self) -> int:
        return len(self.offsets)

    def id(self, row: int) -> str:
        """Record id of a row."""
        return str(self._ids[row].as_py())

    def sha256(self, row: int) -> str:
        """SHA-256 of a row's image, hexadecimal."""
        return str(self._hashes[row].as_py())


def parse_index(data: bytes, samples: int, tar_bytes: int, shown: str) -> ShardIndex:
    """An index from the bytes of its Parquet file.

    Args:
        samples: rows that it must have.
        tar_bytes: size of the tar, which no image may reach out of.
        shown: what errors call it.

    Raises:
        DataError: not an index (`curation.shards.INDEX_SCHEMA`) of such a shard.
    """
    try:
        parquet = open_parquet(pa.BufferReader(data))
        # Before memory is taken for them: a small file may say that it has any number of rows.
        if parquet.metadata.num_rows != samples:
            raise DataError(
                f"the index {shown} has {parquet.metadata.num_rows} rows, its manifest says {samples}: {_AGAIN}"
            )
        table = parquet.read(columns=list(_COLUMNS), use_threads=False)
        if any(table.column(name).null_count for name in _COLUMNS):
            raise ValueError("a value is missing")
        index = ShardIndex(table.select(_COLUMNS).cast(_SCHEMA))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError(f"the index {shown} cannot be read: {describe(error)}: {_AGAIN}") from None
    # Without their sum, which could leave the range of 64 bits.
    inside = (index.offsets >= 0) & (index.sizes >= 0) & (index.sizes <= tar_bytes - index.offsets)
    if not inside.all():
        raise DataError(f"the index {shown} places images outside of its tar of {tar_bytes} bytes: {_AGAIN}")
    if index.sizes.max(initial=0) > MAX_IMAGE_BYTES:
        raise DataError(
            f"the index {shown} has an image of {int(index.sizes.max())} bytes; at most {MAX_IMAGE_BYTES} are read: "
            f"{_AGAIN}"
        )
    return index
