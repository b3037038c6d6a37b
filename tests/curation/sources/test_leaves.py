import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.sources.leaves import count, is_bytes, is_vector, leaf, select

DEEP = {
    "image": pa.array([b"1"]),
    "mask": pa.array([{"bytes": b"1", "path": "m.png", "in": {"raw": b"2", "width": 3}}]),
    "views": pa.array([[{"bytes": b"1", "path": "v.png"}]]),
    "thumbs": pa.array([[b"1"]]),
    "blobs": pa.array([[("k", b"v")]], pa.map_(pa.string(), pa.binary())),
    "boxes": pa.array(
        [[("k", {"b": b"1", "w": 3})]], pa.map_(pa.string(), pa.struct([("b", pa.binary()), ("w", pa.int8())]))
    ),
    "coded": pa.array([b"1"]).dictionary_encode(),
    "md5": pa.array([b"1" * 16], pa.binary(16)),
    "attributes": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
    "uuid": pa.array([b"1" * 16], pa.uuid()),
    "emb": pa.array([[0.5]]),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2]], pa.list_(pa.int32(), 2))
    ),
    "a.b": pa.array([1]),
    "a": pa.array([{"b": 2}]),
    "none": pa.nulls(1),
    "text": pa.array(["x"]),
}  # fmt: skip


def stored() -> pq.ParquetFile:
    file = io.BytesIO()
    pq.write_table(pa.table(DEEP), file)
    return pq.ParquetFile(file)


def test_every_parquet_column_is_a_leaf() -> None:
    file = stored()
    assert count(file.schema_arrow) == file.metadata.num_columns


def test_bytes_are_left_out_at_any_depth_and_the_rest_is_kept() -> None:
    file = stored()
    selection = select(file.schema_arrow, None, "image")
    assert selection.binary == (
        "mask.bytes", "mask.in.raw", "views.[].bytes", "thumbs.[]", "blobs", "boxes", "coded", "md5"
    )  # fmt: skip
    batch = next(file.reader.iter_batches(10, row_groups=[0], column_indices=list(selection.leaves)))
    assert batch.to_pylist()[0] == {
        "mask": {"path": "m.png", "in": {"width": 3}},
        "views": [{"path": "v.png"}],
        "attributes": [("k", 1)],
        "uuid": DEEP["uuid"].to_pylist()[0],
        "a.b": 1,
        "a": {"b": 2},
        "none": None,
        "text": "x",
    }


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], {}),
        (["a"], {"a": {"b": 2}}),
        (["a.b"], {"a.b": 1}),
        (["thumbs", "emb"], {"thumbs": [b"1"], "emb": [0.5]}),
        (["image", "text"], {"text": "x"}),
    ],
)
def test_named_columns_are_read_whole(wanted: list[str], expected: dict[str, Any]) -> None:
    file = stored()
    selection = select(file.schema_arrow, wanted, "image")
    assert selection.binary == ()
    batches = file.reader.iter_batches(10, row_groups=[0], column_indices=list(selection.leaves))
    assert (next(batches).to_pylist()[0] if expected else {}) == expected


def test_a_path_is_found_whatever_dots_a_name_has() -> None:
    schema = pa.schema([("a.b", pa.int8()), ("a", pa.struct([("b", pa.int8())])), ("c", pa.int8()), ("c", pa.int8())])
    assert (leaf(schema, ("a.b",)), leaf(schema, ("a", "b")), leaf(schema, ("c",)), leaf(schema, ("a",))) == (
        0, 1, 2, None
    )  # fmt: skip


def test_kinds() -> None:
    assert all(map(is_bytes, [pa.binary(), pa.large_binary(), pa.binary(3), pa.binary_view(), DEEP["coded"].type]))
    assert not any(map(is_bytes, [pa.string(), pa.list_(pa.binary()), pa.int8()]))
    assert all(map(is_vector, [pa.list_(pa.int8()), pa.large_list(pa.list_(pa.float32(), 3)), DEEP["tensor"].type]))
    assert not any(map(is_vector, [pa.list_(pa.string()), pa.list_(pa.bool_()), pa.float32()]))
