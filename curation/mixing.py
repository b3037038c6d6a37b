"""Seeded pseudo-random numbers as a function of a key: what makes sampling independent of the order of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Keys = npt.NDArray[np.uint64]


def mix64(values: npt.ArrayLike) -> Keys:
    """Spread uint64 values over all 64 bits: the finaliser of SplitMix64 (Steele et al., OOPSLA 2014), a bijection."""
    mixed = np.array(values, dtype=np.uint64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def id_keys(ids: pa.Array | pa.ChunkedArray, seed: int = 0) -> Keys:
    """A number for each row that depends on its id and the seed alone.

    Args:
        ids: string [n], `curation.records.record_id`s: 32 hexadecimal characters of a uniform hash.
        seed: 0 or more.

    Returns:
        uint64 [n], uniform.

    Raises:
        ValueError: an id is not 32 hexadecimal characters.
    """
    column = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    if not len(column):
        return np.empty(0, np.uint64)
    if column.null_count or not pc.all(pc.match_substring_regex(column, "^[0-9a-f]{32}$")).as_py():
        raise ValueError("ids must be record ids: 32 hexadecimal characters, as curation.records.record_id gives")
    digests = bytes.fromhex("".join(column.to_pylist()))
    return mix64(np.frombuffer(digests, ">u8")[::2].astype(np.uint64) ^ mix64(np.uint64(seed)))
