"""Where a run lives: a folder, or a prefix of an object store, with the one write protocol that runs rely on.

A file appears whole or not at all. Locally that is write to a temporary name, fsync, rename; an object store publishes
an object only when its upload completes, which gives the same promise. Temporary names start with a dot, so no reader
takes them for results.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

import fsspec
import pyarrow as pa

from curation.parquet_files import read_parquet, write_parquet
from curation.sources.redact import redact_url, remember_secrets


class StorageError(RuntimeError):
    """A place cannot be used. The message says what was given, what is allowed and how to fix it."""


class RemovedError(RuntimeError):
    """The folder of a run was removed while the run was writing into it. The message says so."""


class DamagedFileError(RuntimeError):
    """A file of a run cannot be read. The message names it and says what to do."""


UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError)
"""What reading a damaged Parquet or JSON file can raise."""


def _is_vector(type_: pa.DataType) -> bool:
    """Embeddings: their values hardly repeat, and a dictionary of them takes four times as long to write and read."""
    return pa.types.is_list(type_) and pa.types.is_floating(type_.value_type)


class Storage:
    """Files under one root. Picklable: workers get a copy and open their own connections.

    Args:
        root: a local path or an fsspec URL (`s3://bucket/run`).
        options: fsspec storage options; never written anywhere.
        mark: path of a local file that is there as long as anything may be written, "" for none: who removed a run does
            not want it made again by what was still writing.
    """

    def __init__(self, root: str | Path, options: dict[str, Any] | None = None, mark: str = "") -> None:
        self.root = str(root).rstrip("/")
        self.mark = mark
        remember_secrets(self.root)
        self.options = options or {}
        self.local = "://" not in self.root or self.root.startswith("file://")
        if self.local:
            self.root = str(Path(self.root.removeprefix("file://")).expanduser().resolve())
        else:
            protocol = self.root.partition("://")[0]
            try:
                fsspec.get_filesystem_class(protocol)
            except (ValueError, ImportError) as error:
                raise StorageError(
                    f"{root}: {error}. Give a local path or the URL of a file system that fsspec knows here; s3:// "
                    "needs pip install 'populace[s3]', gs:// needs pip install 'populace[gcs]'."
                ) from None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        remember_secrets(self.root)

    def __repr__(self) -> str:
        return f"Storage({redact_url(self.root)!r})"

    def path(self, name: str = "") -> str:
        """Full path or URL of a name relative to the root."""
        return f"{self.root}/{name}" if name else self.root

    def child(self, name: str) -> Storage:
        """The storage of a folder below this one."""
        return Storage(self.path(name), self.options, self.mark)

    @property
    def _fs(self) -> Any:
        return fsspec.core.url_to_fs(self.root, **self.options)[0]

    def exists(self, name: str) -> bool:
        """True when a file or folder of that name is there."""
        return os.path.exists(self.path(name)) if self.local else bool(self._fs.exists(self.path(name)))

    def names(self, folder: str = "") -> list[str]:
        """Sorted names directly inside a folder, temporary files left out; [] when there is none."""
        if self.local:
            try:
                names = os.listdir(self.path(folder))
            except FileNotFoundError:
                return []
        else:
            try:
                names = [
                    PurePosixPath(entry).name for entry in self._fs.ls(self.path(folder), detail=False, refresh=True)
                ]
            except FileNotFoundError:
                return []
        return sorted(name for name in names if name and not name.startswith("."))

    @contextmanager
    def open_read(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for reading, seekable."""
        if self.local:
            # Arrow's own file: none of its threads then needs the interpreter, not even while that shuts down.
            with pa.OSFile(self.path(name), "rb") as native:
                yield native
            return
        with fsspec.open(self.path(name), "rb", **self.options) as file:
            yield file

    @contextmanager
    def open_write(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for writing; it appears under its name when the block ends, and never after an error."""
        if not self.local:
            # Written here and uploaded whole: an fsspec writer that is left half-way may still publish what it has.
            with tempfile.TemporaryFile() as buffer:
                yield buffer
                buffer.seek(0)
                with self._fs.open(self.path(name), "wb") as file:
                    shutil.copyfileobj(buffer, file, 1 << 20)
            return
        target = Path(self.path(name))
        self._make_folder(target.parent)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            with open(temporary, "wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, target)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, FileNotFoundError):
                self.check_mark()
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                error.filename = str(target)  # of a full disk, the system says no place
            raise

    def _make_folder(self, folder: Path) -> None:
        self.check_mark()
        top = Path(self.mark).parent
        if not self.mark or not folder.is_relative_to(top):
            folder.mkdir(parents=True, exist_ok=True)
            return
        try:
            # Never the run's own folder: it may be removed at this moment.
            for parent in [*reversed(folder.relative_to(top).parents), folder.relative_to(top)]:
                if parent.parts:
                    (top / parent).mkdir(exist_ok=True)
        except FileNotFoundError:
            self.check_mark()
            raise

    def check_mark(self) -> None:
        """Raises:
        RemovedError: the mark is gone.
        """
        if self.mark and not os.path.exists(self.mark):
            raise RemovedError(
                f"{os.path.dirname(self.mark)} was removed while the run was writing into it (its "
                f"{os.path.basename(self.mark)} is gone). The same command begins again."
            )

    def read_bytes(self, name: str) -> bytes:
        """The whole content of a file."""
        with self.open_read(name) as file:
            return file.read()

    def write_bytes(self, name: str, data: bytes) -> None:
        """Publish a file with this content."""
        with self.open_write(name) as file:
            file.write(data)

    def write_table(self, name: str, table: pa.Table, row_group_size: int | None = None) -> None:
        """Publish a Parquet file. The same table gives the same bytes."""
        with self.open_write(name) as file:
            dictionary = [field.name for field in table.schema if not _is_vector(field.type)]
            write_parquet(table, file, row_group_size or max(len(table), 1), dictionary)

    def read_table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read a Parquet file, with its schema metadata."""
        with self.open_read(name) as file:
            return read_parquet(file, columns)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A JSON object, or None when the file is not there or does not hold one."""
        if not self.exists(name):
            return None
        try:
            value = json.loads(self.read_bytes(name))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def remove(self, name: str) -> None:
        """Remove a file or a folder with all that it holds; nothing happens when it is not there."""
        if self.local:
            path = Path(self.path(name))
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        elif self.exists(name):
            self._fs.rm(self.path(name), recursive=True)

    def hidden(self, folder: str) -> list[str]:
        """Sorted names directly inside a folder that begin with a dot."""
        if self.local:
            names = os.listdir(self.path(folder))
        else:
            names = [PurePosixPath(entry).name for entry in self._fs.ls(self.path(folder), detail=False, refresh=True)]
        return sorted(name for name in names if name.startswith("."))

    def publish_file(self, source: str, target: str) -> None:
        """Put file `source` in the place of file `target`."""
        if self.local:
            Path(self.path(target)).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.path(source), self.path(target))
            return
        self._fs.copy(self.path(source), self.path(target))
        self.remove(source)

    def publish_folder(self, source: str, target: str, last: str | None = None) -> None:
        """Replace folder `target` by folder `source`.

        Locally this is a rename. An object store has none: files are copied one by one, with `last` (the file that
        marks the folder as complete) removed first and put in place last, so that a half-copied folder never looks
        finished. Call again after a kill: it completes, since `source` goes only at the end.
        """
        if self.local:
            old = f".{target}.old"
            self.remove(old)
            if self.exists(target):
                os.replace(self.path(target), self.path(old))
            os.replace(self.path(source), self.path(target))
            self.remove(old)
            return
        if self.exists(target):
            if last is not None:
                self.remove(f"{target}/{last}")
            self.remove(target)
        prefix = self._fs._strip_protocol(self.path(source))
        names = [str(entry)[len(prefix) + 1 :] for entry in self._fs.find(self.path(source))]
        for name in sorted(names, key=lambda item: (item == last, item)):
            self._fs.copy(self.path(f"{source}/{name}"), self.path(f"{target}/{name}"))
        self.remove(source)

    def sweep(self) -> None:
        """Remove temporary files that a killed process left. Only for the holder of the run's lock."""
        if self.local:
            for path in Path(self.root).rglob(".*.tmp"):
                path.unlink(missing_ok=True)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return os.path.getsize(self.path(name)) if self.local else int(self._fs.size(self.path(name)))
