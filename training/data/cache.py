"""A folder that holds copies of remote files, shared by all processes of a machine.

A file is named by the SHA-256 that its manifest gives, so that a changed shard is another file, and no address is
stored. It appears whole or not at all (temporary name, rename), and one process fetches it while others wait for it.
Where room is needed, the files that were opened longest ago go first, and never one that a process has open: readers
hold a shared `flock`, which ends with the process, however it ends. The folder must be on a disk of this machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from curation.sources.failures import with_retries
from curation.sources.redact import describe, redact_url
from training.data.errors import DataError, explain

_PART = ".part"
_LOCK = ".lock"
_ALL = "all"
_TRIES = 8
MEND = "`populace curate CONFIG --verify` on the run writes it anew; or restore the file."


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file behind fsspec, as its manifest lists it.

    Attributes:
        url: where it is.
        options: for fsspec.
        bytes, sha256: size and hexadecimal hash.
    """

    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    bytes: int
    sha256: str

    @property
    def shown(self) -> str:
        """Its address without credentials."""
        return redact_url(self.url)

    def check_size(self) -> None:
        """See that it is as large as its manifest says, before room is made for it.

        Raises:
            DataError: it is not, or cannot be found.
        """
        import fsspec

        def size() -> int:
            fs, name = fsspec.core.url_to_fs(self.url, **self.options)
            return int(fs.size(name))

        try:
            found = with_retries(size)
        except Exception as error:  # noqa: BLE001 - storage libraries have errors of their own, with credentials
            raise DataError(f"{self.shown} cannot be found: {explain(error, self.url)}") from None
        if found != self.bytes:
            raise DataError(
                f"{self.shown} has {found} bytes, its manifest says {self.bytes}: it was changed or not uploaded in "
                f"full. {MEND}"
            )

    def copy_to(self, path: Path) -> None:
        """Fetch it to a local file, from the start."""
        import fsspec

        fs, name = fsspec.core.url_to_fs(self.url, **self.options)
        fs.get_file(name, str(path))


