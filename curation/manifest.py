"""The manifest of a finished set of shards, and the check that files and manifest agree.

Layout of a `shards/` folder::

    manifest.json
    merged.json                     the shards of earlier corpora and these (`curation.merging`), where there are any
    README.md                       the dataset card: Hugging Face `datasets` reads the columns from it
    shard-000000.tar
    index/shard-000000.parquet      `curation.shards.INDEX_SCHEMA`
    features/shard-000000.parquet   `curation.features.FEATURE_SCHEMA`, in the order of the index

`manifest.json` is written last: a folder without it is not a finished export.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from curation.parquet_files import open_parquet, read_parquet
from curation.shards import INDEX_SCHEMA, ShardResult

FORMAT_VERSION = 1
"""What readers must understand."""
FORMAT = 2
"""Raised when the same shards would give another manifest: finished exports are then written anew."""
MANIFEST_NAME = "manifest.json"
MERGED_NAME = "merged.json"
INDEX_FOLDER = "index"
FEATURES_FOLDER = "features"


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
        features: path of the feature table; None where none was exported, and its size and SHA-256 too.
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
    features: str | None = None
    features_bytes: int | None = None
    features_sha256: str | None = None

    def record(self) -> dict[str, Any]:
        """The entry as a JSON object."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None}


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
    shards: Sequence[ManifestShard],
    *,
    config_hash: str,
    formats: Mapping[str, int],
    source_fingerprint: str,
    feature_fingerprints: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The manifest as a JSON object; shards are listed by name.

    Args:
        formats: what writes a file -> the version of its format (`FORMAT`). The version of the code is in the run's
            lineage and not here: a manifest is the same whichever version wrote the same bytes.
        feature_fingerprints: stage -> identity of what measured the feature tables; None when there are none.

    Raises:
        ValueError: two shards have the same name.
    """
    ordered = sorted(shards, key=lambda shard: (len(shard.tar), shard.tar))
    names = [shard.tar for shard in ordered]
    if len(set(names)) != len(names):
        raise ValueError("two shards have the same name: every shard must be listed once")
    manifest: dict[str, Any] = {
        "format": "webdataset",
        "format_version": FORMAT_VERSION,
        "config_hash": config_hash,
        "formats": dict(formats),
        "source_fingerprint": source_fingerprint,
        "shards": [shard.record() for shard in ordered],
    }
    if feature_fingerprints is not None:
        manifest["feature_fingerprints"] = dict(feature_fingerprints)
    return manifest | manifest_totals(manifest["shards"])


def manifest_totals(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a manifest says of all its shards: samples, bytes, image_bytes and samples per extension."""
    extensions: dict[str, int] = {}
    for shard in shards:
        for extension, count in shard["extensions"].items():
            extensions[extension] = extensions.get(extension, 0) + count
    totals: dict[str, Any] = {name: sum(shard[name] for shard in shards) for name in TOTALS}
    return {**totals, "extensions": extensions}


