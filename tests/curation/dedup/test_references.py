"""A row is dropped by a reference exactly when comparing it with every row of the reference says so."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.dedup import references
from curation.dedup.feature_rows import FeatureRows
from curation.dedup.links import Kind
from curation.dedup.references import Reference, reference_hits
from curation.features import as_features
from curation.vectors import cosines

Row = dict[str, Any]
Hit = tuple[int, int, int, float]


def table(rows: list[Row]) -> pa.Table:
    columns = {
        "id": pa.array([row.get("id") for row in rows], pa.string()),
        "sha256": pa.array([row.get("sha256") for row in rows], pa.string()),
        "phash": pa.array([row.get("phash") for row in rows], pa.uint64()),
        "phash_mirrored": pa.array([row.get("mirrored") for row in rows], pa.uint64()),
        "phash_degenerate": pa.array([row.get("degenerate") for row in rows], pa.bool_()),
        "embedding": pa.array([row.get("embedding") for row in rows], pa.list_(pa.float32())),
    }
    return as_features(pa.table(columns), "t")


def features(rows: list[Row]) -> FeatureRows:
    return FeatureRows.of(table(rows))


def hits(rows: list[Row], reference: list[Row], **how: Any) -> list[Hit]:
    found = reference_hits(features(rows), features(reference), **how)
    return list(
        zip(found.row.tolist(), found.reference.tolist(), found.kind.tolist(), found.value.tolist(), strict=True)
    )


def vector(row: Row) -> np.ndarray | None:
    value = row.get("embedding")
    half = None if value is None else np.array([value], np.float32).astype(np.float16)
    return half if half is not None and np.isfinite(half).all() and half.any() else None


def brute(
    rows: list[Row],
    reference: list[Row],
    exact: bool = True,
    radius: int | None = None,
    mirrored: bool = False,
    threshold: float | None = None,
) -> list[Hit]:
    """Every row with every row of the reference, in plain Python."""
    found = []
    for i, row in enumerate(rows):
        best: tuple[Any, ...] | None = None
        for j, other in enumerate(reference):
            options: list[tuple[int, float]] = []
            if exact and row.get("sha256") and row.get("sha256") == other.get("sha256"):
                options.append((Kind.SAME_BYTES, 0.0))
            pairs = [("phash", "phash"), *([("mirrored", "phash"), ("phash", "mirrored")] if mirrored else [])]
            for a, b in pairs:
                if radius is None or row.get("degenerate") or other.get("degenerate"):
                    continue
                if row.get(a) is not None and other.get(b) is not None:
                    distance = (row[a] ^ other[b]).bit_count()
                    options += [(Kind.NEAR_HASH, float(distance))] if distance <= radius else []
            left, right = vector(row), vector(other)
            if threshold is not None and left is not None and right is not None:
                cosine = float(cosines(left, right)[0])
                options += [(Kind.NEAR_VECTOR, cosine)] if cosine >= threshold else []
            for kind, value in options:
                key = (kind, -value if kind == Kind.NEAR_VECTOR else value, other["id"], j)
                if best is None or key < best[0]:
                    best = (key, (i, j, int(kind), value))
        if best is not None:
            found.append(best[1])
    return found


BASES = [0x0F0F_3333_5555_AAAA, 0x1234_5678_9ABC_DEF1, 0xF0F0_CCCC_A5A5_0FF0]


@st.composite
def feature_rows(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 12))):
        bits = draw(st.lists(st.integers(0, 63), max_size=6))
        phash = draw(st.sampled_from(BASES))
        for bit in bits:
            phash ^= 1 << bit
        rows.append(
            {
                "id": draw(st.sampled_from(["a", "b", "é", "z", "Z", "10", "9"])),
                "sha256": draw(st.sampled_from([None, "0" * 64, "a" * 64, "a" * 63 + "b", "f" * 64])),
                "phash": draw(st.sampled_from([phash, phash, None])),
                "mirrored": draw(st.sampled_from([None, *BASES])),
                "degenerate": draw(st.sampled_from([False, False, True])),
                "embedding": draw(
                    st.sampled_from(
                        [None, [0, 0, 0], [1, 0, 0], [1, 0.1, 0], [2, 0.2, 0], [1, 0.5, 0.1], [-1, 0, 0], [0, 0, 1]]
                    )
                ),
            }
        )
    return rows


@given(
    feature_rows(),
    feature_rows(),
    st.booleans(),
    st.sampled_from([None, 0, 2, 5, 8]),
    st.booleans(),
    st.sampled_from([None, 0.2, 0.9, 1.0]),
    st.sampled_from([1, 3, 2048]),
)
@settings(deadline=None, max_examples=70)
def test_the_same_as_comparing_everything(
    rows: list[Row],
    reference: list[Row],
    exact: bool,
    radius: int | None,
    mirrored: bool,
    threshold: float | None,
    block: int,
) -> None:
    how: dict[str, Any] = {"exact": exact, "radius": radius, "mirrored": mirrored, "threshold": threshold}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(references, "BLOCK", block)
        assert hits(rows, reference, **how) == brute(rows, reference, **how)


def test_bytes_come_before_hashes_and_hashes_before_vectors() -> None:
    row = {"id": "x", "sha256": "a" * 64, "phash": BASES[0], "embedding": [1.0, 0.0]}
    by_vector = {"id": "v", "embedding": [1.0, 0.0]}
    by_hash = {"id": "h", "phash": BASES[0] ^ 3}
    by_bytes = {"id": "s", "sha256": "a" * 64}
    how: dict[str, Any] = {"radius": 4, "threshold": 0.9}
    assert hits([row], [by_vector, by_hash, by_bytes], **how) == [(0, 2, Kind.SAME_BYTES, 0.0)]
    assert hits([row], [by_vector, by_hash], **how) == [(0, 1, Kind.NEAR_HASH, 2.0)]
    assert hits([row], [by_vector], **how) == [(0, 0, Kind.NEAR_VECTOR, 1.0)]
    assert hits([row], [by_vector, by_hash, by_bytes], exact=False) == []


def test_of_equally_near_ones_the_smaller_id_is_named() -> None:
    row = {"id": "x", "sha256": "a" * 64, "phash": BASES[0], "embedding": [1.0, 0.0]}
    for field, value in (("sha256", "a" * 64), ("phash", BASES[0] ^ 1), ("embedding", [3.0, 0.0])):
        reference = [{"id": name, field: value} for name in ("c", "b", "a", "b")]
        assert [hit[1] for hit in hits([row], reference, radius=1, threshold=1.0)] == [2]


def test_mirrored_pictures_count_only_when_they_shall() -> None:
    row = {"id": "x", "phash": BASES[0], "mirrored": BASES[1]}
    plain = {"id": "r", "phash": BASES[1] ^ 1}
    assert hits([row], [plain], radius=2) == []
    assert hits([row], [plain], radius=2, mirrored=True) == [(0, 0, Kind.NEAR_HASH, 1.0)]
    # The run may be the side without mirrored hashes.
    assert hits([plain], [row], radius=2, mirrored=True) == [(0, 0, Kind.NEAR_HASH, 1.0)]


def test_hashes_that_say_nothing_match_nothing() -> None:
    flat = {"id": "x", "phash": 1 << 63}
    assert hits([flat], [flat], radius=8) == []
    assert hits([{**flat, "degenerate": False}], [{**flat, "degenerate": False}], radius=8) != []
    assert hits([{"id": "x", "phash": BASES[0], "degenerate": True}], [{"id": "r", "phash": BASES[0]}], radius=8) == []


def test_nothing_against_something() -> None:
    some = [{"id": "x", "sha256": "a" * 64, "phash": BASES[0], "embedding": [1.0, 0.0]}]
    for rows, reference in (([], some), (some, []), ([], [])):
        assert hits(rows, reference, radius=8, mirrored=True, threshold=0.5) == []
    # Columns that are not there match nothing.
    bare = FeatureRows.of(pa.table({"id": ["x"]}))
    assert len(reference_hits(bare, bare, radius=8, mirrored=True, threshold=0.5)) == 0


def test_embeddings_of_two_lengths_are_an_error() -> None:
    one, two = [{"id": "x", "embedding": [1.0, 0.0]}], [{"id": "x", "embedding": [1.0, 0.0, 0.0]}]
    with pytest.raises(ValueError, match="of the rows have 2 values and those of the reference 3"):
        hits(one, two, threshold=0.5)
    assert hits(one, two, radius=4) == []
    with pytest.raises(ValueError, match=r"radius must be 0\.\.8"):
        hits(one, one, radius=9)


def random_rows(rng: np.random.Generator, count: int, width: int, near: pa.Table | None = None) -> pa.Table:
    """Random rows; with `near`, half of them are changed a little from rows of it."""
    phash = rng.integers(0, 2**64, count, dtype=np.uint64)
    vectors = rng.standard_normal((count, width)).astype(np.float32)
    if near is not None:
        for row in range(0, count, 2):
            other = int(rng.integers(0, len(near)))
            flips = rng.choice(64, int(rng.integers(0, 12)), replace=False)
            phash[row] = near.column("phash")[other].as_py() ^ sum(1 << int(bit) for bit in flips)
            vectors[row] = np.array(near.column("embedding")[other].as_py()) + 0.4 * rng.random() * vectors[row]
    ids = rng.permutation(count).astype(str)
    columns = {"id": ids, "phash": phash, "phash_degenerate": np.zeros(count, bool), "embedding": list(vectors)}
    return as_features(pa.table(columns), "t")


def test_many_rows_with_planted_neighbours() -> None:
    """Large enough for banding and for several blocks; the oracle is a float64 product of everything."""
    rng = np.random.default_rng(0)
    reference = random_rows(rng, 3000, 32)
    rows = random_rows(rng, 2500, 32, near=reference)
    left, right = FeatureRows.of(rows), FeatureRows.of(reference)
    distance = np.bitwise_count(left.phash[:, None] ^ right.phash[None])
    rank = np.argsort(np.argsort(np.array(reference.column("id").to_pylist())))
    nearest = (distance.astype(np.int64) * 10_000 + rank).argmin(axis=1)
    found = reference_hits(left, right, radius=5)
    expected = np.flatnonzero(distance.min(axis=1) <= 5)
    assert len(expected) > 400
    assert found.row.tolist() == expected.tolist()
    assert found.reference.tolist() == nearest[expected].tolist()
    assert found.value.tolist() == distance[expected, nearest[expected]].tolist()

    a, b = left.vectors.astype(np.float64), right.vectors.astype(np.float64)
    cosine = (a @ b.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)
    found = reference_hits(left, right, threshold=0.95)
    expected = np.flatnonzero(cosine.max(axis=1) >= 0.95)
    assert len(expected) > 400
    assert found.row.tolist() == expected.tolist()
    assert found.reference.tolist() == cosine.argmax(axis=1)[expected].tolist()
    assert np.allclose(found.value, cosine.max(axis=1)[expected], atol=1e-12)


def test_the_threshold_is_met_to_the_last_bit() -> None:
    """A float32 product cannot tell these apart from the threshold."""
    rng = np.random.default_rng(3)
    reference = random_rows(rng, 300, 256)
    rows = random_rows(rng, 200, 256, near=reference)
    left, right = FeatureRows.of(rows), FeatureRows.of(reference)
    everything = reference_hits(left, right, threshold=0.5)
    for hit in range(0, len(everything), 15):
        row, value = int(everything.row[hit]), float(everything.value[hit])
        assert row in reference_hits(left, right, threshold=value).row
        assert row not in reference_hits(left, right, threshold=float(np.nextafter(value, 2))).row


def test_a_reference_that_repeats_one_picture_costs_one_comparison() -> None:
    """A giant bucket: 200,000 equal rows are one hash, one digest and one vector."""
    count = 200_000
    same: dict[str, Any] = {
        "id": pa.array(np.arange(count).astype(str)),
        "sha256": pa.array(["a" * 64] * count),
        "phash": pa.array(np.full(count, BASES[0], np.uint64)),
        "embedding": pa.ListArray.from_arrays(
            pa.array(np.arange(0, 2 * count + 1, 2), pa.int32()), pa.array(np.tile([1.0, 0.5], count), pa.float32())
        ),
    }
    reference = Reference(FeatureRows.of(as_features(pa.table(same), "t")))
    rows = features([{"id": str(n), "phash": BASES[0] ^ 1, "embedding": [1.0, 0.5]} for n in range(500)])
    by_hash = reference.hits(rows, exact=True, radius=4, mirrored=False, threshold=None)
    by_vector = reference.hits(rows, exact=True, radius=None, mirrored=False, threshold=0.9)
    assert by_hash.reference.tolist() == by_vector.reference.tolist() == [0] * 500


def test_a_reference_travels_to_workers() -> None:
    reference = random_rows(np.random.default_rng(1), 50, 8)
    rows = FeatureRows.of(random_rows(np.random.default_rng(2), 40, 8, near=reference))
    index = Reference(FeatureRows.of(reference))
    how: dict[str, Any] = {"exact": True, "radius": 8, "mirrored": False, "threshold": 0.9}
    here, there = index.hits(rows, **how), pickle.loads(pickle.dumps(index)).hits(rows, **how)
    assert len(here) > 5
    for name in ("row", "reference", "kind", "value"):
        assert np.array_equal(getattr(here, name), getattr(there, name))
