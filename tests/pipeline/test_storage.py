"""The write protocol: whole or not at all, locally and on an object store."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from pipeline.storage import Storage


@pytest.fixture(scope="module")
def bucket(s3: str) -> str:
    """The server's URL; the bucket is "runs"."""
    fsspec.filesystem("s3").mkdir("runs")
    return s3


@pytest.fixture(params=["local", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return Storage(tmp_path / "run")
    if request.param == "memory":
        return Storage(f"memory://{tmp_path.name}/run")
    options = {
        "key": "test",
        "secret": "test",
        "client_kwargs": {"endpoint_url": request.getfixturevalue("bucket"), "region_name": "us-east-1"},
    }
    return Storage(f"s3://runs/{tmp_path.name}", options)


def test_a_file_is_there_after_the_block_and_not_before(storage: Storage) -> None:
    with storage.open_write("a/b.bin") as file:
        file.write(b"12")
        assert not storage.exists("a/b.bin")
    assert storage.read_bytes("a/b.bin") == b"12"
    assert storage.names("a") == ["b.bin"]
    assert storage.size("a/b.bin") == 2


def test_a_failed_write_leaves_the_old_content_and_nothing_else(storage: Storage) -> None:
    storage.write_bytes("x/file", b"old")

    def write_and_fail() -> None:
        with storage.open_write("x/file") as file:
            file.write(b"new" * 1000)
            raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        write_and_fail()
    assert storage.read_bytes("x/file") == b"old"
    assert storage.names("x") == ["file"]


def test_folders_replace_each_other(storage: Storage) -> None:
    storage.write_bytes("old/stale.bin", b"0")
    storage.write_bytes("old/_complete.json", b"{}")
    storage.write_bytes("new/part.bin", b"1")
    storage.write_bytes("new/sub/part.bin", b"2")
    storage.write_bytes("new/_complete.json", b"{1}")
    storage.publish_folder("new", "old", last="_complete.json")
    assert not storage.exists("new/part.bin")
    assert storage.names("old") == ["_complete.json", "part.bin", "sub"]
    assert storage.read_bytes("old/sub/part.bin") == b"2"


def test_tables_come_back_with_their_metadata_and_equal_bytes(storage: Storage) -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}).replace_schema_metadata({b"k": b"v"})
    storage.write_table("t/one.parquet", table, row_group_size=2)
    storage.write_table("t/two.parquet", table, row_group_size=2)
    assert storage.read_table("t/one.parquet").equals(table, check_metadata=True)
    assert storage.read_bytes("t/one.parquet") == storage.read_bytes("t/two.parquet")
    assert storage.read_table("t/one.parquet", ["b"]).column_names == ["b"]


def test_removing_and_listing_what_is_not_there_is_fine(storage: Storage) -> None:
    storage.remove("nothing")
    assert storage.names("nothing") == []


def test_sweep_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    storage.write_bytes("work/part", b"1")
    (tmp_path / "work/.part.0a1b2c3d.tmp").write_bytes(b"half")
    assert storage.names("work") == ["part"]
    storage.sweep()
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["part"]