TOTALS = ("samples", "bytes", "image_bytes")


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """The manifest as the bytes of its file: sorted keys, indented for people, one final newline."""
    return (json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a finished export.

    Args:
        folder: a folder with `manifest.json`, or a manifest file, which may be a merged one.

    Raises:
        FileNotFoundError: there is none, so the export did not finish.
        ValueError: it is not a manifest of a version that this code reads.
    """
    path = _manifest_path(folder)
    if not path.is_file():
        raise FileNotFoundError(f"no {path.name} in {path.parent}: not a finished export; run the export again")
    return parse_manifest(path.read_bytes(), str(path))


def parse_manifest(data: bytes, shown: str) -> dict[str, Any]:
    """A manifest from the bytes of its file.

    Raises:
        ValueError: not a manifest of a version that this code reads; the message calls it `shown`.
    """
    try:
        manifest = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{shown} is not JSON: {error}") from error
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(f"{shown} has format_version {version!r}; this version reads {FORMAT_VERSION}")
    if not isinstance(manifest.get("shards"), list):
        raise ValueError(f"{shown} lists no shards: not a manifest")
    return dict(manifest)


def _manifest_path(folder: str | Path) -> Path:
    path = Path(folder)
    return path if path.suffix == ".json" and not path.is_dir() else path / MANIFEST_NAME


def read_index(folder: str | Path) -> pa.Table:
    """The index of all shards, `INDEX_SCHEMA`, in manifest order.

    `shard` is the path of the tar without its `.tar`, relative to the manifest's folder.

    Args:
        folder: see `read_manifest`; every shard must be on a local file system.

    Raises:
        FileNotFoundError, ValueError: see `read_manifest`.
    """
    root = _manifest_path(folder).parent
    tables = [INDEX_SCHEMA.empty_table()]
    for shard in read_manifest(folder)["shards"]:
        # An index may have more columns (shards of labelled pictures).
        table = _index_of(root, shard)
        # Shards of two corpora may have one name; their paths differ.
        names = pa.array([shard["tar"].removesuffix(".tar")] * len(table), pa.string())
        tables.append(table.set_column(INDEX_SCHEMA.get_field_index("shard"), INDEX_SCHEMA.field("shard"), names))
    return pa.concat_tables(tables)


def _index_of(root: Path, shard: Mapping[str, Any]) -> pa.Table:
    """The index of a shard, `INDEX_SCHEMA`, checked before memory is taken for its rows, or by its places.

    Raises:
        ValueError: it has other rows than the manifest says, or places that are outside of the tar.
    """
    with open_parquet(str(root / shard["index"])) as parquet:
        if parquet.metadata.num_rows != shard["samples"]:
            raise ValueError(
                f"{root / shard['index']}: {parquet.metadata.num_rows} rows, the manifest says {shard['samples']}"
            )
        table = parquet.read(columns=INDEX_SCHEMA.names)
    for part in ("image", "json"):
        offsets, sizes = (table.column(f"{part}_{what}").to_numpy() for what in ("offset", "size"))
        if not ((offsets >= 0) & (sizes >= 0) & (sizes <= shard["bytes"] - offsets)).all():
            raise ValueError(f"{root / shard['index']} has places outside of its tar of {shard['bytes']} bytes")
    return table


def verify_shards(folder: str | Path) -> list[str]:
    """Check every byte of an export against its manifest and index.

    Args:
        folder: see `read_index`. For a merged manifest, the shards of all its corpora are checked.

    Returns:
        Problems in words, in a fixed order; empty when all is well.
    """
    path = _manifest_path(folder)
    root = path.parent
    try:
        manifest = read_manifest(folder)
    except (OSError, ValueError) as error:
        return [str(error)]
    problems: list[str] = []
    seen: dict[tuple[str | None, str], str] = {}
    for shard in manifest["shards"]:
        problems.extend(_verify_shard(root, shard, seen))
    for total in TOTALS:
        found = sum(shard[total] for shard in manifest["shards"])
        if found != manifest[total]:
            problems.append(f"{path.name}: {total} is {manifest[total]}, the shards add up to {found}")
    listed = {shard.get(name) for shard in manifest["shards"] for name in ("tar", "index", "features")}
    present = [*root.glob("*.tar"), *root.glob(f"{INDEX_FOLDER}/*.parquet"), *root.glob(f"{FEATURES_FOLDER}/*.parquet")]
    problems += [
        f"{name}: not in {path.name}"
        for name in sorted(file.relative_to(root).as_posix() for file in present)
        if name not in listed
    ]
    return problems


def shard_files(shard: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """(path, bytes, SHA-256) of the files of a shard that its manifest lists."""
    yield shard["tar"], shard["bytes"], shard["sha256"]
    yield shard["index"], shard["index_bytes"], shard["index_sha256"]
    if shard.get("features") is not None:
        yield shard["features"], shard["features_bytes"], shard["features_sha256"]


def _verify_shard(root: Path, shard: dict[str, Any], seen: dict[tuple[str | None, str], str]) -> Iterator[str]:
    def opened(name: str) -> IO[bytes]:
        return open(root / name, "rb")

    problems = list(shard_problems(opened, shard))
    yield from (f"{name}: {problem}" for name, problem in problems)
    if any(name == shard["index"] for name, _ in problems):
        return
    for key in read_parquet(str(root / shard["index"]), ["key"]).column("key").to_pylist():
        place = shard.get("corpus"), key
        if place in seen:
            yield f"{shard['tar']}: key {key} is also in {seen[place]}"
        seen[place] = shard["tar"]


Opener = Callable[[str], AbstractContextManager[IO[bytes]]]
"""Opens a file for reading, by its path relative to the folder of the manifest."""


def shard_problems(opened: Opener, shard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Check every byte of the files of one shard: (path, problem) for each of them that is not what the manifest says,
    or does not agree with the others."""
    broken = False
    for name, size, digest in shard_files(shard):
        problem = file_problem(opened, name, size, digest)
        if problem is not None:
            broken = True
            yield name, problem
    if broken:
        return
    with opened(shard["index"]) as file:
        index = read_parquet(file)
    rows = index.to_pylist()
    if len(rows) != shard["samples"]:
        yield shard["index"], f"{len(rows)} rows, the manifest says {shard['samples']} samples"
    if shard.get("features") is not None:
        with opened(shard["features"]) as file:
            features = read_parquet(file, ["id", "sha256"])
        if not all(features.column(name).equals(index.column(name)) for name in features.column_names):
            yield shard["features"], "ids or SHA-256 differ from those of the index"
    with opened(shard["tar"]) as file, tarfile.open(fileobj=file) as tar:
        members = [(member.name, member.offset_data, member.size) for member in tar]
    expected = [
        (f"{row['key']}.{extension}", row[f"{part}_offset"], row[f"{part}_size"])
        for row in rows
        for extension, part in ((row["extension"], "image"), ("json", "json"))
    ]
    if members != expected:
        yield shard["index"], "names, offsets or sizes differ from the members of the tar"
    with opened(shard["tar"]) as file:
        for row in rows:
            yield from _image_problem(file, shard, row)


def image_problem(opened: Opener, shard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """As `shard_problems`, for the index and one image, drawn by the `seed` that `shard` has besides."""
    problem = file_problem(opened, shard["index"], shard["index_bytes"], shard["index_sha256"])
    if problem is not None:
        yield shard["index"], problem
        return
    with opened(shard["index"]) as file:
        index = read_parquet(file)
    if not len(index):
        return
    draw = hashlib.sha256(f"{shard['seed']} {shard['tar']}".encode()).digest()
    row = index.slice(int.from_bytes(draw[:8], "little") % len(index), 1).to_pylist()[0]
    try:
        with opened(shard["tar"]) as file:
            yield from _image_problem(file, shard, row)
    except FileNotFoundError:
        yield shard["tar"], "missing"


def _image_problem(file: IO[bytes], shard: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    offset, size = row["image_offset"], row["image_size"]
    good = 0 <= offset <= offset + size <= shard["bytes"]
    if good:
        file.seek(offset)
        good = hashlib.sha256(file.read(size)).hexdigest() == row["sha256"]
    if not good:
        yield shard["tar"], f"the image of key {row['key']} does not have the SHA-256 of the index"


def file_problem(opened: Opener, name: str, size: int, digest: str) -> str | None:
    """Why a file is not what a manifest says of it; None when it is."""
    found, length = hashlib.sha256(), 0
    try:
        with opened(name) as file:
            while block := file.read(1 << 20):
                found.update(block)
                length += len(block)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if length != size:
        return f"{length} bytes, the manifest says {size}"
    return None if found.hexdigest() == digest else f"SHA-256 is {found.hexdigest()}, the manifest says {digest}"
