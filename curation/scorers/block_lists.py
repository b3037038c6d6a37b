"""Block lists of content hashes (SHA-256) and of perceptual hashes (64 bits): reading, and exact look-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from curation.scorers.weights import find_file

_HOW = "Put the list there, or take it out of the safety scorer's lists."
_BLOCK = 1 << 20


def list_file(path: str) -> Path:
    """The list's file.

    Raises:
        MissingWeightsError: it is not there.
    """
    return find_file(path, "a block list of the safety scorer", _HOW)


class _Lists:
    """Entries of all lists of one kind, and which list each came from."""

    bits: ClassVar[int]

    def __init__(self, paths: Sequence[str]) -> None:
        """Read the lists.

        Args:
            paths: text (one hexadecimal hash a line, `#` starts a comment) or Parquet (a column `sha256` or `phash`, or
                the only column: text, binary or integers).

        Raises:
            MissingWeightsError: a list is not there.
            ValueError: an entry is not a hash of this length; the message has its line or row, never the entry.
        """
        files = [list_file(path) for path in paths]
        self.names = [file.name for file in files]
        parts = [b"".join(_entries(file, self.bits)) for file in files]
        words = self.bits // 64
        self._hashes = np.frombuffer(b"".join(parts), dtype=">u8").astype(np.uint64).reshape(-1, words)
        self._owners = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) // (8 * words) for part in parts])


class ContentLists(_Lists):
    """SHA-256 hashes. 36 bytes of memory an entry; a look-up is a binary search."""

    bits = 256

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(paths)
        order = np.argsort(self._hashes[:, 0], kind="stable")  # stable: the first list that has a hash keeps it
        self._hashes, self._owners = self._hashes[order], self._owners[order]
        self._first = np.ascontiguousarray(self._hashes[:, 0])

    def find(self, sha256: str | None) -> str | None:
        """The name of the first list that holds this SHA-256 (64 hex characters)."""
        if sha256 is None or not len(self._first):
            return None
        query = np.frombuffer(bytes.fromhex(sha256), dtype=">u8").astype(np.uint64)
        start, stop = (int(np.searchsorted(self._first, query[0], side)) for side in ("left", "right"))
        same = np.flatnonzero((self._hashes[start:stop] == query).all(axis=1))
        return self.names[int(self._owners[start + same[0]])] if len(same) else None


class PerceptualLists(_Lists):
    """64-bit perceptual hashes. 12 bytes of memory an entry."""

    bits = 64

    def nearest(self, phash: int, radius: int) -> tuple[str, int] | None:
        """The list with the nearest hash within the radius (the first of equals), and the distance in bits.

        Exact, by counting bits against every entry: about a millisecond per million entries.
        """
        best: tuple[str, int] | None = None
        query = np.uint64(phash)
        for start in range(0, len(self._hashes), _BLOCK):
            distances = np.bitwise_count(self._hashes[start : start + _BLOCK, 0] ^ query)
            index = int(distances.argmin())
            distance = int(distances[index])
            if distance <= radius and (best is None or distance < best[1]):
                best = (self.names[int(self._owners[start + index])], distance)
        return best


def _entries(file: Path, bits: int) -> Iterator[bytes]:
    values = _parquet(file, bits) if file.suffix.lower() == ".parquet" else _text(file)
    for place, value in values:
        entry = _as_bytes(value, bits)
        if entry is None:
            raise ValueError(
                f"{file}, {place}: not a hash of {bits} bits ({bits // 4} hexadecimal characters). Lists of SHA-256 "
                "belong in content_hash_lists, lists of 64-bit perceptual hashes in perceptual_hash_lists."
            )
        yield entry


def _text(file: Path) -> Iterator[tuple[str, object]]:
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            value = line.partition("#")[0].strip()
            if value:
                yield f"line {number}", value


def _parquet(file: Path, bits: int) -> Iterator[tuple[str, object]]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    names = table.schema_arrow.names
    wanted = "sha256" if bits == 256 else "phash"
    if wanted not in names and len(names) != 1:
        raise ValueError(f"{file} must have a column {wanted!r} or a single column, not {', '.join(names)}")
    row = 0
    for batch in table.iter_batches(columns=[wanted if wanted in names else names[0]]):
        for value in batch.column(0).to_pylist():
            yield f"row {row}", value
            row += 1


def _as_bytes(value: object, bits: int) -> bytes | None:
    size = bits // 8
    if isinstance(value, str):
        text = value.strip().removeprefix("0x")
        try:
            return bytes.fromhex(text) if len(text) == 2 * size else None
        except ValueError:
            return None
    if isinstance(value, bytes):
        return value if len(value) == size else None
    if isinstance(value, int) and bits == 64 and -(1 << 63) <= value < 1 << 64:
        return (value % (1 << 64)).to_bytes(8, "big")
    return None


def as_phash(value: object) -> int | None:
    """A perceptual hash column's entry (an integer, or 16 hexadecimal characters) as 0..2^64-1; None for None."""
    entry = _as_bytes(value, 64)
    return None if entry is None else int.from_bytes(entry, "big")
