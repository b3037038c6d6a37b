"""Shards are byte-identical on every run, exactly as large as planned, and open in the usual readers unchanged."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curation.shards import (
    EXTENSIONS,
    INDEX_SCHEMA,
    Sample,
    canonical_json,
    check_key,
    index_bytes,
    plan_shards,
    safe_key,
    shard_bytes,
    shard_name,
    write_shard,
)


def picture(number: int, kind: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (16 + number % 5, 16), (number % 256, 80, 160)).save(buffer, kind)
    return buffer.getvalue()


def sample(number: int, kind: str = "JPEG") -> Sample:
    sidecar = {"caption": None if number % 2 else "Zoë — 人", "score": number / 7, "nested": {"n": number}}
    return Sample(f"id{number:04d}", f"key{number:04d}", EXTENSIONS[kind], picture(number, kind), sidecar)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of JPEG and one of PNG, seven samples each."""
    path = tmp_path_factory.mktemp("shards")
    for shard, kind in enumerate(("JPEG", "JPEG", "PNG")):
        with open(path / f"{shard_name(shard)}.tar", "wb") as file:
            write_shard(file, (sample(shard * 7 + row, kind) for row in range(7)), shard_name(shard))
    return path


EXPECTED = {f"key{number:04d}": picture(number, "JPEG" if number < 14 else "PNG") for number in range(21)}


def test_bytes_are_the_same_on_every_run_and_do_not_change_between_versions() -> None:
    tars = []
    for _ in range(2):
        buffer = io.BytesIO()
        result = write_shard(buffer, [Sample("i", "k", "jpg", b"data", {"b": 1, "a": "ü"})], "shard-000000")
        tars.append(buffer.getvalue())
    assert tars[0] == tars[1]
    assert hashlib.sha256(tars[0]).hexdigest() == result.sha256
    # Corpora are addressed by checksum: a change of this value breaks every manifest ever written.
    assert result.sha256 == "dde3f2fcdb80c060c900127563e2b7144ce42a7aa19e9227c5582c0b052da08f"


def test_headers_hold_nothing_but_name_and_size() -> None:
    buffer = io.BytesIO()
    write_shard(buffer, [sample(0)], "shard-000000")
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["key0000.jpg", "key0000.json"]
    for member in members:
        assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0)
        assert member.mode == 0o644
        assert member.isfile()


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs the tar program")
def test_the_tar_program_reads_it(folder: Path) -> None:
    done = subprocess.run(["tar", "tf", folder / "shard-000000.tar"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split()[:2] == ["key0000.jpg", "key0000.json"]


def test_result_and_index_describe_the_tar() -> None:
    samples = [sample(number) for number in range(5)]
    buffer = io.BytesIO()
    result = write_shard(buffer, samples, "shard-000003")
    tar = buffer.getvalue()
    assert (result.shard, result.samples, result.bytes) == ("shard-000003", 5, len(tar))
    assert result.index.schema == INDEX_SCHEMA
    for row, item in zip(result.index.to_pylist(), samples, strict=True):
        assert tar[row["image_offset"] :][: row["image_size"]] == item.data
        assert json.loads(tar[row["json_offset"] :][: row["json_size"]]) == item.sidecar
        assert row["sha256"] == hashlib.sha256(item.data).hexdigest()
        assert (row["key"], row["id"], row["extension"], row["shard"]) == (item.key, item.id, "jpg", "shard-000003")


def test_index_file_round_trips_and_is_deterministic() -> None:
    results = [write_shard(io.BytesIO(), [sample(1), sample(2)], "shard-000000") for _ in range(2)]
    files = [index_bytes(result.index) for result in results]
    assert files[0] == files[1]
    assert pq.read_table(io.BytesIO(files[0])).equals(results[0].index)


def test_empty_shard_and_empty_index_are_valid() -> None:
    buffer = io.BytesIO()
    result = write_shard(buffer, [], "shard-000000")
    assert (result.samples, result.bytes, result.index.num_rows) == (0, 1024, 0)
    assert pq.read_table(io.BytesIO(index_bytes(result.index))).schema == INDEX_SCHEMA


@pytest.mark.parametrize("key", ["", "a.b", "a/b", "../a", "a b", "ü", "_meta", "-a", "a" * 96, "a\n"])
def test_unsafe_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        write_shard(io.BytesIO(), [Sample("i", key, "jpg", b"", {})], "shard-000000")


@pytest.mark.parametrize("extension", ["", "JPG", "tar.gz", "json", "x" * 9])
def test_unsafe_extensions_are_refused(extension: str) -> None:
    with pytest.raises(ValueError, match="extension"):
        check_key("key", extension)


def test_repeated_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'key0001' appears twice"):
        write_shard(io.BytesIO(), [sample(1), sample(2), sample(1)], "shard-000000")


@given(st.text(max_size=300))
def test_safe_key_always_gives_a_valid_key(text: str) -> None:
    check_key(safe_key(text), "webp")


def test_safe_key_keeps_valid_keys_and_tells_similar_ones_apart() -> None:
    assert safe_key("photo_12-A") == "photo_12-A"
    keys = [safe_key(text) for text in ("img.v2", "img.v3", "img/v2", "img-v2", "", ".", "人", "x" * 200)]
    assert len(set(keys)) == len(keys)
    assert keys[0].startswith("img-v2-")


def test_canonical_json() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "Zoë"}) == '{"a":"Zoë","b":[1,2.5,null]}'.encode()
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})


