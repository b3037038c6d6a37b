"""Near embeddings: rows go to the k-means partitions that they are nearest to, and each is searched by itself."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.dedup import NeighbourConfig, partition_links
from curation.dedup.links import Links
from curation.kmeans import nearest, spherical_kmeans
from curation.mixing import id_keys
from curation.vectors import to_matrix, unit_rows
from pipeline.select.candidates import Layout, ReadScores
from pipeline.select.corpora import Corpora
from pipeline.select.duplicates import ReadRows, Rows, candidates_name, links_name, write_links
from pipeline.select.marks import KeptRows
from pipeline.select.steps import task_name
from pipeline.shuffle import read_partition, write_partitions
from pipeline.storage import Storage

CENTROIDS = "centroids.npy"
FILE_ROWS = 1 << 18
"""Rows of a shuffle file, a few hundred megabytes of embeddings: what a map task holds."""


@dataclass(frozen=True)
class SampleVectors:
    """Map task: the embeddings of the rows whose key falls below a share; the same rows whatever the batches.

    Attributes:
        folder: where the sample is written.
        kept: leaves out rows that earlier steps dropped.
    """

    storage: Storage
    read: ReadScores
    layout: Layout
    folder: str
    share: float
    seed: int
    kept: KeptRows | None = None

    def __call__(self, batch: int) -> dict[str, Any]:
        """Publishes `FOLDER/NNNNNN.npz`: key and vector of the sampled rows."""
        table = self.storage.read_table(candidates_name(batch), ["row", "id"])
        if self.kept is not None:
            table = self.kept(batch, table)
        keys = id_keys(table.column("id"), self.seed)
        chosen = below_share(keys, self.share)
        rows = table.column("row").to_numpy()[chosen]
        keys = keys[chosen]
        parts = list(self.read.embeddings(self.layout.batches[batch], rows))
        found = np.concatenate([part for part, _ in parts]) if parts else np.empty(0, np.int64)
        vectors = np.concatenate([part for _, part in parts]) if parts else np.empty((0, 0), np.float16)
        save_arrays(
            self.storage,
            sample_name(self.folder, batch),
            key=keys[np.searchsorted(rows, found)],
            vector=vectors,
        )
        return {"rows": len(found)}


def below_share(keys: npt.NDArray[np.uint64], share: float) -> npt.NDArray[np.bool_]:
    """Which of uniform keys make up a share of all; all of them from 1 on."""
    if share >= 1.0:
        return np.ones(len(keys), dtype=bool)
    return keys < np.uint64(share * 2.0**64)


@dataclass(frozen=True)
class SampleCorpora:
    """Map task: the same share of an earlier corpus, whose rows are searched in the same partitions.

    Attributes:
        first: number of the first file's sample; those of the batches come before.
    """

    storage: Storage
    corpora: Corpora
    folder: str
    share: float
    seed: int
    first: int

    def __call__(self, file: int) -> dict[str, Any]:
        """Publishes `FOLDER/NNNNNN.npz`, as `SampleVectors`."""
        table = self.corpora.read(file)
        keys = id_keys(table.column("id"), self.seed)
        chosen = below_share(keys, self.share)
        vectors, present = to_matrix(table.column("embedding").filter(pa.array(chosen)))
        name = sample_name(self.folder, self.first + file)
        save_arrays(self.storage, name, key=keys[chosen][present], vector=vectors[present])
        return {"rows": int(present.sum())}


def sample_name(folder: str, batch: int) -> str:
    """Where a batch's sample is."""
    return f"{folder}/{task_name(batch)}.npz"