class ShardCache:
    """Copies of remote files. Picklable; safe for several threads and processes.

    Args:
        folder: made when it is not there.
        limit: most bytes that the copies take together, but for those in use.
        verify: check the SHA-256 of what is fetched, and not only its size.
    """

    def __init__(self, folder: str | Path, limit: int, verify: bool = False) -> None:
        self.folder, self.limit, self.verify = Path(folder).expanduser().absolute(), limit, verify
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"the cache folder {self.folder} cannot be made: {describe(error)}") from None

    def open(self, file: RemoteFile) -> IO[bytes]:
        """The file's copy, open for reading and safe from removal until it is closed; fetched when it is not there.

        Raises:
            DataError: it cannot be fetched, or is not what the manifest says.
        """
        for _ in range(_TRIES):
            opened = self._open_copy(file.sha256)
            if opened is not None:
                return opened
            with self._lock(file.sha256, wait=True):
                if not self._path(file.sha256).exists() and (reserved := self._room(file, must=True)):
                    self._fetch(file, *reserved)
        raise DataError(
            f"{file.shown} was removed from the cache {self.folder} {_TRIES} times before it could be opened: other "
            "processes need the room. Raise data.cache_bytes, or lower data.shuffle_shards."
        )

    def fill(self, file: RemoteFile, spare: frozenset[str] = frozenset()) -> bool:
        """Fetch a file ahead of its use, unless it is there, another process is fetching it, or there is no room.

        Args:
            spare: hashes of files that must not make room for it, because they are needed before it or as soon.

        Returns:
            Whether it is there now.
        """
        path = self._path(file.sha256)
        if path.exists():
            return True
        with self._lock(file.sha256, wait=False) as held:
            if held and not path.exists() and (reserved := self._room(file, must=False, spare=spare)):
                self._fetch(file, *reserved)
        return path.exists()

    def used(self) -> int:
        """Bytes that the copies take, those that are being fetched included."""
        return sum(size for _, _, size in self._copies())

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _open_copy(self, name: str) -> IO[bytes] | None:
        try:
            opened = open(self._path(name), "rb", buffering=0)  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(opened, fcntl.LOCK_SH)
            if os.fstat(opened.fileno()).st_nlink:
                os.utime(opened.fileno())
                return opened
        except BaseException:
            opened.close()
            raise
        opened.close()  # removed between being opened and being locked
        return None

    def _fetch(self, file: RemoteFile, part: Path, target: IO[bytes]) -> None:
        """Copy the file to a reserved part and give it its name. The caller holds the lock of the file."""
        try:
            with target:
                with_retries(lambda: file.copy_to(part))
                self._check(file, part)
                os.replace(part, self._path(file.sha256))
        except DataError:
            part.unlink(missing_ok=True)
            raise
        except Exception as error:  # noqa: BLE001 - storage libraries have errors of their own, with credentials
            part.unlink(missing_ok=True)
            raise DataError(
                f"{file.shown} cannot be copied to the cache {self.folder}: {explain(error, file.url)}. Check that the "
                "address can be reached and that the disk has room."
            ) from None
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _check(self, file: RemoteFile, part: Path) -> None:
        size = part.stat().st_size
        if size != file.bytes:
            raise DataError(
                f"{file.shown} has {size} bytes, its manifest says {file.bytes}: it was changed or not uploaded in "
                f"full. {MEND}"
            )
        if self.verify:
            with open(part, "rb") as copy:
                digest = hashlib.file_digest(copy, "sha256").hexdigest()
            if digest != file.sha256:
                raise DataError(
                    f"{file.shown} has the SHA-256 {digest}, its manifest says {file.sha256}: its content was changed. "
                    f"{MEND}"
                )

    def _room(self, file: RemoteFile, must: bool, spare: frozenset[str] = frozenset()) -> tuple[Path, IO[bytes]] | None:
        """`_reserve`, for a file that is as large as its manifest says: else a false size would empty the cache."""
        file.check_size()
        return self._reserve(file, must, spare)

    def _reserve(
        self, file: RemoteFile, must: bool, spare: frozenset[str] = frozenset()
    ) -> tuple[Path, IO[bytes]] | None:
        """Remove copies until a file fits, or all that are left are in use; then start a part, locked by this process.

        Returns:
            The part and its open file; None when it does not fit and need not.
        """
        with self._lock(_ALL, wait=True):
            copies = self._copies()
            free = self.limit - file.bytes - sum(size for _, _, size in copies)
            for _, path, size in sorted(copies):
                if free >= 0:
                    break
                if path.name not in spare and self._remove(path):
                    free += size
            if free < 0 and not must:
                return None
            # The size in the name counts as used from now on.
            part = self.folder / f"{file.sha256}.{file.bytes}.{uuid.uuid4().hex[:8]}{_PART}"
            target = open(part, "wb")  # noqa: SIM115 - the caller closes it
            fcntl.flock(target, fcntl.LOCK_EX)
            return part, target

    @staticmethod
    def _remove(path: Path) -> bool:
        """Remove a copy that no process has open, or a part that no process writes any more."""
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
        return True

    def _copies(self) -> list[tuple[float, Path, int]]:
        """(time of last use, path, bytes) of copies and parts."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(_LOCK):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat()
                    promised = int(entry.name.split(".")[1]) if entry.name.endswith(_PART) else 0
                    found.append((info.st_mtime, Path(entry.path), max(info.st_size, promised)))
        return found

    @contextlib.contextmanager
    def _lock(self, name: str, wait: bool) -> Iterator[bool]:
        """Hold a lock among the processes and threads of this machine. Gives whether it is held."""
        path = self.folder / f"{name}{_LOCK}"
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(handle)
                yield False
                return
            except BaseException:
                os.close(handle)
                raise
            try:
                current = os.stat(path).st_ino
            except FileNotFoundError:
                current = -1
            if current == os.fstat(handle).st_ino:
                break
            os.close(handle)  # the one who held it has removed it
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)