def test_values_that_json_cannot_hold_do_not_stop_an_export() -> None:
    hostile = json.loads('{"a": NaN, "b": [Infinity, {"c": -Infinity}], "d": "\\ud800x", "e\\udfff": 1}')
    assert json.loads(canonical_json(hostile)) == {"a": None, "b": [None, {"c": None}], "d": "\ufffdx", "e\ufffd": 1}


def test_values_of_other_types_are_an_error() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        canonical_json({"a": np.float32(1)})


sizes = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 600)), max_size=40)


@given(sizes, st.integers(1, 20_000), st.integers(1, 10))
def test_plan_is_greedy_and_its_sizes_are_exact(
    members: list[tuple[int, int]], max_bytes: int, max_samples: int
) -> None:
    array = np.array(members, dtype=np.int64).reshape(-1, 2)
    bounds = plan_shards(array, max_bytes, max_samples)
    assert bounds[0] == 0
    assert bounds[-1] == len(members)
    assert (np.diff(bounds) >= 1).all()
    predicted = shard_bytes(array, bounds)

    def written(start: int, stop: int) -> int:
        buffer = io.BytesIO()
        for row in range(start, stop):
            for size in members[row]:
                info = tarfile.TarInfo("x")
                info.size = size
                buffer.write(info.tobuf(tarfile.USTAR_FORMAT) + bytes(size) + bytes(-size % 512))
        return len(buffer.getvalue()) + 1024

    for shard, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        assert predicted[shard] == written(start, stop)
        assert stop - start <= max_samples
        assert predicted[shard] <= max_bytes or stop - start == 1
        if stop < len(members):
            assert stop - start == max_samples or written(start, stop + 1) > max_bytes


def test_planned_size_is_the_written_size() -> None:
    samples = [sample(number) for number in range(30)]
    array = [(len(item.data), len(canonical_json(item.sidecar))) for item in samples]
    bounds = plan_shards(array, 12_000, 100)
    assert len(bounds) > 3
    for size, start, stop in zip(shard_bytes(array, bounds), bounds[:-1], bounds[1:], strict=True):
        assert write_shard(io.BytesIO(), samples[start:stop], "s").bytes == size <= 12_000


def test_plan_of_nothing_is_no_shard() -> None:
    bounds = plan_shards(np.empty((0, 2), dtype=np.int64), 1000, 10)
    assert bounds.tolist() == [0]
    assert shard_bytes(np.empty((0, 2), dtype=np.int64), bounds).tolist() == []
    assert plan_shards([], 1000, 10, groups=[]).tolist() == [0]


def test_groups_never_share_a_shard() -> None:
    groups = ["jpg"] * 5 + ["png"] * 2 + ["webp"]
    assert plan_shards([10] * 8, 10**6, 3, groups).tolist() == [0, 3, 5, 7, 8]


def test_bad_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        plan_shards([1], 0, 1)
    with pytest.raises(ValueError, match="negative"):
        plan_shards([-1], 10, 1)
    with pytest.raises(ValueError, match="one entry per sample"):
        plan_shards([1, 2], 10, 1, groups=["a"])


def test_webdataset_reads_it_unchanged(folder: Path) -> None:
    import webdataset

    paths = [str(path) for path in sorted(folder.glob("*.tar"))]
    found = {}
    for row in webdataset.WebDataset(paths, shardshuffle=False):
        found[row["__key__"]] = row.get("jpg", row.get("png"))
        assert json.loads(row["json"]) == sample(int(row["__key__"][3:])).sidecar
    assert found == EXPECTED


@pytest.mark.parametrize("streaming", [True, False])
def test_hugging_face_datasets_reads_a_format_unchanged(folder: Path, streaming: bool, tmp_path: Path) -> None:
    from datasets import Image as ImageFeature
    from datasets import load_dataset

    files = [str(folder / f"shard-{shard:06d}.tar") for shard in (0, 1)]
    rows = load_dataset(
        "webdataset", data_files={"train": files}, split="train", streaming=streaming, cache_dir=str(tmp_path)
    )
    assert {row["__key__"]: row["jpg"].size[0] for row in rows} == {f"key{n:04d}": 16 + n % 5 for n in range(14)}
    raw = rows.cast_column("jpg", ImageFeature(decode=False))
    assert {row["__key__"]: row["jpg"]["bytes"] for row in raw} == {
        key: data for key, data in EXPECTED.items() if key < "key0014"
    }


def test_ray_reads_it_unchanged(folder: Path, ray_cluster: str) -> None:
    import ray

    rows = ray.data.read_webdataset(str(folder), decoder=None).take_all()
    found = {row["__key__"]: next(row[name] for name in ("jpg", "png") if row.get(name)) for row in rows}
    assert found == EXPECTED
    decoded = ray.data.read_webdataset([str(folder / "shard-000000.tar")]).take_all()
    assert sorted(row["jpg"].shape for row in decoded) == sorted((16, 16 + n % 5, 3) for n in range(7))
    assert [row["json"] for row in sorted(decoded, key=lambda row: row["__key__"])] == [
        sample(n).sidecar for n in range(7)
    ]
