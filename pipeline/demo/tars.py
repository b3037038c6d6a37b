"""Writes the tars of the demo pool: plain ones, and every kind of odd one."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

HTML = b"<!DOCTYPE html>\n<html><body>503 Service Unavailable</body></html>\n"


class TarWriter:
    """A tar whose bytes depend on its members alone: fixed times, owners and modes."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115

    def add(self, name: str, data: bytes) -> None:
        """Append a file."""
        info = tarfile.TarInfo(name)
        info.size = len(data)
        info.mode = 0o644
        self._tar.addfile(info, io.BytesIO(data))

    def add_link(self, name: str, target: str) -> None:
        """Append a symbolic link."""
        info = tarfile.TarInfo(name)
        info.type = tarfile.SYMTYPE
        info.linkname = target
        self._tar.addfile(info)

    def position(self) -> int:
        """Bytes so far, without the end marker."""
        return self._buffer.tell()

    def close(self) -> bytes:
        """Finish the tar."""
        self._tar.close()
        return self._buffer.getvalue()


def write(path: Path, data: bytes) -> None:
    """Write a file, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
