"""Rows of a feature table as arrays: what is missing, and what says nothing, takes no part."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curation.dedup.feature_rows import FeatureRows
from curation.features import FEATURE_SCHEMA, as_features

HASH = 0x0F0F_3333_5555_AAAA


def test_columns_become_arrays() -> None:
    digest = "00000000000000ff" + "8000000000000000" + "0" * 16 + "ffffffffffffffff"
    table = as_features(
        pa.table(
            {
                "sha256": [digest, None],
                "phash": pa.array([None, HASH], pa.uint64()),
                "phash_mirrored": pa.array([HASH, None], pa.uint64()),
                "embedding": [None, [0.5, -1.0]],
            }
        ),
        "t",
    )
    rows = FeatureRows.of(table)
    assert len(rows) == 2
    assert rows.sha256[0].tolist() == [255, 2**63, 0, 2**64 - 1]
    assert rows.has_sha256.tolist() == [True, False]
    assert (rows.phash[1], rows.has_phash.tolist()) == (HASH, [False, True])
    assert (rows.phash_mirrored[0], rows.has_mirrored.tolist()) == (HASH, [True, False])
    assert rows.vectors.tolist() == [[0.0, 0.0], [0.5, -1.0]]
    some = rows.take(np.array([False, True]))
    assert (len(some), some.id.to_pylist(), some.phash.tolist()) == (1, ["1"], [HASH])
    assert some.vectors.tolist() == [[0.5, -1.0]]


def test_degenerate_hashes_by_statement_and_by_their_bits() -> None:
    table = as_features(
        pa.table(
            {
                "phash": pa.array([1 << 63, 1 << 63, HASH, HASH, 2**64 - 2], pa.uint64()),
                "phash_mirrored": pa.array([HASH, HASH, 0, HASH, HASH], pa.uint64()),
                "phash_degenerate": pa.array([None, False, None, True, None]),
            }
        ),
        "t",
    )
    rows = FeatureRows.of(table)
    assert rows.has_phash.tolist() == [False, True, True, False, False]
    assert rows.has_mirrored.tolist() == [True, True, False, False, True]


def test_no_rows_and_no_columns() -> None:
    for table in (FEATURE_SCHEMA.empty_table(), pa.table({"row": pa.array([], pa.int64())})):
        rows = FeatureRows.of(table)
        assert (len(rows), rows.sha256.shape, rows.vectors.shape) == (0, (0, 4), (0, 0))
    bare = FeatureRows.of(pa.table({"row": [1, 2]}))
    assert not (bare.has_sha256 | bare.has_phash | bare.has_mirrored).any()
