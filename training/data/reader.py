"""Reads encoded images: by `pread` from tars here or in the cache, else by ranges of remote ones."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from curation.reasons import Reason
from curation.records import Payload
from curation.sources.filesystem import Files, read_ahead, read_at
from training.data.cache import ShardCache
from training.data.corpus import Corpus, ListedFile
from training.data.errors import DataError, explain
from training.data.lru import Recent

log = logging.getLogger(__name__)


class ImageReader:
    """Reads the images of a corpus. Picklable; one per process.

    A tar that is gone or cannot be reached is an error, and not a reason to take another sample: what a run sees must
    not depend on the weather of a network. Bytes that are there and wrong are: the same on every run.

    Args:
        corpus: from `open_corpus`.
        open_files: tars kept open.
        verify: compare each image with the SHA-256 of the index.
    """

    def __init__(self, corpus: Corpus, open_files: int = 64, verify: bool = False) -> None:
        self._corpus, self._verify = corpus, verify
        self._open: Recent[int, IO[bytes]] = Recent(open_files, _close)

    def read(self, row: int) -> Payload:
        """The encoded image of a row, or the reason why there is none.

        Raises:
            DataError: its tar or index cannot be read.
        """
        return next(self.read_many([row]))

    def read_many(self, rows: Sequence[int]) -> Iterator[Payload]:
        """The images of rows, in order; those of remote tars that are not cached are fetched several at a time."""
        shards, inner = self._corpus.locate(rows)
        places = list(zip(shards.tolist(), inner.tolist(), strict=True))
        if not any(self._by_ranges(shard) for shard, _ in places):
            for shard, row in places:
                yield self._payload(shard, row, self._read_here(shard, row))
            return
        jobs = [self._range_job(shard, row) for shard, row in places]
        for (shard, row), data in zip(places, read_ahead(jobs), strict=True):
            yield self._payload(shard, row, self._read_here(shard, row) if data is None else data)

    def keep(self, shards: frozenset[int]) -> None:
        """Close the tars of all other shards, so that the cache may remove them."""
        self._open.clear(keep=shards)

    def close(self) -> None:
        """Close all tars."""
        self._open.clear()

    def _by_ranges(self, shard: int) -> bool:
        return self._corpus.cache is None and not self._corpus.tars[shard].local

    def _payload(self, shard: int, row: int, data: bytes) -> Payload:
        index = self._corpus.index(shard)
        size = int(index.sizes[row])
        if len(data) > size:
            raise DataError(
                f"{self._corpus.tars[shard].shown}: {len(data)} bytes came where {size} were asked for: its server "
                "does not answer requests for a range. Give data.cache, which fetches whole shards, or another server."
            )
        if len(data) != size:
            return Payload(None, Reason.TRUNCATED_CONTAINER, f"{len(data)} of {size} bytes are there")
        if self._verify:
            digest = hashlib.sha256(data).hexdigest()
            if digest != index.sha256(row):
                return Payload(None, Reason.CORRUPT, f"SHA-256 is {digest}, the index says {index.sha256(row)}")
        return Payload(data)

    def _read_here(self, shard: int, row: int) -> bytes:
        index, tar = self._corpus.index(shard), self._corpus.tars[shard]
        try:
            file = self._open.get(shard, lambda: self._open_tar(shard))
            return read_at(file, int(index.offsets[row]), int(index.sizes[row]))
        except OSError as error:
            raise DataError(f"{tar.shown} cannot be read: {explain(error, tar.location)}") from None

    def _open_tar(self, shard: int) -> IO[bytes]:
        tar, cache = self._corpus.tars[shard], self._corpus.cache
        if tar.local:
            return open(tar.location, "rb", buffering=0)
        if cache is None:
            raise AssertionError("remote tars without a cache are read by ranges")
        return cache.open(tar.remote())

    def _range_job(self, shard: int, row: int) -> tuple[int, Callable[[], bytes | None]]:
        """Bytes, and a function for another thread that fetches them from a remote tar; or gives None for others."""
        if not self._by_ranges(shard):
            return 0, lambda: None
        index, tar = self._corpus.index(shard), self._corpus.tars[shard]
        offset, size = int(index.offsets[row]), int(index.sizes[row])

        def fetch() -> bytes:
            try:
                return Files(tar.location, tar.options).read_range("", offset, size)
            except Exception as error:  # noqa: BLE001 - storage libraries have errors of their own, with credentials
                raise DataError(f"{tar.shown} cannot be read: {explain(error, tar.location)}") from None

        return size, fetch


def _close(file: IO[bytes]) -> None:
    file.close()


class ReadAhead:
    """Fetches shards to the cache in the background, in the order in which they will be needed.

    Several processes share the work: what one is fetching the others pass over. What fails is left to the reader that
    needs it, which says so.

    Args:
        corpus: with a cache.
        most: shards that are fetched ahead at a time; the rest waits for the next `want`.
    """

    def __init__(self, corpus: Corpus, cache: ShardCache, most: int) -> None:
        self._corpus, self._cache, self._most = corpus, cache, most
        self._wanted: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self._done: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="shard read-ahead", daemon=True)
        self._thread.start()

    def want(self, shards: Sequence[int]) -> None:
        """Fetch the next of these that are not there yet."""
        self._wanted.put(list(shards))

    def close(self) -> None:
        """Stop after the file that is being fetched."""
        self._wanted.put(None)

    def _run(self) -> None:
        while True:
            wanted: Any = self._wanted.get()
            while not self._wanted.empty():  # only the newest wish counts
                newer = self._wanted.get()
                wanted = newer if wanted is not None else None
            if wanted is None:
                return
            self._done &= set(wanted)
            spare = frozenset(file.sha256 for shard in wanted for file in self._files(shard))
            missing = [shard for shard in wanted if shard not in self._done][: self._most]
            for shard in missing:
                try:
                    if all(file.local or self._cache.fill(file.remote(), spare) for file in self._files(shard)):
                        self._done.add(shard)
                except DataError as error:
                    log.debug("read-ahead: %s", error)
                if not self._wanted.empty():
                    break

    def _files(self, shard: int) -> tuple[ListedFile, ListedFile]:
        return self._corpus.indices[shard], self._corpus.tars[shard]
