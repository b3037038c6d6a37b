"""What is trained on: the shards of one or several manifests, their rows numbered through.

Row r of the corpus is a sample; shards are numbered 0..S-1, in the order of the configuration, the manifests and their
shards, and so are their rows. Only what the manifests say of each shard is held (about 600 bytes per shard, two paths
among them); the index of a shard is read when one of its samples is, and only the last ones are kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.config import fingerprint
from curation.manifest import MANIFEST_NAME, parse_manifest
from curation.merging import corpora_of, join_corpora
from curation.sources.base import SourceError
from curation.sources.filesystem import Files
from curation.sources.redact import describe, redact_url
from curation.sources.storage import absolute, is_local
from training.data.cache import RemoteFile, ShardCache
from training.data.config import CorpusConfig, DataConfig
from training.data.errors import DataError, explain
from training.data.index import ShardIndex, parse_index
from training.data.lru import Recent
from training.data.order import SampleOrder

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a shard: absolute path or URL, bytes, SHA-256 and the options of fsspec."""

    location: str = field(repr=False)
    bytes: int
    sha256: str
    options: Mapping[str, Any] = field(repr=False)

    @property
    def local(self) -> bool:
        """Whether it is on a file system of this machine."""
        return is_local(self.location)

    @property
    def shown(self) -> str:
        """Its path or its address without credentials."""
        return redact_url(self.location)

    def remote(self) -> RemoteFile:
        """As the cache takes it."""
        return RemoteFile(self.location, self.options, self.bytes, self.sha256)


class Corpus:
    """The shards of all corpora of a configuration. Picklable. See `open_corpus`.

    Attributes:
        tars, indices: the files of each shard.
        samples: int64 [S], samples of each shard.
        parts: shards of each entry of the configuration, as (first, behind the last).
        weights: one for each entry, or None.
        fingerprint: of the shards' contents and order, wherever they are.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[tuple[ListedFile, ListedFile, int]]],
        config: DataConfig,
    ) -> None:
        shards = [shard for part in parts for shard in part]
        self.tars = [tar for tar, _, _ in shards]
        self.indices = [index for _, index, _ in shards]
        self.samples: Rows = np.array([samples for _, _, samples in shards], np.int64)
        self.first_rows: Rows = np.concatenate([[0], np.cumsum(self.samples)]).astype(np.int64)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        self.parts = list(zip([0, *ends[:-1]], ends, strict=True))
        self.weights = config.weights
        self.fingerprint = fingerprint([[tar.sha256, index.sha256] for tar, index, _ in shards])
        self.shuffle_shards, self.cache = config.shuffle_shards, _cache(config, self)
        self._loaded: Recent[int, ShardIndex] = Recent(max(8, 2 * config.shuffle_shards))

    def __len__(self) -> int:
        """Samples of all shards."""
        return int(self.first_rows[-1])

    def order(self, seed: int) -> SampleOrder:
        """The order in which training sees this corpus."""
        sizes = [self.samples[first:last] for first, last in self.parts]
        return SampleOrder(sizes, seed, self.shuffle_shards, self.weights)

    def locate(self, rows: npt.ArrayLike) -> tuple[Rows, Rows]:
        """Shard, and row within the shard, of rows int64 [n]: int64 [n] each.

        Raises:
            IndexError: the corpus has no such row.
        """
        wanted = np.asarray(rows, np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()}: the corpus has 0 to {len(self) - 1}")
        shards = np.searchsorted(self.first_rows, wanted, side="right") - 1
        return shards, wanted - self.first_rows[shards]

    def ids(self, rows: npt.ArrayLike) -> list[str]:
        """Record ids of rows int64 [n]."""
        return [self.index(int(shard)).id(int(row)) for shard, row in zip(*self.locate(rows), strict=True)]

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard, read when it is not among the last ones.

        Raises:
            DataError: it cannot be read, or is not what the manifest says.
        """
        return self._loaded.get(shard, lambda: self._read_index(shard))

    def _read_index(self, shard: int) -> ShardIndex:
        file = self.indices[shard]
        try:
            if self.cache is not None and not file.local:
                with self.cache.open(file.remote()) as copy:
                    data = copy.read()
            else:
                data = Files(file.location, file.options).read("", file.bytes)
        except (OSError, SourceError) as error:
            raise DataError(f"the index {file.shown} cannot be read: {explain(error, file.location)}") from None
        digest = hashlib.sha256(data).hexdigest()
        if digest != file.sha256:
            raise DataError(
                f"the index {file.shown} has the SHA-256 {digest}, its manifest says {file.sha256}: it was changed. "
                "`populace curate CONFIG --verify` writes it anew; or restore the file."
            )
        return parse_index(data, int(self.samples[shard]), self.tars[shard].bytes, file.shown)


