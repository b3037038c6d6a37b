"""Reading samples of exported shards by their offsets."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from curation.sources.filesystem import read_at


class Tars:
    """Reads from the tars of a folder; the last one stays open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shard: str | None = None
        self._file: BinaryIO | None = None

    def read(self, shard: str, offset: int, size: int) -> bytes:
        """Bytes of `<shard>.tar`, fewer where it ends before; OSError where it cannot be read."""
        if self._file is None or self._shard != shard:
            self.close()
            self._file = open(self._folder / f"{shard}.tar", "rb")  # noqa: SIM115 - closed by close()
            self._shard = shard
        return read_at(self._file, offset, size)

    def close(self) -> None:
        """Close the one that is open."""
        if self._file is not None:
            self._file.close()
        self._file = None
