"""A manifest accounts for every byte of an export, and the check finds whatever does not agree with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curation.manifest import (
    build_manifest,
    manifest_bytes,
    manifest_shard,
    read_index,
    read_manifest,
    verify_shards,
)
from curation.shards import Sample, index_bytes, shard_name, write_shard

IDENTITY = {"config_hash": "c0ffee", "formats": {"tar": 1}, "source_fingerprint": "f00d"}


def export(folder: Path, shards: int = 3) -> dict[str, Any]:
    entries = []
    (folder / "index").mkdir(parents=True)
    for number in range(shards):
        name = shard_name(number)
        samples = [
            Sample(
                f"id{number}{row}",
                f"k{number}-{row}",
                ("jpg", "png")[number % 2],
                bytes([row]) * (600 + row),
                {"row": row},
            )
            for row in range(4)
        ]
        with open(folder / f"{name}.tar", "wb") as file:
            result = write_shard(file, samples, name)
        data = index_bytes(result.index)
        (folder / "index" / f"{name}.parquet").write_bytes(data)
        entries.append(manifest_shard(result, data))
    manifest = build_manifest(entries[::-1], **IDENTITY)
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    return manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(tmp_path / "shards")
    return tmp_path / "shards"


def test_manifest_says_what_is_there(tmp_path: Path) -> None:
    manifest = export(tmp_path / "shards")
    assert {name: manifest[name] for name in IDENTITY} == IDENTITY
    assert manifest["samples"] == 12
    assert manifest["image_bytes"] == 3 * (600 + 601 + 602 + 603)
    assert manifest["bytes"] == sum(path.stat().st_size for path in (tmp_path / "shards").glob("*.tar"))
    assert manifest["extensions"] == {"jpg": 8, "png": 4}
    assert [shard["tar"] for shard in manifest["shards"]] == [f"shard-00000{number}.tar" for number in range(3)]


def test_manifest_is_canonical(tmp_path: Path) -> None:
    first, second = export(tmp_path / "a"), export(tmp_path / "b")
    assert manifest_bytes(first) == manifest_bytes(second)
    assert json.loads(manifest_bytes(first)) == first == read_manifest(tmp_path / "a")


def test_index_of_all_shards_in_order(folder: Path) -> None:
    rows = read_index(folder).to_pylist()
    assert [row["key"] for row in rows] == [f"k{shard}-{row}" for shard in range(3) for row in range(4)]
    row = rows[6]
    with open(folder / f"{row['shard']}.tar", "rb") as file:
        file.seek(row["image_offset"])
        assert file.read(row["image_size"]) == bytes([2]) * 602


def test_an_export_of_nothing(tmp_path: Path) -> None:
    manifest = export(tmp_path / "shards", shards=0)
    assert (manifest["samples"], manifest["bytes"], manifest["shards"]) == (0, 0, [])
    assert read_index(tmp_path / "shards").num_rows == 0
    assert verify_shards(tmp_path / "shards") == []


def test_a_good_export_has_no_problems(folder: Path) -> None:
    assert verify_shards(folder) == []


def flip_byte(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def rewrite_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = read_manifest(folder)
    change(manifest)
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("bit flip", lambda folder: flip_byte(folder / "shard-000001.tar", 700), "shard-000001.tar: SHA-256 is"),
    ("truncated", lambda folder: (folder / "shard-000001.tar").write_bytes(b"x"), "shard-000001.tar: 1 bytes, the"),
    ("tar gone", lambda folder: (folder / "shard-000002.tar").unlink(), "shard-000002.tar: missing"),
    ("index gone", lambda folder: (folder / "index/shard-000000.parquet").unlink(), "shard-000000.parquet: missing"),
    ("index damaged", lambda folder: flip_byte(folder / "index/shard-000000.parquet", 9), "parquet: SHA-256 is"),
    ("stray tar", lambda folder: (folder / "shard-000009.tar").write_bytes(b""), "shard-000009.tar: not in manifest"),
    (
        "wrong total",
        lambda folder: rewrite_manifest(folder, lambda manifest: manifest.update(samples=13)),
        "samples is 13, the shards add up to 12",
    ),
    ("no manifest", lambda folder: (folder / "manifest.json").unlink(), "no manifest.json"),
    ("broken manifest", lambda folder: (folder / "manifest.json").write_bytes(b"{"), "is not JSON"),
    (
        "newer manifest",
        lambda folder: rewrite_manifest(folder, lambda manifest: manifest.update(format_version=99)),
        "format_version 99",
    ),
]


@pytest.mark.parametrize(("damage", "message"), [item[1:] for item in DAMAGE], ids=[item[0] for item in DAMAGE])
def test_damage_is_found(folder: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(folder)
    problems = verify_shards(folder)
    assert len(problems) == 1
    assert message in problems[0]


def replace_shard(folder: Path, number: int, samples: list[Sample], change: Callable[[Any], Any]) -> None:
    """Write another shard whose checksums are right and whose index went through `change`."""
    name = shard_name(number)
    with open(folder / f"{name}.tar", "wb") as file:
        result = write_shard(file, samples, name)
    data = index_bytes(change(result.index))
    (folder / "index" / f"{name}.parquet").write_bytes(data)
    entry = manifest_shard(result, data)

    def swap(manifest: dict[str, Any]) -> None:
        manifest["shards"][number] = {field: getattr(entry, field) for field in type(entry).__slots__}
        for total in ("samples", "bytes", "image_bytes"):
            manifest[total] = sum(shard[total] for shard in manifest["shards"])

    rewrite_manifest(folder, swap)


def test_an_index_that_lies_about_offsets_is_found(folder: Path) -> None:
    def shift(index: Any) -> Any:
        moved = [offset + 1 for offset in index.column("image_offset").to_pylist()]
        return index.set_column(index.schema.get_field_index("image_offset"), "image_offset", [moved])

    replace_shard(folder, 0, [Sample("i", "k", "jpg", b"abc", {})], shift)
    problems = verify_shards(folder)
    assert any("names, offsets or sizes differ" in problem for problem in problems)
    assert any("image of key k does not have the SHA-256" in problem for problem in problems)


def test_an_index_without_some_rows_is_found(folder: Path) -> None:
    samples = [Sample("i", key, "jpg", b"abc", {}) for key in ("a", "b")]
    replace_shard(folder, 0, samples, lambda index: index.slice(1))
    assert any("1 rows, the manifest says 2 samples" in problem for problem in verify_shards(folder))


def test_a_key_in_two_shards_is_found(folder: Path) -> None:
    replace_shard(folder, 0, [Sample("i", "k1-0", "jpg", b"abc", {})], lambda index: index)
    assert verify_shards(folder) == ["shard-000001.tar: key k1-0 is also in shard-000000.tar"]


def test_two_shards_of_one_name_are_refused() -> None:
    import io

    result = write_shard(io.BytesIO(), [], "shard-000000")
    entry = manifest_shard(result, index_bytes(result.index))
    with pytest.raises(ValueError, match="same name"):
        build_manifest([entry, entry], **IDENTITY)


def test_reading_an_unfinished_export_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a finished export"):
        read_index(tmp_path)
