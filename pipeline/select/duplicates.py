"""Equal bytes and near hashes: shuffled by content and by (band, value of the band), linked partition by partition.

A pair within radius r agrees on at least one of r + 1 bands (`curation.dedup.bands`), so all that could be within the
radius meets in a partition, and each partition is searched exactly by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.dedup.bands import band_keys, band_links
from curation.dedup.contents import content_keys, same_bytes_links
from curation.dedup.links import LINK_SCHEMA, Links
from curation.parquet_files import parquet_writer
from pipeline.select.candidates import HASH_COLUMNS, hash_usable
from pipeline.select.config import SelectConfig
from pipeline.select.corpora import Corpora
from pipeline.select.steps import task_name
from pipeline.shuffle import partition_of, read_partition, write_partitions
from pipeline.storage import Storage

CONTENT_SCHEMA = pa.schema([("row", pa.int64()), ("high", pa.uint64()), ("low", pa.uint64())])
BAND_SCHEMA = pa.schema([("row", pa.int64()), ("band", pa.int8()), ("value", pa.uint64())])
MIRRORED_SCHEMA = BAND_SCHEMA.append(pa.field("other", pa.uint64())).append(pa.field("flipped", pa.bool_()))
LINKS_AT_ONCE = 1 << 16
"""Links of one row group of a file."""


@dataclass(frozen=True)
class Rows:
    """Rows as the searches see them: what they are compared by.

    Attributes:
        number: task number; files are named by it.
        batch: batch of candidates, or None.
        corpus: feature file of an earlier corpus, or None.
    """

    number: int
    batch: int | None = None
    corpus: int | None = None


def all_rows(batches: int, corpora: Corpora) -> list[Rows]:
    """The batches of candidates, then the files of earlier corpora."""
    files = [Rows(batches + index, corpus=index) for index in range(len(corpora.files))]
    return [*(Rows(index, batch=index) for index in range(batches)), *files]


def candidates_name(batch: int) -> str:
    """Where a batch's candidates are, in the selection's folder."""
    return f"candidates/{task_name(batch)}.parquet"


@dataclass(frozen=True)
class ReadRows:
    """Reads `Rows`: candidates, or the features of an earlier corpus under negative numbers."""

    storage: Storage
    corpora: Corpora

    def __call__(self, rows: Rows, columns: list[str]) -> pa.Table:
        """A table with `row` and the given columns; those that are not there are null."""
        if rows.batch is not None:
            table = self.storage.read_table(candidates_name(rows.batch))
        else:
            assert rows.corpus is not None
            table = self.corpora.read(rows.corpus)
        missing = [name for name in columns if name not in table.column_names]
        for name in missing:
            table = table.append_column(name, pa.nulls(len(table), TYPES[name]))
        return table.select(["row", *columns])


TYPES: dict[str, pa.DataType] = {
    "id": pa.string(), "sha256": pa.string(), "phash": pa.uint64(), "phash_mirrored": pa.uint64(),
    "phash_degenerate": pa.bool_(), "embedding": pa.list_(pa.float16()),
}  # fmt: skip


@dataclass(frozen=True)
class ShuffleKeys:
    """Map task: sends rows to the partitions of their content and of their bands."""

    storage: Storage
    read: ReadRows
    exact: bool
    mirrored: bool
    bands: tuple[int, ...]
    partitions: int

    def __call__(self, rows: Rows) -> dict[str, Any]:
        """Publishes `keys/bytes-NNNNNN.arrow` and `keys/bands-NNNNNN.arrow`."""
        table = self.read(rows, ["sha256", *HASH_COLUMNS])
        number = table.column("row").to_numpy()
        if self.exact:
            known = table.column("sha256").is_valid().to_numpy(zero_copy_only=False)
            keys = content_keys(table.column("sha256").filter(pa.array(known)))
            contents = pa.table([number[known], keys[:, 0], keys[:, 1]], schema=CONTENT_SCHEMA)
            partition = partition_of(keys[:, 0], self.partitions)
            write_partitions(self.storage, keys_name("bytes", rows.number), contents, partition, self.partitions)
        if self.bands:
            records, partition = self._bands(table, number)
            write_partitions(self.storage, keys_name("bands", rows.number), records, partition, self.partitions)
        return {"rows": len(table)}

    def _bands(self, table: pa.Table, number: npt.NDArray[np.int64]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        usable = hash_usable(table)
        number = number[usable]
        phash = table.column("phash").fill_null(0).to_numpy().astype(np.uint64)[usable]
        count = len(number)
        sides: list[tuple[npt.NDArray[np.uint64], list[npt.NDArray[Any]]]] = [(phash, [])]
        if self.mirrored:
            mirror = table.column("phash_mirrored").fill_null(0).to_numpy().astype(np.uint64)[usable]
            sides = [(phash, [mirror, np.zeros(count, bool)]), (mirror, [phash, np.ones(count, bool)])]
        schema = MIRRORED_SCHEMA if self.mirrored else BAND_SCHEMA
        tables, partitions = [], []
        for band, mask in enumerate(self.bands):
            for value, others in sides:
                tables.append(pa.table([number, np.full(count, band, np.int8), value, *others], schema=schema))
                partitions.append((band_keys(value, mask) % np.uint64(self.partitions)).astype(np.int64))
        return pa.concat_tables(tables), np.concatenate(partitions)


def keys_name(kind: str, number: int) -> str:
    """Where a task's keys are."""
    return f"keys/{kind}-{task_name(number)}.arrow"