def save_arrays(storage: Storage, name: str, **arrays: npt.NDArray[Any]) -> None:
    """Publish arrays as one .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    storage.write_bytes(name, buffer.getvalue())


def load_arrays(storage: Storage, name: str) -> dict[str, npt.NDArray[Any]]:
    """Read what `save_arrays` wrote. Nothing is unpickled."""
    with np.load(io.BytesIO(storage.read_bytes(name)), allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def read_sample(storage: Storage, folder: str, files: int) -> npt.NDArray[np.float16]:
    """All sampled vectors in the order of their keys: float16 [s, d]."""
    parts = [load_arrays(storage, sample_name(folder, number)) for number in range(files)]
    parts = [part for part in parts if len(part["key"])]
    if not parts:
        return np.empty((0, 0), np.float16)
    order = np.argsort(np.concatenate([part["key"] for part in parts]), kind="stable")
    vectors: npt.NDArray[np.float16] = np.concatenate([part["vector"] for part in parts])[order]
    return vectors


@dataclass(frozen=True)
class TrainPartitions:
    """One task: k-means centroids of the sample."""

    storage: Storage
    config: NeighbourConfig
    files: int

    def __call__(self, partitions: int) -> dict[str, Any]:
        """Publishes `centroids.npy`. Returns how many there are."""
        vectors, usable = unit_rows(read_sample(self.storage, "sample", self.files))
        centroids = spherical_kmeans(
            vectors[usable], partitions, seed=self.config.seed, iterations=self.config.iterations
        )
        buffer = io.BytesIO()
        np.save(buffer, centroids)
        self.storage.write_bytes(CENTROIDS, buffer.getvalue())
        return {
            "partitions": len(centroids),
            "dimensions": centroids.shape[1],
            "trained_on": int(usable.sum()),
        }


def load_centroids(storage: Storage) -> npt.NDArray[np.float32]:
    """The trained centroids: float32 [k, d]."""
    centroids: npt.NDArray[np.float32] = np.load(io.BytesIO(storage.read_bytes(CENTROIDS)), allow_pickle=False)
    return centroids


@dataclass(frozen=True)
class ShuffleVectors:
    """Map task: sends every row to the partitions that it is nearest to."""

    storage: Storage
    read: ReadScores
    layout: Layout
    rows: ReadRows
    assignments: int
    partitions: int

    def __call__(self, rows: Rows) -> dict[str, Any]:
        """Publishes `vectors/NNNNNN-PPP.arrow`, each of at most about `FILE_ROWS` rows."""
        centroids = load_centroids(self.storage)
        unusable, files = 0, 0
        held: list[pa.Table] = []
        for found, vectors in self._parts(rows):
            unit, usable = unit_rows(vectors)
            unusable += int((~usable).sum())
            if usable.any():
                # Where no sampled row had an embedding, the few that have one are searched as one partition.
                only = np.zeros((int(usable.sum()), 1), np.int32)
                assigned = nearest(unit[usable], centroids, self.assignments) if len(centroids) else only
                held.append(_vector_records(found[usable], vectors[usable], assigned))
            if sum(map(len, held)) >= FILE_ROWS:
                files += self._publish(held, rows.number, files)
                held = []
        if held:
            files += self._publish(held, rows.number, files)
        return {"unusable": unusable, "files": files}

    def _publish(self, held: list[pa.Table], number: int, part: int) -> int:
        table = pa.concat_tables(held)
        partition = (table.column("cell").to_numpy() % self.partitions).astype(np.int64)
        write_partitions(self.storage, vectors_name(number, part), table, partition, self.partitions)
        return 1

    def _parts(self, rows: Rows) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float16]]]:
        if rows.batch is not None:
            wanted = self.storage.read_table(candidates_name(rows.batch), ["row"]).column("row").to_numpy()
            yield from self.read.embeddings(self.layout.batches[rows.batch], wanted)
        else:
            table = self.rows(rows, ["embedding"])
            matrix, present = to_matrix(table.column("embedding"))
            yield table.column("row").to_numpy()[present], matrix[present]


def vectors_name(number: int, part: int) -> str:
    """Where shuffled vectors are."""
    return f"vectors/{task_name(number)}-{part:03d}.arrow"


def _vector_records(
    rows: npt.NDArray[np.int64], vectors: npt.NDArray[np.float16], assigned: npt.NDArray[np.int32]
) -> pa.Table:
    """One record per row and partition; each carries the row's whole list of partitions."""
    count, width = assigned.shape
    owner = np.repeat(np.arange(count), width)
    return pa.table(
        {
            "row": rows[owner],
            "cell": assigned.ravel(),
            "assigned": pa.FixedSizeListArray.from_arrays(pa.array(assigned[owner].ravel()), width),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors[owner].ravel()), vectors.shape[1]),
        }
    )


@dataclass(frozen=True)
class LinkVectors:
    """Reduce task: neighbours among the rows of some k-means partitions."""

    storage: Storage
    files: tuple[str, ...]
    threshold: float

    def __call__(self, partition: int) -> dict[str, Any]:
        """Publishes `links-vectors/PPPPPP.parquet`."""
        name = links_name("vectors", partition)
        return write_links(self.storage, name, self._links(partition) if self.files else [])

    def _links(self, partition: int) -> Iterator[Links]:
        table = read_partition(self.storage, self.files, partition).combine_chunks()
        cell = table.column("cell").to_numpy()
        rows = table.column("row").to_numpy()
        assigned = _matrix(table.column("assigned"))
        vectors = _matrix(table.column("vector"))
        order = np.argsort(cell, kind="stable")
        bounds = np.flatnonzero(np.diff(cell[order], prepend=-1, append=-1))
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            members = order[start:stop]
            one = int(cell[members[0]])
            yield from partition_links(vectors[members], rows[members], assigned[members], one, self.threshold)


def _matrix(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    width = column.type.list_size
    flat = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    if len(flat) == 1:
        return flat[0].reshape(-1, width)  # no copy: it is all that a partition holds
    return np.concatenate(flat).reshape(-1, width) if flat else np.empty((0, width))
