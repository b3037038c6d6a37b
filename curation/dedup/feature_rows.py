"""Rows of a feature table as the arrays that searches work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curation.dedup.banding import Hashes
from curation.vectors import to_matrix

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FeatureRows:
    """n rows of a feature table (`curation.features`) as arrays.

    Attributes:
        id: string [n].
        sha256: uint64 [n, 4], the digest's words, most significant first.
        has_sha256: bool [n].
        phash, phash_mirrored: uint64 [n].
        has_phash, has_mirrored: bool [n]; False for degenerate hashes too.
        vectors: float16 [n, d]; d is 0 where no row has an embedding.
    """

    id: pa.Array
    sha256: npt.NDArray[np.uint64]
    has_sha256: Mask
    phash: Hashes
    has_phash: Mask
    phash_mirrored: Hashes
    has_mirrored: Mask
    vectors: npt.NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.id)

    def take(self, which: Mask) -> FeatureRows:
        """Some of the rows, by mask [n]."""
        if which.all():
            return self
        return FeatureRows(
            self.id.filter(pa.array(which)),
            *(getattr(self, name)[which] for name in self.__slots__ if name != "id"),
        )

    @classmethod
    def of(cls, table: pa.Table) -> FeatureRows:
        """From columns of `curation.features.FEATURE_SCHEMA`; those that are not there count as null.

        A hash whose `phash_degenerate` is null is judged by its number of set bits.
        """
        n = len(table)
        sha256, has_sha256 = _words(table.column("sha256")) if "sha256" in table.column_names else _no_words(n)
        phash, has_phash = _hashes(table, "phash")
        mirrored, has_mirrored = _hashes(table, "phash_mirrored")
        vectors = to_matrix(table.column("embedding"))[0] if "embedding" in table.column_names else np.empty((n, 0))
        return cls(
            table.column("id").combine_chunks() if "id" in table.column_names else pa.array(np.arange(n).astype(str)),
            sha256,
            has_sha256,
            phash,
            has_phash,
            mirrored,
            has_mirrored,
            vectors.astype(np.float16, copy=False),
        )


def _words(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint64], Mask]:
    """SHA-256 as hex text -> uint64 [n, 4] and bool [n], whether there is one."""
    data = bytes.fromhex("".join(pc.fill_null(column, "0" * 64).to_pylist()))
    present = column.is_valid().to_numpy(zero_copy_only=False)
    return np.frombuffer(data, dtype=">u8").astype(np.uint64).reshape(-1, 4), present.astype(bool)


def _no_words(n: int) -> tuple[npt.NDArray[np.uint64], Mask]:
    return np.zeros((n, 4), dtype=np.uint64), np.zeros(n, dtype=bool)


def _hashes(table: pa.Table, name: str) -> tuple[Hashes, Mask]:
    """A column of hashes, uint64 [n], and whether each says anything, bool [n]."""
    from curation.scorers.screen import is_degenerate

    n = len(table)
    if name not in table.column_names:
        return np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=bool)
    column = table.column(name)
    present = column.is_valid().to_numpy(zero_copy_only=False).astype(bool)
    values = column.fill_null(0).to_numpy().astype(np.uint64, copy=False)
    flat = is_degenerate(values, np.ones(n)) if n else np.zeros(0, dtype=bool)
    if "phash_degenerate" in table.column_names:
        stated = table.column("phash_degenerate")
        known = stated.is_valid().to_numpy(zero_copy_only=False).astype(bool)
        flat = np.where(known, stated.fill_null(False).to_numpy(zero_copy_only=False).astype(bool), flat)
    return values, present & ~flat
