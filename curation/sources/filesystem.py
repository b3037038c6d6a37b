"""Files of a source, local or behind fsspec (`s3://`, `gs://`, `memory://`, ...), under one root.

All names are relative to the root, use `/`, and are escaped by `curation.sources.names.escape_name`, so that they are
always valid UTF-8.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any, TypeVar

from curation.sources.base import SourceError
from curation.sources.failures import TooManyBytesError, with_retries
from curation.sources.names import escape_name, is_hidden, unescape_name
from curation.sources.redact import describe, redact_url, remember_secrets
from curation.sources.storage import absolute, is_local

T = TypeVar("T")

REMOTE_READS = 8
READ_AHEAD_BYTES = 64 << 20
SCAN_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: name relative to the root, bytes or None when it cannot be looked at (a dangling link)."""

    name: str
    size: int | None


@dataclass(slots=True)
class Listing:
    """Files in order of name, and how many hidden or special ones were passed over."""

    entries: list[Entry]
    skipped: Counter[str] = field(default_factory=Counter)


def _is_folder(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_dir()
    except OSError:  # a link that leads to itself
        return False


class Files:
    """The files under a root. Picklable: the connection is made again in each process."""

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self.root = absolute(root)
        self.options = options
        self.local = is_local(root)
        self._remote: tuple[Any, str] | None = None
        remember_secrets(self.root)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        remember_secrets(self.root)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_remote": None}

    def _fs(self) -> tuple[Any, str]:
        if self._remote is None:
            import fsspec

            try:
                fs, base = fsspec.core.url_to_fs(self.root, **self.options)
            except ImportError as error:
                raise SourceError(
                    f"{redact_url(self.root)} needs a package that is not installed ({error}). "
                    "Install the extra for it: pip install 'populace[s3]' or 'populace[gcs]'."
                ) from error
            except ValueError as error:
                raise SourceError(f"{redact_url(self.root)} cannot be opened: {describe(error)}") from error
            self._remote = fs, base.rstrip("/")
        return self._remote

    def _full(self, name: str) -> str:
        base = self.root if self.local else self._fs()[1]
        return f"{base.rstrip('/')}/{unescape_name(name)}" if name else base

    def kind(self, name: str = "") -> str | None:
        """'file', 'directory', or None when there is nothing."""
        if self.local:
            path = self._full(name)
            return "directory" if os.path.isdir(path) else "file" if os.path.exists(path) else None
        fs, _ = self._fs()

        def look() -> str | None:
            try:
                return str(fs.info(self._full(name))["type"])
            except FileNotFoundError:
                return None

        return with_retries(look)

    def walk(self, max_depth: int | None = None) -> Listing:
        """All files below the root, sorted by name. Hidden files and folders are passed over and counted.

        Links to folders are followed once: a folder that has been walked under one name is not walked under another,
        so circles end. max_depth=1 is the folder itself without subfolders.

        Raises:
            OSError: a folder cannot be read.
        """
        if self.local:
            return self._walk_local(max_depth)
        fs, base = self._fs()

        def find() -> dict[str, Any]:
            fs.invalidate_cache()
            found: dict[str, Any] = fs.find(base, maxdepth=max_depth, detail=True)
            return found

        listing = Listing([])
        hidden_folders: set[str] = set()
        for path, info in with_retries(find).items():
            name = path[len(base) :].lstrip("/")
            if not name or name.endswith("/") or info.get("type") == "directory":
                continue
            parts = name.split("/")
            hidden = next((i for i, part in enumerate(parts) if is_hidden(part)), None)
            if hidden is None:
                listing.entries.append(Entry(escape_name(name), info.get("size")))
            elif (prefix := "/".join(parts[: hidden + 1])) not in hidden_folders:
                hidden_folders.add(prefix)
                listing.skipped["(hidden)"] += 1
        listing.entries.sort(key=lambda entry: entry.name)
        return listing

    def _walk_local(self, max_depth: int | None) -> Listing:
        listing = Listing([])
        visited: set[tuple[int, int]] = set()
        # Links wait until all real folders are walked: a file's name must not depend on which link sorts first.
        pending = deque([""])
        links: deque[str] = deque()
        while pending or links:
            folder = pending.popleft() if pending else links.popleft()
            path = os.path.join(self.root, folder)
            info = os.stat(path)
            if (info.st_dev, info.st_ino) in visited:
                listing.skipped["(repeated folder)"] += 1
                continue
            visited.add((info.st_dev, info.st_ino))
            with os.scandir(path) as found:
                children = sorted(found, key=lambda child: child.name)
            for child in children:
                name = f"{folder}/{child.name}" if folder else child.name
                if is_hidden(child.name):
                    listing.skipped["(hidden)"] += 1
                elif _is_folder(child):
                    deep = max_depth is not None and name.count("/") + 1 >= max_depth
                    if child.name != "lost+found" and not deep:
                        (links if child.is_symlink() else pending).append(name)
                else:
                    self._add_local(listing, name, child)
        listing.entries.sort(key=lambda entry: entry.name)
        return listing

    @staticmethod
    def _add_local(listing: Listing, name: str, child: os.DirEntry[str]) -> None:
        try:
            info = child.stat()
        except OSError:
            listing.entries.append(Entry(escape_name(name), None))
            return
        if stat.S_ISREG(info.st_mode):
            listing.entries.append(Entry(escape_name(name), info.st_size))
        else:
            listing.skipped["(not a file)"] += 1

    def size(self, name: str) -> int:
        """Bytes of a file now."""
        if self.local:
            return os.stat(self._full(name)).st_size
        fs, _ = self._fs()
        return int(with_retries(lambda: fs.size(self._full(name))))

    def version(self, name: str) -> str:
        """Changes when the file does, as far as the file system tells without reading it."""
        if self.local:
            info = os.stat(self._full(name))
            return f"{info.st_size}-{info.st_mtime_ns}-{info.st_ino}"
        fs, _ = self._fs()
        return str(with_retries(lambda: fs.ukey(self._full(name))))

    def read(self, name: str, max_bytes: int) -> bytes:
        """The whole file.

        Raises:
            TooManyBytesError: it is longer than max_bytes; nothing was read.
            OSError: it could not be read.
        """
        if not self.local:
            fs, _ = self._fs()
            self._check_size(self.size(name), max_bytes)
            return bytes(with_retries(lambda: fs.cat_file(self._full(name))))

        def whole() -> bytes:
            with open(self._full(name), "rb", buffering=0) as file:
                self._check_size(os.fstat(file.fileno()).st_size, max_bytes)
                return file.read()

        return with_retries(whole)

    @staticmethod
    def _check_size(size: int, max_bytes: int) -> None:
        if size > max_bytes:
            raise TooManyBytesError(f"{size} bytes, the cap is {max_bytes}")

    def read_range(self, name: str, start: int, size: int) -> bytes:
        """Bytes [start, start + size); fewer when the file is shorter."""
        if size == 0:
            return b""
        if not self.local:
            fs, _ = self._fs()
            return bytes(with_retries(lambda: fs.cat_file(self._full(name), start=start, end=start + size)))

        def part() -> bytes:
            with open(self._full(name), "rb", buffering=0) as file:
                return read_at(file, start, size)

        return with_retries(part)

    def open(self, name: str) -> IO[bytes]:
        """A seekable file to read; remote ones read ahead, as scanning headers does."""
        if self.local:
            return open(self._full(name), "rb")
        fs, _ = self._fs()
        opened: IO[bytes] = with_retries(
            lambda: fs.open(self._full(name), "rb", block_size=SCAN_BLOCK_BYTES, cache_type="readahead")
        )
        return opened


def read_at(file: IO[bytes], start: int, size: int) -> bytes:
    """Bytes [start, start + size) of an open local file, as far as it goes, whatever short reads the system makes.

    Memory is taken for what is there, and not for what somebody's index asks for.

    Raises:
        OSError: a place before the file, or it cannot be read.
    """
    if start < 0 or size < 0:
        raise OSError(f"{size} bytes from {start} on cannot be read: neither may be negative")
    size = max(0, min(size, os.fstat(file.fileno()).st_size - start))
    data = os.pread(file.fileno(), size, start)
    if len(data) == size or not data:
        return data
    parts = [data]
    got = len(data)
    while got < size and (data := os.pread(file.fileno(), size - got, start + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def read_ahead(jobs: Iterable[tuple[int, Callable[[], T]]], workers: int = REMOTE_READS) -> Iterator[T]:
    """Run jobs (bytes, function) in threads and yield their results in order.

    Holds at most 2 x workers results, and no new job starts while READ_AHEAD_BYTES are out, unless it is the only one.
    """
    waiting: deque[tuple[int, Future[T]]] = deque()
    held = 0
    with ThreadPoolExecutor(workers) as pool:
        try:
            for cost, job in jobs:
                while waiting and (held + cost > READ_AHEAD_BYTES or len(waiting) >= 2 * workers):
                    spent, future = waiting.popleft()
                    yield future.result()
                    held -= spent
                waiting.append((cost, pool.submit(job)))
                held += cost
            while waiting:
                yield waiting.popleft()[1].result()
        finally:
            for _, future in waiting:
                future.cancel()
