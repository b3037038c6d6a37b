"""Any source of labelled pictures -> WebDataset shards that `shards.py` reads back as equal pictures.

Files of a source are stored as they are; of other pictures, as lossless PNG and float32 .npy (`record_of`). The same
pictures in the same order give the same bytes: tar headers are fixed, JSON is canonical, the index is Parquet of one
layout (and of one version of pyarrow), and the manifest has no time in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from curation.config import fingerprint
from curation.manifest import INDEX_FOLDER, MANIFEST_NAME, ManifestShard, build_manifest, manifest_bytes, manifest_shard
from curation.parquet_files import FORMAT as PARQUET_FORMAT
from curation.parquet_files import write_parquet
from curation.shards import EXTENSIONS, ShardResult, canonical_json, safe_key, shard_name
from training.data.errors import DataError
from training.data.labelled_sets import members
from training.data.labelled_sets.record import LABELS, Pictures, Record, picture, record_of
from training.data.labelled_sets.shards import CONTENT, LABELLED_SCHEMA

_FORMAT = "labelled-1"
_BLOCK = 512
_LONGEST_ID = 80  # leaves room for ".normals.npy" in the 100 bytes of a tar's name


def pack(
    source: Pictures,
    folder: str | Path,
    shard_samples: int = 256,
    progress: Callable[[int, int], None] | None = None,
    verify: bool = True,
) -> dict[str, Any]:
    """Write shards, indices and, when all is there, the folder.

    Until it is complete, the folder is called `FOLDER.unfinished`; one that an interrupted run left is replaced.

    Args:
        source: any pictures; those of this package keep their files' bytes. Ids must be unique.
        folder: new or empty.
        shard_samples: pictures in a shard.
        progress: called with the pictures done and their total, after each shard.
        verify: decode every picture, so that nothing is packed that cannot be read.

    Returns:
        The manifest.

    Raises:
        DataError: the folder is in use, the source is empty, or an id comes twice; or a picture cannot be read.
    """
    if shard_samples < 1:
        raise ValueError(f"shard_samples is {shard_samples}: give at least 1")
    target = free_folder(folder)
    if not len(source):
        raise DataError("the source holds no pictures: there is nothing to pack")
    work = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(work, ignore_errors=True)
    (work / INDEX_FOLDER).mkdir(parents=True)
    shards: list[ManifestShard] = []
    seen: set[str] = set()
    for number, first in enumerate(range(0, len(source), shard_samples)):
        stop = min(first + shard_samples, len(source))
        shards.append(_write_shard(source, range(first, stop), work, shard_name(number), seen, verify))
        if progress is not None:
            progress(stop, len(source))
    manifest = build_manifest(
        shards,
        config_hash=fingerprint(_FORMAT, shard_samples),
        formats={"labelled": 1, "parquet": PARQUET_FORMAT},
        source_fingerprint=source.fingerprint,
    )
    manifest["content"] = CONTENT
    (work / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
    if target.exists():
        target.rmdir()
    os.replace(work, target)
    return manifest


def free_folder(folder: str | Path) -> Path:
    """Its path, where it is new or empty; else a DataError."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} is not an empty folder. Give another one, or remove it")
    return target


def _write_shard(
    source: Pictures, indices: range, work: Path, name: str, seen: set[str], verify: bool
) -> ManifestShard:
    rows: list[dict[str, Any]] = []
    with open(work / f"{name}.tar", "wb") as file:
        tar = _Tar(file)
        for index in indices:
            record = _record(source, index)
            if verify:
                picture(record)
            key = picture_key(record.id)
            if key in seen:
                raise DataError(f"picture {index} has the id {record.id!r} of an earlier one. Give each its own id")
            seen.add(key)
            rows.append(_put(tar, record, key, name))
        tar.end()
    table = pa.Table.from_pylist(rows, schema=LABELLED_SCHEMA)
    buffer = pa.BufferOutputStream()
    write_parquet(table, buffer)
    index_data = buffer.getvalue().to_pybytes()
    (work / INDEX_FOLDER / f"{name}.parquet").write_bytes(index_data)
    result = ShardResult(name, len(rows), tar.position, tar.digest.hexdigest(), table)
    return manifest_shard(result, index_data)


def _record(source: Pictures, index: int) -> Record:
    read = getattr(source, "record", None)
    record: Record = record_of(source[index]) if read is None else read(index)
    if not record.id:
        raise DataError(f"picture {index} of the source has no id. Give each its own id")
    return record


def picture_key(name: str) -> str:
    """The WebDataset key of an id: itself where it can be one, else its safe part and a hash."""
    return safe_key(name if len(name) <= _LONGEST_ID else f"{name}/")


def _put(tar: _Tar, record: Record, key: str, shard: str) -> dict[str, Any]:
    """Store a record, and give its row of the index."""
    image = record.members["image"]
    extension = EXTENSIONS[members.image_header(image.data, image.file).format]
    sidecar = canonical_json({**record.info, "id": record.id})
    return {
        "key": key,
        "id": record.id,
        "shard": shard,
        "extension": extension,
        "image_offset": tar.member(f"{key}.{extension}", image.data),
        "image_size": len(image.data),
        "json_offset": tar.member(f"{key}.json", sidecar),
        "json_size": len(sidecar),
        "sha256": hashlib.sha256(image.data).hexdigest(),
        "labels": [
            {
                "name": name,
                "extension": record.members[name].extension,
                "offset": tar.member(f"{key}.{name}.{record.members[name].extension}", record.members[name].data),
                "size": len(record.members[name].data),
            }
            for name in LABELS
            if name in record.members
        ],
    }


class _Tar:
    """A plain USTAR archive whose headers hold names and sizes alone."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.position, self.digest = file, 0, hashlib.sha256()

    def member(self, name: str, data: bytes) -> int:
        """Store a file; returns the place of its first byte."""
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._put(info.tobuf(tarfile.USTAR_FORMAT))
        offset = self.position
        self._put(data)
        self._put(bytes(-len(data) % _BLOCK))
        return offset

    def end(self) -> None:
        """Two empty blocks."""
        self._put(bytes(2 * _BLOCK))

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self.digest.update(data)
        self.position += len(data)
