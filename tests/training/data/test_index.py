"""An index is believed only as far as its manifest and its tar go: nothing is reserved for what it merely says."""

from __future__ import annotations

import resource
from pathlib import Path

import pyarrow as pa
import pytest

from curation.manifest import read_index
from curation.parquet_files import write_parquet
from curation.shards import INDEX_SCHEMA
from training.data.errors import DataError
from training.data.index import parse_index
from training.prediction.tars import Tars

TAR_BYTES = 10_240


def index(offset: int = 512, size: int = 100, rows: int = 2, **columns: list[object]) -> bytes:
    values: dict[str, object] = {
        name: [f"{name}{row}" for row in range(rows)]
        if pa.types.is_string(INDEX_SCHEMA.field(name).type)
        else [0] * rows
        for name in INDEX_SCHEMA.names
    }
    values |= {"image_offset": [512] * (rows - 1) + [offset], "image_size": [100] * (rows - 1) + [size], **columns}
    buffer = pa.BufferOutputStream()
    write_parquet(pa.table(values), buffer)
    return buffer.getvalue().to_pybytes()


def test_a_good_index_is_read() -> None:
    parsed = parse_index(index(TAR_BYTES - 100, 100), 2, TAR_BYTES, "it")
    assert parsed.offsets.tolist() == [512, TAR_BYTES - 100]
    assert parsed.id(1) == "id1"


@pytest.mark.parametrize(
    ("offset", "size"),
    [(2**40, 100), (512, 2**40), (-1, 100), (512, -1), (2**62, 2**62), (2**63 - 1, 1), (TAR_BYTES - 99, 100)],
)
def test_places_outside_of_the_tar_are_refused(offset: int, size: int) -> None:
    with pytest.raises(DataError, match="outside of its tar of 10240 bytes"):
        parse_index(index(offset, size), 2, TAR_BYTES, "it")


def test_a_tar_that_is_said_to_be_large_helps_no_image_beyond_the_cap() -> None:
    with pytest.raises(DataError, match=f"an image of {2**40} bytes; at most {2**30} are read"):
        parse_index(index(512, 2**40), 2, 2**41, "it")


def test_rows_are_counted_before_memory_is_taken_for_them() -> None:
    # 20 million rows of one value take 0.6 MB in the file and 1.7 GB in memory.
    rows = 20_000_000
    table = pa.table(
        {name: pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), [name * 30]) for name in ("id", "sha256")}
    )
    buffer = pa.BufferOutputStream()
    write_parquet(table, buffer)
    data = buffer.getvalue().to_pybytes()
    assert len(data) < 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="has 20000000 rows, its manifest says 2"):
        parse_index(data, 2, TAR_BYTES, "it")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize(
    "columns",
    [{"image_size": [1, None]}, {"image_size": ["a", "b"]}, {"image_offset": [2.5, 3.5]}, {"id": [None, "x"]}],
)
def test_values_that_are_no_places_are_refused(columns: dict[str, list[object]]) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        parse_index(index(**columns), 2, TAR_BYTES, "it")


def test_no_memory_is_taken_for_bytes_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"x" * 600)
    tars = Tars(tmp_path)
    assert tars.read("a", 512, 2**40) == b"x" * 88
    assert tars.read("a", 2**40, 2**40) == b""
    with pytest.raises(OSError, match="neither may be negative"):
        tars.read("a", -512, 8)
    tars.close()


@pytest.mark.parametrize(("part", "message"), [("samples", "the manifest says 9"), ("bytes", "outside of its tar")])
def test_a_forged_manifest_is_refused_where_predictions_read_it(tmp_path: Path, part: str, message: str) -> None:
    import json

    from tests.fixtures import exports

    exports.export(tmp_path / "shards", [2])
    path = tmp_path / "shards/manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["shards"][0][part] = 9
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=message):
        read_index(tmp_path / "shards")
