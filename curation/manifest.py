"""The manifest of a finished set of shards, and the check that files and manifest agree.

Layout of a `shards/` folder::

    manifest.json
    README.md                       the dataset card: Hugging Face `datasets` reads the columns from it
    shard-000000.tar
    index/shard-000000.parquet      `curation.shards.INDEX_SCHEMA`

`manifest.json` is written last: a folder without it is not a finished export.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.shards import INDEX_SCHEMA, ShardResult

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
INDEX_FOLDER = "index"


@dataclass(frozen=True, slots=True)
class ManifestShard:
    """One shard in the manifest.

    Attributes:
        tar, index: paths relative to the folder, with `/`.
        samples: number of samples.
        bytes, index_bytes: file sizes.
        sha256, index_sha256: of the files, hex.
        image_bytes: sum of the encoded images' sizes.
        extensions: extension -> samples.
    """

    tar: str
    index: str
    samples: int
    bytes: int
    image_bytes: int
    sha256: str
    index_bytes: int
    index_sha256: str
    extensions: dict[str, int]


def manifest_shard(result: ShardResult, index: bytes) -> ManifestShard:
    """The entry of a written shard; `index` is what `curation.shards.index_bytes(result.index)` gave."""
    counts = result.index.column("extension").value_counts().to_pylist()
    return ManifestShard(
        tar=f"{result.shard}.tar",
        index=f"{INDEX_FOLDER}/{result.shard}.parquet",
        samples=result.samples,
        bytes=result.bytes,
        image_bytes=sum(result.index.column("image_size").to_pylist()),
        sha256=result.sha256,
        index_bytes=len(index),
        index_sha256=hashlib.sha256(index).hexdigest(),
        extensions={item["values"]: item["counts"] for item in counts},
    )


def build_manifest(
    shards: Sequence[ManifestShard], *, config_hash: str, code_version: str, source_fingerprint: str
) -> dict[str, Any]:
    """The manifest as a JSON object; shards are listed by name.

    Raises:
        ValueError: two shards have the same name.
    """
    ordered = sorted(shards, key=lambda shard: (len(shard.tar), shard.tar))
    names = [shard.tar for shard in ordered]
    if len(set(names)) != len(names):
        raise ValueError("two shards have the same name: every shard must be listed once")
    extensions: dict[str, int] = {}
    for shard in ordered:
        for extension, count in shard.extensions.items():
            extensions[extension] = extensions.get(extension, 0) + count
    return {
        "format": "webdataset",
        "format_version": FORMAT_VERSION,
        "config_hash": config_hash,
        "code_version": code_version,
        "source_fingerprint": source_fingerprint,
        "samples": sum(shard.samples for shard in ordered),
        "bytes": sum(shard.bytes for shard in ordered),
        "image_bytes": sum(shard.image_bytes for shard in ordered),
        "extensions": extensions,
        "shards": [{name: getattr(shard, name) for name in ManifestShard.__slots__} for shard in ordered],
    }


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """The manifest as the bytes of its file: sorted keys, indented for people, one final newline."""
    return (json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a finished export.

    Raises:
        FileNotFoundError: there is none, so the export did not finish.
        ValueError: it is not a manifest of a version that this code reads.
    """
    path = Path(folder) / MANIFEST_NAME
    if not path.is_file():
        raise FileNotFoundError(f"no {MANIFEST_NAME} in {folder}: not a finished export; run the export again")
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {version!r}; this version reads {FORMAT_VERSION}")
    return dict(manifest)


def read_index(folder: str | Path) -> pa.Table:
    """The index of all shards, `INDEX_SCHEMA`, in manifest order.

    Raises:
        FileNotFoundError, ValueError: see `read_manifest`.
    """
    tables = [pq.read_table(Path(folder) / shard["index"]) for shard in read_manifest(folder)["shards"]]
    return pa.concat_tables([INDEX_SCHEMA.empty_table(), *tables])


def verify_shards(folder: str | Path) -> list[str]:
    """Check every byte of an export against its manifest and index.

    Returns:
        Problems in words, in a fixed order; empty when all is well.
    """
    root = Path(folder)
    try:
        manifest = read_manifest(root)
    except (OSError, ValueError) as error:
        return [str(error)]
    problems: list[str] = []
    seen: dict[str, str] = {}
    for shard in manifest["shards"]:
        problems.extend(_verify_shard(root, shard, seen))
    for total in ("samples", "bytes", "image_bytes"):
        found = sum(shard[total] for shard in manifest["shards"])
        if found != manifest[total]:
            problems.append(f"{MANIFEST_NAME}: {total} is {manifest[total]}, the shards add up to {found}")
    listed = {shard[name] for shard in manifest["shards"] for name in ("tar", "index")}
    present = [*root.glob("*.tar"), *root.glob(f"{INDEX_FOLDER}/*.parquet")]
    problems += [
        f"{path}: not in {MANIFEST_NAME}"
        for path in sorted(p.relative_to(root).as_posix() for p in present)
        if path not in listed
    ]
    return problems


def _verify_shard(root: Path, shard: dict[str, Any], seen: dict[str, str]) -> Iterator[str]:
    broken = False
    for name, size, digest in (
        (shard["tar"], shard["bytes"], shard["sha256"]),
        (shard["index"], shard["index_bytes"], shard["index_sha256"]),
    ):
        problem = _verify_file(root / name, size, digest)
        if problem:
            broken = True
            yield f"{name}: {problem}"
    if broken:
        return
    rows = pq.read_table(root / shard["index"]).to_pylist()
    if len(rows) != shard["samples"]:
        yield f"{shard['index']}: {len(rows)} rows, the manifest says {shard['samples']} samples"
    for row in rows:
        if row["key"] in seen:
            yield f"{shard['tar']}: key {row['key']} is also in {seen[row['key']]}"
        seen[row["key"]] = shard["tar"]
    with tarfile.open(root / shard["tar"]) as tar:
        members = [(member.name, member.offset_data, member.size) for member in tar]
    expected = [
        (f"{row['key']}.{extension}", row[f"{part}_offset"], row[f"{part}_size"])
        for row in rows
        for extension, part in ((row["extension"], "image"), ("json", "json"))
    ]
    if members != expected:
        yield f"{shard['index']}: names, offsets or sizes differ from the members of the tar"
    with open(root / shard["tar"], "rb") as file:
        for row in rows:
            file.seek(row["image_offset"])
            if hashlib.sha256(file.read(row["image_size"])).hexdigest() != row["sha256"]:
                yield f"{shard['tar']}: the image of key {row['key']} does not have the SHA-256 of the index"


def _verify_file(path: Path, size: int, digest: str) -> str | None:
    if not path.is_file():
        return "missing"
    if path.stat().st_size != size:
        return f"{path.stat().st_size} bytes, the manifest says {size}"
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return None if found == digest else f"SHA-256 is {found}, the manifest says {digest}"