def open_corpus(config: DataConfig) -> Corpus:
    """Read the manifests of a configuration, and check that every local file is there and has its size.

    Raises:
        DataError: no corpora, one that cannot be read, files that are missing or have another size, a corpus that is
            listed twice, one without samples that has a weight, no sample at all, or a cache that is too small.
    """
    if not config.corpora:
        raise DataError("data.corpora is empty: list the shards folder of a finished run, or its merged.json")
    parts = []
    tars: dict[str, int] = {}
    for number, entry in enumerate(config.corpora):
        part = _read_entry(entry)
        for tar, _, _ in part:
            first = tars.setdefault(tar.location, number)
            if first != number:
                raise DataError(
                    f"{tar.shown} is listed by two entries of data.corpora, {redact_url(config.corpora[first].path)} "
                    f"and {redact_url(entry.path)}: its samples would count twice. List each corpus once; a "
                    "merged.json stands for all that it grew from."
                )
        if not sum(samples for _, _, samples in part):
            raise DataError(f"{redact_url(entry.path)} holds no sample: take it out of data.corpora")
        parts.append(part)
    _check_files([file for part in parts for shard in part for file in shard[:2]])
    return Corpus(parts, config)


def _read_entry(entry: CorpusConfig) -> list[tuple[ListedFile, ListedFile, int]]:
    location, data = read_manifest(entry)
    shown = redact_url(location)
    try:
        manifest = parse_manifest(data, shown)
        corpora = join_corpora(corpora_of(manifest, location, hashlib.sha256(data).hexdigest()))
        for corpus in corpora:
            for shard in corpus.shards:
                _check_sizes(shard)
        return [
            (
                ListedFile(shard["tar"], int(shard["bytes"]), str(shard["sha256"]), entry.storage_options),
                ListedFile(
                    shard["index"], int(shard["index_bytes"]), str(shard["index_sha256"]), entry.storage_options
                ),
                int(shard["samples"]),
            )
            for corpus in corpora
            for shard in corpus.shards
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{shown} is not a manifest that can be used: {describe(error, 600)}") from None


def _check_sizes(shard: Mapping[str, Any]) -> None:
    """What a manifest says of a shard, before anything is reserved or read by it.

    Raises:
        ValueError: sizes that no such shard has.
    """
    samples, tar, index = (int(shard[name]) for name in ("samples", "bytes", "index_bytes"))
    # A tar has a header of 512 bytes for each image and each sidecar.
    if not (0 <= samples <= tar // 1024 + 1 and 0 <= tar < 2**63 and 0 <= index <= INDEX_BYTES + samples * ROW_BYTES):
        raise ValueError(
            f"{redact_url(shard['tar'])} cannot have {samples} samples in {tar} bytes, with an index of {index} bytes"
        )


INDEX_BYTES, ROW_BYTES = 1 << 20, 4096
"""What an index takes at most, and for each sample: far more than any has (about 150 bytes)."""


def read_manifest(entry: CorpusConfig) -> tuple[str, bytes]:
    """Where the manifest of an entry is, and its bytes.

    Raises:
        DataError: it cannot be read.
    """
    location = absolute(entry.path.rstrip("/"))
    try:
        if not location.endswith(".json") or Files(location, entry.storage_options).kind() == "directory":
            location = f"{location}/{MANIFEST_NAME}"
        with Files(location, entry.storage_options).open("") as file:
            return location, file.read()
    except Exception as error:  # noqa: BLE001 - storage libraries have errors of their own, with credentials
        raise DataError(
            f"{redact_url(location)} cannot be read ({explain(error, location)}). Give the shards folder of a finished "
            "run, or its merged.json for that run and all that it grew from."
        ) from None


def _check_files(files: Sequence[ListedFile]) -> None:
    def wrong(file: ListedFile) -> str | None:
        try:
            size = os.stat(file.location).st_size
        except OSError as error:
            return f"{file.location}: {describe(error)}"
        return None if size == file.bytes else f"{file.location}: {size} bytes, its manifest says {file.bytes}"

    with ThreadPoolExecutor(16) as pool:
        problems = [problem for problem in pool.map(wrong, [file for file in files if file.local]) if problem]
    if problems:
        more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
        raise DataError(
            f"{problems[0]}{more}. The corpus is not complete: restore its files, or export it again "
            "(`populace curate CONFIG --verify` finds and writes what is missing or damaged)."
        )


def _cache(config: DataConfig, corpus: Corpus) -> ShardCache | None:
    """The cache, if there is one and something to keep in it, and large enough for two windows."""
    if config.cache is None or all(tar.local for tar in corpus.tars):
        return None
    groups = corpus.parts if config.weights is not None else [(0, len(corpus.tars))]
    need = 0
    for first, last in groups:
        sizes = [
            tar.bytes + index.bytes
            for tar, index in zip(corpus.tars[first:last], corpus.indices[first:last], strict=True)
            if not tar.local
        ]
        need += sum(sorted(sizes)[-2 * config.shuffle_shards :])
    if need > config.cache_bytes:
        raise DataError(
            f"data.cache_bytes is {config.cache_bytes}, but two windows of data.shuffle_shards = "
            f"{config.shuffle_shards} shards take up to {need} bytes, and shards would be fetched again and again. "
            "Raise it, or shuffle fewer shards together."
        )
    return ShardCache(config.cache, config.cache_bytes, config.verify)
