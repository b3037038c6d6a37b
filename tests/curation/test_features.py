"""A feature table of a user's is taken in any sensible form, and refused in words when it is not one."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.features import (
    FEATURE_SCHEMA,
    META_KEY,
    FeatureError,
    as_features,
    check_fingerprints,
    embedding_width,
    feature_schema,
    feature_writer,
    find_features,
    read_features,
    stated_fingerprints,
)

SHA = [hashlib.sha256(bytes([number])).hexdigest() for number in range(4)]


def write(path: Path, columns: dict[str, Any], metadata: dict[bytes, bytes] | None = None) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return str(path)


def test_what_is_missing_is_null_and_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    table = read_features(write(tmp_path / "a.parquet", {"sha256": SHA, "caption": ["x"] * 4}))
    assert table.schema.equals(FEATURE_SCHEMA)
    assert table.column("sha256").to_pylist() == SHA
    assert table.column("id").to_pylist() == ["0", "1", "2", "3"]
    assert all(table.column(name).null_count == 4 for name in FEATURE_SCHEMA.names[2:])


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "sha256": [SHA[0], None, SHA[2]],
            "phash": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "phash_mirrored": pa.array([1, None, 3], pa.uint64()),
            "phash_degenerate": [True, False, None],
            "embedding": pa.array([np.array([0.5, -1], np.float16), None, np.array([0, 1], np.float16)]),
        }
    )
    files = []
    for _ in range(2):
        buffer = io.BytesIO()
        with feature_writer(buffer, {"screen": "s1", "person": "p"}) as writer:
            writer.write_table(as_features(table, "t"))
        files.append(buffer.getvalue())
    assert files[0] == files[1]
    (tmp_path / "a.parquet").write_bytes(files[0])
    again = read_features(str(tmp_path / "a.parquet"))
    assert again.to_pylist() == table.to_pylist()
    assert stated_fingerprints(again.schema) == {"screen": "s1"}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2**63 + 5, None, 7], pa.uint64()),
        pa.array([5 - 2**63, None, 7], pa.int64()),
        pa.array(["8000000000000005", None, "0000000000000007"]),
        pa.array(["8000000000000005", None, "0000000000000007"]).dictionary_encode(),
        pa.array(["8000000000000005", None, "0000000000000007"], pa.large_string()),
    ],
    ids=["uint64", "int64", "hex", "dictionary", "large_string"],
)
def test_hashes_in_every_form(tmp_path: Path, values: pa.Array) -> None:
    table = read_features(write(tmp_path / "a.parquet", {"phash": values}))
    assert table.column("phash").to_pylist() == [2**63 + 5, None, 7]


def test_hash_letters_of_either_case() -> None:
    table = as_features(pa.table({"phash": ["ABCDEF0123456789"], "sha256": [SHA[1].upper()]}), "t")
    assert table.column("phash").to_pylist() == [0xABCDEF0123456789]
    assert table.column("sha256").to_pylist() == [SHA[1]]
    binary = pa.array([bytes.fromhex(SHA[1]), None], pa.binary(32))
    assert as_features(pa.table({"sha256": binary}), "t").column("sha256").to_pylist() == [SHA[1], None]


@pytest.mark.parametrize("value", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
def test_embeddings_in_every_form(tmp_path: Path, value: pa.DataType, kind: str) -> None:
    flat = pa.array(np.array([0.5, -0.25, 1, 0, 3, 3], value.to_pandas_dtype()), value)
    nulls = pa.array([False, True, False])
    if kind == "fixed":
        array = pa.FixedSizeListArray.from_arrays(flat, 2, mask=nulls)
    elif kind == "large_list":
        array = pa.LargeListArray.from_arrays(pa.array([0, 2, 2, 4], pa.int64()), flat[:4], mask=nulls)
    else:
        array = pa.ListArray.from_arrays(pa.array([0, 2, 2, 4], pa.int32()), flat[:4], mask=nulls)
    last = [3.0, 3.0] if kind == "fixed" else [1.0, 0.0]
    table = read_features(write(tmp_path / "a.parquet", {"embedding": array}))
    assert table.schema.field("embedding").type == pa.list_(pa.float16())
    found = table.column("embedding").to_pylist()
    assert found[:2] == [[0.5, -0.25], None]
    assert found[2][0] * last[1] == found[2][1] * last[0]
    assert embedding_width(table) == 2
    # A slice starts in the middle of its buffers.
    assert as_features(pa.table({"embedding": array.slice(2)}), "t").column("embedding").to_pylist() == found[2:]


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 3.0, 1e9, 1e30])
def test_the_direction_of_an_embedding_survives_any_length(scale: float) -> None:
    vector = np.random.default_rng(1).standard_normal(64)
    vector *= scale / np.linalg.norm(vector)
    table = as_features(pa.table({"embedding": pa.array([vector])}), "t")
    half = np.array(table.column("embedding").to_pylist()[0])
    assert half @ vector / np.linalg.norm(half) / np.linalg.norm(vector) > 1 - 1e-6


def test_an_ordinary_embedding_is_rounded_and_nothing_else() -> None:
    vectors = np.random.default_rng(2).standard_normal((50, 300))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = as_features(pa.table({"embedding": pa.array(list(vectors))}), "t")
    assert np.array_equal(np.array(table.column("embedding").to_pylist()), vectors.astype(np.float16))


def test_embeddings_that_are_not_finite_stay_so() -> None:
    array = pa.array([[np.inf, 1.0], [np.nan, 1.0], [1e9, np.nan]])
    half = np.array(as_features(pa.table({"embedding": array}), "t").column("embedding").to_pylist())
    assert not np.isfinite(half).all(axis=1).any()


WRONG: list[tuple[str, Any, str]] = [
    ("sha256", ["abc"], r"a.parquet, row 0: sha256 is no SHA-256: give 64 hex characters"),
    ("sha256", [SHA[0], "g" * 64], r"row 1: sha256"),
    ("sha256", pa.array([b"abc"]), r"row 0: sha256"),
    ("sha256", [1], r"the column sha256 is int64; allowed: string of 64 hex"),
    ("phash", ["12"], r"row 0: phash is no 64-bit hash"),
    ("phash", [1.5], r"the column phash is double; allowed: uint64, int64"),
    ("phash_degenerate", [0], r"the column phash_degenerate is int64; allowed: bool"),
    ("embedding", [0.5], r"the column embedding is double; allowed: list"),
    ("embedding", [[1, 2]], r"the column embedding is list<.*int64>; allowed"),
    ("embedding", [[0.5, 1.0], [0.5]], r"row 1: embedding has 1 values and an earlier row has 2"),
    ("embedding", pa.array([None, []], pa.list_(pa.float32())), r"row 1: embedding is an empty list"),
    ("embedding", [[0.5, 1.0], None, [0.5, None]], r"row 2: embedding has a null among its values"),
    ("caption", ["x"], r"none of the columns sha256, phash, embedding; its columns are caption"),
]


@pytest.mark.parametrize(("name", "values", "message"), WRONG, ids=[f"{item[0]}-{item[2][:30]}" for item in WRONG])
def test_a_wrong_column_is_named_with_what_is_allowed(tmp_path: Path, name: str, values: Any, message: str) -> None:
    path = write(tmp_path / "a.parquet", {name: values})
    with pytest.raises(FeatureError, match=message):
        read_features(path)


def test_a_folder_is_one_table_in_order_of_names(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    write(folder / "b.parquet", {"sha256": SHA[2:], "embedding": [[1.0, 0.0], None]})
    write(folder / "a.parquet", {"sha256": SHA[:2], "phash": [1, 2]})
    (folder / "notes.txt").write_text("not a table")
    found = find_features(str(folder))
    assert (found.num_rows, found.names) == (4, ("a.parquet", "b.parquet"))
    table = found.read()
    assert table.column("sha256").to_pylist() == SHA
    assert table.column("id").to_pylist() == ["0", "1", "2", "3"]
    assert table.column("phash").to_pylist() == [1, 2, None, None]
    write(folder / "c.parquet", {"embedding": [[1.0, 0.0, 0.0]]})
    with pytest.raises(FeatureError, match=r"c.parquet: embeddings of 3 values after embeddings of 2"):
        read_features(str(folder))
    write(folder / "d.parquet", {"sha256": ["nothing"]})
    (folder / "c.parquet").unlink()
    with pytest.raises(FeatureError, match=r"d.parquet, row 4: sha256"):
        read_features(str(folder))


def test_a_table_on_an_object_store(tmp_path: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe("/features/a.parquet", Path(write(tmp_path / "a.parquet", {"sha256": SHA})).read_bytes())
    for path in ("memory://features", "memory://features/a.parquet"):
        assert read_features(path).column("sha256").to_pylist() == SHA
    with pytest.raises(FeatureError, match="memory://nowhere does not exist"):
        find_features("memory://nowhere")


def test_a_place_without_a_table_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(FeatureError, match=r"does not exist\. Give a Parquet file, or a folder"):
        find_features(str(tmp_path / "none"))
    with pytest.raises(FeatureError, match="folder without Parquet files"):
        find_features(str(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"no table")
    with pytest.raises(FeatureError, match=r"a.parquet cannot be read as Parquet"):
        find_features(str(tmp_path))


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.parquet", {"phash": np.random.default_rng(0).integers(0, 2**62, 5000)}))
    data = bytearray(path.read_bytes())
    data[4:4000] = bytes(3996)
    path.write_bytes(data)
    with pytest.raises(FeatureError, match=r"a.parquet is damaged"):
        read_features(str(path))


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"sha256": pa.array([], pa.string()), "embedding": pa.array([], pa.null())})
    table = read_features(path)
    assert (len(table), embedding_width(table)) == (0, None)


def test_files_of_two_models_are_no_table(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"phash": [1]}, feature_schema({"screen": "one"}).metadata)
    write(tmp_path / "b.parquet", {"phash": [2]})
    assert stated_fingerprints(read_features(str(tmp_path)).schema) == {"screen": "one"}
    write(tmp_path / "b.parquet", {"phash": [2]}, feature_schema({"screen": "two"}).metadata)
    with pytest.raises(FeatureError, match=r"b.parquet was measured by another screen stage"):
        find_features(str(tmp_path))


def test_fingerprints_are_compared_where_they_are_stated() -> None:
    run = {"screen": "a", "embedding": "b"}
    how = {"screen": "Measure again.", "embedding": "Embed again."}
    check_fingerprints({}, run, ["screen", "embedding"], "t", how)
    check_fingerprints({"embedding": "x"}, run, ["screen"], "t", how)
    with pytest.raises(FeatureError, match=r"t holds embeddings of another.*\(fingerprint x\).*\(b\).*Embed again"):
        check_fingerprints({"screen": "a", "embedding": "x"}, run, ["screen", "embedding"], "t", how)
    with pytest.raises(FeatureError, match=r"perceptual hashes.*Measure again"):
        check_fingerprints({"screen": "x"}, run, ["screen", "embedding"], "t", how)


def test_metadata_of_others_is_no_fingerprint() -> None:
    for raw in (b"{", b"[]", b'{"screen": null}'):
        assert stated_fingerprints(FEATURE_SCHEMA.with_metadata({META_KEY: raw})) == {}
