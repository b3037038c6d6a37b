"""Writes one shard of a corpus: the tar, its index, and the table of features beside it. Runs in workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from curation.features import FEATURE_SCHEMA, as_features, feature_writer
from curation.manifest import FEATURES_FOLDER, INDEX_FOLDER, ManifestShard, manifest_shard, shard_files
from curation.parquet_files import open_parquet
from curation.records import Locator
from curation.shards import EXTENSIONS, Sample, index_bytes, shard_name, write_shard
from curation.sidecar import metadata_types, typed
from pipeline.fetch import Reader
from pipeline.storage import Storage

STAGING = "shards.incomplete"
SIDECAR_FORMAT = 1
"""Raised when the same row would have another sidecar: finished exports are then written anew."""


class SourceChangedError(RuntimeError):
    """The bytes of a kept row are not those that were scored."""


@dataclass(frozen=True)
class ShardPlan:
    """The samples of one shard: kept rows of ledger parts, as (part name, positions among the part's rows)."""

    number: int
    pieces: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class ShardTask:
    """Writes one shard; runs in workers.

    Attributes:
        types: of the metadata in the whole corpus (`KeptTypes`, `curation.sidecar`).
        features: stage -> fingerprint, for the feature table; None to write none.
    """

    storage: Storage
    reader: Reader
    sidecar: tuple[str, ...]
    stamp: str
    types: Mapping[str, Any] | None
    features: Mapping[str, str] | None = None

    def __call__(self, plan: ShardPlan) -> ManifestShard:
        """Write the tar, its index and its features, unless an earlier run of the same export did."""
        shard = shard_name(plan.number)
        record = f"{STAGING}/.done-{shard}.json"
        if self.storage.exists(record):
            entry = ManifestShard(**json.loads(self.storage.read_bytes(record)))
            # Of a shard that was being mended when its run was killed, files may have taken their place already.
            if all(self.storage.exists(f"{STAGING}/{name}") for name, _, _ in shard_files(entry.record())):
                return entry
        with self.storage.open_write(f"{STAGING}/{shard}.tar") as file:
            expected: list[str] = []
            result = write_shard(file, self._samples(plan, expected), shard)
            for row, digest in zip(result.index.select(["id", "sha256"]).to_pylist(), expected, strict=True):
                if row["sha256"] != digest:
                    raise SourceChangedError(_changed(row["id"], "has other bytes"))
        index = index_bytes(result.index)
        self.storage.write_bytes(f"{STAGING}/{INDEX_FOLDER}/{shard}.parquet", index)
        entry = manifest_shard(result, index)
        if self.features is not None:
            entry = self._write_features(plan, entry)
        # The record is written last: it says that the files of the shard are whole.
        self.storage.write_bytes(record, json.dumps(asdict(entry)).encode())
        return entry

    def _write_features(self, plan: ShardPlan, entry: ManifestShard) -> ManifestShard:
        name = f"{FEATURES_FOLDER}/{shard_name(plan.number)}.parquet"
        staged = f"{STAGING}/{name}"
        with (
            self.storage.open_write(staged) as file,
            feature_writer(file, self.features or {}) as writer,
        ):
            for part, rows in plan.pieces:
                for table in read_rows(self.storage, part, rows, FEATURE_SCHEMA.names):
                    writer.write_table(as_features(table, part))
        digest = hashlib.sha256()
        with self.storage.open_read(staged) as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return replace(
            entry, features=name, features_bytes=self.storage.size(staged), features_sha256=digest.hexdigest()
        )

    def _samples(self, plan: ShardPlan, expected: list[str]) -> Iterator[Sample]:
        for name, rows in plan.pieces:
            with self.storage.open_read(name) as file:
                parquet = open_parquet(file)
                present = set(parquet.schema_arrow.names)
                wanted = [
                    "id", "uri", "member", "offset", "size", "metadata", "chunk", "chunk_row", "sha256", "format",
                    *(column for column in self.sidecar if column in present),
                ]  # fmt: skip
                table = parquet.read(columns=list(dict.fromkeys(wanted))).take(pa.array(rows))
            entries = table.to_pylist()
            start = 0
            while start < len(entries):
                stop = start
                while stop < len(entries) and entries[stop]["chunk"] == entries[start]["chunk"]:
                    stop += 1
                expected += [row["sha256"] for row in entries[start:stop]]
                yield from self._chunk_samples(entries[start:stop])
                start = stop

    def _chunk_samples(self, entries: Sequence[dict[str, Any]]) -> Iterator[Sample]:
        locators = [
            Locator(row["id"], row["uri"], row["member"], row["offset"], row["size"], row["metadata"])
            for row in entries
        ]
        payloads = self.reader.read(entries[0]["chunk"], [row["chunk_row"] for row in entries], locators)
        for row, payload in zip(entries, payloads, strict=True):
            if payload.data is None:
                where = f"{row['uri']} {row['member']}".strip()
                raise SourceChangedError(_changed(where, f"cannot be read any more ({payload.reason})"))
            yield Sample(row["id"], row["id"], EXTENSIONS[row["format"]], payload.data, self._sidecar(row))

    def _sidecar(self, row: dict[str, Any]) -> dict[str, Any]:
        known = json.loads(row["metadata"]) if row["metadata"] else {}
        return {
            "id": row["id"],
            "uri": row["uri"],
            "member": row["member"],
            "sha256": row["sha256"],
            "metadata": typed(known, self.types),
            # Without nulls, as the metadata: a column that is null in the first rows ends `datasets.load_dataset`.
            "scores": {column: row[column] for column in self.sidecar if row.get(column) is not None},
        }


@dataclass(frozen=True)
class KeptTypes:
    """The types of the metadata of a ledger part's kept rows (`curation.sidecar`); runs in workers."""

    storage: Storage

    def __call__(self, part: str) -> dict[str, Any] | None:
        """Takes the part's name."""
        with self.storage.open_read(part) as file:
            parquet = open_parquet(file)
            texts = (
                text
                for batch in parquet.iter_batches(columns=["verdict", "metadata"])
                for verdict, text in zip(
                    *(batch.column(name).to_pylist() for name in ("verdict", "metadata")), strict=True
                )
                if verdict == "kept" and text
            )
            return metadata_types(map(json.loads, texts))


def read_rows(storage: Storage, name: str, rows: Sequence[int], columns: Collection[str]) -> Iterator[pa.Table]:
    """Rows of a ledger part in ascending order, row group by row group, with those of the columns that are there."""
    wanted = np.asarray(rows, dtype=np.int64)
    with storage.open_read(name) as file:
        parquet = open_parquet(file)
        present = [column for column in columns if column in parquet.schema_arrow.names]
        first = 0
        for group in range(parquet.num_row_groups):
            last = first + parquet.metadata.row_group(group).num_rows
            low, high = np.searchsorted(wanted, [first, last])
            if high > low:
                yield parquet.read_row_group(group, columns=present).take(pa.array(wanted[low:high] - first))
            first = last


def _changed(where: str, what: str) -> str:
    return (
        f"{where} was kept when it was scored, and now {what}: the source changed under the run. "
        "Restore it, or run again with --new."
    )
