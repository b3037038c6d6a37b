"""The index of one shard: where its images are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from curation.sources.redact import describe
from training.data.errors import DataError

_COLUMNS = ("id", "sha256", "image_offset", "image_size")


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
        table = pq.read_table(pa.BufferReader(data), columns=list(_COLUMNS), use_threads=False)
        index = ShardIndex(table.select(_COLUMNS))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError(f"the index {shown} cannot be read: {describe(error)}. Export the corpus again.") from None
    if len(index) != samples:
        raise DataError(f"the index {shown} has {len(index)} rows, its manifest says {samples}: export it again")
    ends = index.offsets + index.sizes
    if samples and (min(index.offsets.min(), index.sizes.min()) < 0 or ends.max() > tar_bytes):
        raise DataError(f"the index {shown} places images outside of its tar of {tar_bytes} bytes: export it again")
    return index
