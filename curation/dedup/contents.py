"""Rows with the same bytes, by their SHA-256."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curation.dedup.links import Kind, Links


def content_keys(sha256: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """The first 128 bits of hexadecimal SHA-256s: uint64 [n, 2].

    Two of a billion different contents agree on 128 bits with a chance below 10^-20.

    Raises:
        ValueError: a value is missing or shorter than 32 hexadecimal characters.
    """
    column = sha256.combine_chunks() if isinstance(sha256, pa.ChunkedArray) else sha256
    if not len(column):
        return np.empty((0, 2), np.uint64)
    if column.null_count or not pc.all(pc.match_substring_regex(column, "^[0-9a-f]{32}")).as_py():
        raise ValueError("a SHA-256 must be given for every row, as 64 lower-case hexadecimal characters")
    prefix = pc.utf8_slice_codeunits(column, 0, 32).to_pylist()
    return np.frombuffer(bytes.fromhex("".join(prefix)), ">u8").astype(np.uint64).reshape(-1, 2)


def same_bytes_links(keys: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64]) -> Links:
    """Groups of equal content.

    Args:
        keys: uint64 [n, 2], `content_keys`; all rows of a content must be here.
        rows: int64 [n]; negative rows belong to an earlier corpus.

    Returns:
        `SAME_BYTES` links from each group's smallest row to its other rows. Groups of negative rows alone are left out.
    """
    order = np.lexsort((rows, keys[:, 1], keys[:, 0]))
    keys, rows = keys[order], rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    # The smallest row comes first and the largest last.
    ends = np.append(starts[1:], len(rows)) - 1
    member = ~new & (rows[ends][group] >= 0) if len(rows) else new
    return Links.of(Kind.SAME_BYTES, rows[starts][group][member], rows[member], 0.0)
