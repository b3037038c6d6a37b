"""Labelled pictures from WebDataset shards: what `pack` wrote.

Layout of the folder (as of an export of images, `curation.manifest`, whose index this one extends)::

    manifest.json                  written last; "content": "labelled pictures"
    shard-000000.tar               KEY.jpg, KEY.json, KEY.mask.png, KEY.normals.npy, ...
    index/shard-000000.parquet     `LABELLED_SCHEMA`: offsets of all members, one row per picture

`KEY.json` is the `info` of the picture's record (`record.py`) and its id.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from curation.config import fingerprint
from curation.manifest import MANIFEST_NAME, read_manifest
from curation.parquet_files import read_parquet
from curation.shards import INDEX_SCHEMA
from curation.sources.filesystem import read_at
from training.data.labelled import Picture
from training.data.labelled_sets.config import ShardsConfig
from training.data.labelled_sets.problem import LabelError
from training.data.labelled_sets.record import Member, Record, picture
from training.data.lru import Recent

CONTENT = "labelled pictures"
PACK_AGAIN = "Pack the source again"

_MEMBER = pa.struct([("name", pa.string()), ("extension", pa.string()), ("offset", pa.int64()), ("size", pa.int64())])
LABELLED_SCHEMA = pa.schema([*INDEX_SCHEMA, pa.field("labels", pa.list_(_MEMBER), nullable=False)])
"""`curation.shards.INDEX_SCHEMA`, and the label files of each picture: name is a member of the record."""

_OPEN_TARS = 64


def _close(file: IO[bytes]) -> None:
    file.close()


class ShardPictures:
    """The pictures of a packed folder on a local file system, in the order in which they were packed.

    Raises:
        DataError: not such a folder, or an index is missing or damaged.
    """

    def __init__(self, config: ShardsConfig) -> None:
        self.config, self._root = config, Path(config.folder)
        try:
            manifest = read_manifest(self._root)
        except (OSError, ValueError) as error:
            raise LabelError(str(self._root), str(error), "Give a folder that was packed, or pack one") from None
        if manifest.get("content") != CONTENT:
            raise LabelError(
                str(self._root / MANIFEST_NAME), "lists images without labels", "Give a folder of packed labels"
            )
        tables = [LABELLED_SCHEMA.empty_table()]
        for shard in manifest["shards"]:
            file = self._root / shard["index"]
            try:
                tables.append(read_parquet(str(file)).cast(LABELLED_SCHEMA))
            except (OSError, ValueError, pa.ArrowException) as error:
                raise LabelError(str(file), f"is no index: {str(error)[:120]}", PACK_AGAIN) from None
        if not sum(map(len, tables)):
            raise LabelError(str(self._root), "holds no pictures", PACK_AGAIN)
        self._index = pa.concat_tables(tables).combine_chunks()
        self.manifest = manifest
        self.fingerprint = fingerprint("shards", [shard["sha256"] for shard in manifest["shards"]])
        self._tars: Recent[str, IO[bytes]] = Recent(_OPEN_TARS, _close)

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, index: int) -> Picture:
        return picture(self.record(index))

    def id(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"picture {index} of {len(self)}")
        return str(self._index.column("id")[index].as_py())

    def record(self, index: int) -> Record:
        name, row = self.id(index), self._row(index)
        tar = str(self._root / f"{row['shard']}.tar")
        try:
            file = self._tars.get(tar, lambda: open(tar, "rb", buffering=0))  # noqa: SIM115 - kept open
            raw = self._read(file, tar, row["key"] + ".json", row["json_offset"], row["json_size"])
            shown = f"{tar}: {row['key']}.{row['extension']}"
            data = self._read(file, tar, shown, row["image_offset"], row["image_size"])
            files = {"image": Member(data, row["extension"], shown)}
            for label in row["labels"]:
                shown = f"{tar}: {row['key']}.{label['name']}.{label['extension']}"
                data = self._read(file, tar, shown, label["offset"], label["size"])
                files[label["name"]] = Member(data, label["extension"], shown)
        except OSError as error:
            raise LabelError(tar, f"cannot be read: {error.strerror}", PACK_AGAIN) from None
        try:
            info = json.loads(raw)
        except ValueError:
            raise LabelError(tar, f"holds no JSON at the offset of {row['key']}.json", PACK_AGAIN) from None
        return Record(name, files, info)

    def damaged_image(self, index: int) -> bool:
        """Whether the image's bytes are not those that were packed."""
        data = self.record(index).members["image"].data
        return hashlib.sha256(data).hexdigest() != self._row(index)["sha256"]

    def _row(self, index: int) -> dict[str, Any]:
        row: dict[str, Any] = self._index.slice(index, 1).to_pylist()[0]
        return row

    def _read(self, file: IO[bytes], tar: str, name: str, offset: int, size: int) -> bytes:
        data = read_at(file, offset, size)
        if len(data) != size:
            raise LabelError(tar, f"ends within {name}: {len(data)} of {size} bytes are there", PACK_AGAIN)
        return data