def links_name(kind: str, partition: int) -> str:
    """Where the links of a partition are."""
    return f"links-{kind}/{task_name(partition)}.parquet"


def write_links(storage: Storage, name: str, parts: Iterator[Links] | list[Links]) -> dict[str, Any]:
    """Publish links as they come, with bounded memory. Returns how many there are."""
    count, waiting = 0, 0
    held: list[Links] = []
    with storage.open_write(name) as file, parquet_writer(file, LINK_SCHEMA) as writer:
        for part in parts:
            held.append(part)
            count += len(part)
            waiting += len(part)
            if waiting >= LINKS_AT_ONCE:
                writer.write_table(Links.concat(held).to_table())
                held, waiting = [], 0
        if waiting:
            writer.write_table(Links.concat(held).to_table())
    return {"links": count}


@dataclass(frozen=True)
class LinkBytes:
    """Reduce task: groups of equal bytes."""

    storage: Storage
    files: int

    def __call__(self, partition: int) -> dict[str, Any]:
        """Publishes `links-bytes/PPPPPP.parquet`."""
        names = [keys_name("bytes", number) for number in range(self.files)]
        table = read_partition(self.storage, names, partition)
        keys = np.stack([table.column("high").to_numpy(), table.column("low").to_numpy()], axis=1)
        links = same_bytes_links(keys, table.column("row").to_numpy())
        return write_links(self.storage, links_name("bytes", partition), [links])


@dataclass(frozen=True)
class LinkHashes:
    """Reduce task: all pairs within the radius among the rows of some buckets."""

    storage: Storage
    files: int
    bands: tuple[int, ...]
    radius: int
    mirrored: bool

    def __call__(self, partition: int) -> dict[str, Any]:
        """Publishes `links-bands/PPPPPP.parquet`."""
        names = [keys_name("bands", number) for number in range(self.files)]
        table = read_partition(self.storage, names, partition)
        return write_links(self.storage, links_name("bands", partition), self._links(table))

    def _links(self, table: pa.Table) -> Iterator[Links]:
        band_of = table.column("band").to_numpy()
        for band in range(len(self.bands)):
            part = table.filter(pa.array(band_of == band))
            value, rows = part.column("value").to_numpy(), part.column("row").to_numpy()
            other = part.column("other").to_numpy() if self.mirrored else None
            flipped = part.column("flipped").to_numpy(zero_copy_only=False) if self.mirrored else None
            yield from band_links(value, other, rows, flipped, band, self.bands, self.radius)


def hash_bands(config: SelectConfig, sample: npt.NDArray[np.uint64]) -> tuple[int, ...]:
    """The bands to shuffle by; () when perceptual duplicates are off."""
    from curation.dedup.bands import plan_bands

    return plan_bands(sample, config.near_duplicates.radius) if config.near_duplicates is not None else ()
