"""Scans the headers of a tar: what is in it and where, without reading what is not asked for.

Python's `tarfile` reads extended headers whole, whatever their length, in time quadratic in a run of digits, and calls
itself for each header of a chain. This walk knows every size before it reads, and refuses by name what no tool writes:

| in the tar | outcome |
|---|---|
| old, ustar, GNU (long names and links, sizes in base 256, sparse), pax (local, global, Solaris', sparse) | \
as `tarfile` |
| an extended header of more than 1 MiB, a name of more than 16 KiB, more than 16 extended headers before one member, \
a sparse map of more than 1 MiB | Damage, BAD_CONTAINER |
| a wrong checksum, a size that is negative or no number | Damage, BAD_CONTAINER |
| the end of the file inside a header, a member or its padding | Damage, TRUNCATED_CONTAINER |
| one zero block or many, then a header (tars appended to each other, with blocks of any length) | read on |
| zeros to the end of the file, or no end marker at all | the end |
| more than 1 GiB of zeros in a tar; holes in a local file cost and count nothing | Damage, BAD_CONTAINER |
| anything but a header after an end marker | ignored, unless it has the magic of a header: Damage, BAD_CONTAINER |
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from curation.content import kind_of_content
from curation.reasons import Reason
from curation.sources.names import escape_name
from curation.sources.tar_headers import (
    BLOCK,
    Header,
    claims_to_be_header,
    decimal,
    padded,
    parse_header,
    parse_pax,
    text_of,
)

MAX_EXTENDED_BYTES = 1 << 20
MAX_EXTENDED_HEADERS = 16
MAX_NAME_BYTES = 16 << 10
MAX_ZERO_BYTES = 1 << 30
_ZEROS = bytes(1 << 20)
_MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"
}  # fmt: skip
_EXTENDED = frozenset((b"L", b"K", b"x", b"X", b"g"))


@dataclass(frozen=True, slots=True)
class Member:
    """A tar member that is not a folder.

    Attributes:
        name: as the tar has it, escaped to valid UTF-8.
        offset, size: its data, bytes.
        problem: why its data cannot be used, e.g. 'a symbolic link to x'; None for a complete file.
        reason: the reason code of `problem`.
    """

    name: str
    offset: int
    size: int
    problem: str | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """The tar cannot be read from here on; always the last thing that a scan gives."""

    reason: Reason
    detail: str


class _DamagedError(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.damage = Damage(reason, detail)


def scan(file: IO[bytes], size: int) -> Iterator[Member | Damage]:
    """The members of a tar of `size` bytes, in order; complete ones before a `Damage`.

    A tar that ends between two members without its end marker is taken as whole, as GNU tar does. Tars that were
    appended to each other are read through. The caller may read elsewhere in the file between two members.

    Raises:
        OSError: the file could not be read (not: what it holds is no tar).
    """
    if size == 0:
        yield Damage(Reason.BAD_CONTAINER, "the tar has zero bytes")
        return
    head = file.read(BLOCK)
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            yield Damage(
                Reason.BAD_CONTAINER, f"compressed with {name}: members have no byte address; decompress it first"
            )
            return
    if len(head) < BLOCK:
        yield Damage(Reason.BAD_CONTAINER, f"not a tar: {size} bytes of {kind_of_content(head)}")
        return
    walk = _Walk(file, size)
    position: int | None = 0
    try:
        while position is not None:
            member, position = walk.step(position)
            if member is not None:
                yield member
    except _DamagedError as error:
        yield error.damage


class _Walk:
    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file = file
        self.size = size
        self.shared: dict[bytes, bytes] = {}  # of global pax headers
        self.zeros = 0
        self.found = False

    def step(self, start: int) -> tuple[Member | None, int | None]:
        """The member at `start`, None for a folder or zeros, and where to go on: None at the end."""
        chain: list[dict[bytes, bytes]] = []
        position = start
        for _ in range(MAX_EXTENDED_HEADERS + 1):
            block = self._block(position)
            if block is None:
                if chain:
                    raise self._cut()
                return None, None
            header = parse_header(block)
            if header is None:
                if not chain and block == _ZEROS[:BLOCK]:
                    return None, self._after_zeros(position)
                raise self._no_header(start, position, block)
            self.found = True
            position += BLOCK
            if header.kind not in _EXTENDED:
                return self._member(header, position, chain)
            values, position = self._extended(header, position)
            if header.kind == b"g":
                self.shared.update(values)
            else:
                chain.append(values)
        raise _bad(start, f"more than {MAX_EXTENDED_HEADERS} extended headers before one member")

    def _extended(self, header: Header, position: int) -> tuple[dict[bytes, bytes], int]:
        """What an extended header says, under pax keywords, and where the next header is."""
        if header.size > MAX_EXTENDED_BYTES:
            raise _bad(
                position - BLOCK, f"an extended header of {header.size} bytes, at most {MAX_EXTENDED_BYTES} are read"
            )
        data = self._read(position, header.size)
        if header.kind == b"L":
            values = {b"path": text_of(data)}
        elif header.kind == b"K":
            values = {b"linkpath": text_of(data)}
        else:
            values = parse_pax(data)
            if b"path" in values:
                values[b"path"] = values[b"path"].rstrip(b"/")
        return values, position + padded(header.size)

    def _member(
        self, header: Header, position: int, chain: list[dict[bytes, bytes]]
    ) -> tuple[Member | None, int | None]:
        # As tarfile has it: of several extended headers, the first is applied last.
        values = dict(self.shared)
        for item in reversed(chain):
            values.update(item)
        start = position - BLOCK
        if b"size" in values:
            size = decimal(values[b"size"])
            if size is None:
                raise _bad(start, "a size that is no number")
            header.size = size
        header.name = values.get(b"GNU.sparse.name", values.get(b"path", header.name))
        header.link = values.get(b"linkpath", header.link)
        header.sparse = header.sparse or any(key.startswith(b"GNU.sparse.") for key in values)
        if max(len(header.name), len(header.link)) > MAX_NAME_BYTES:
            raise _bad(start, f"a name of more than {MAX_NAME_BYTES} bytes")
        if header.continues:
            position = self._after_sparse_map(position)
        name = _decoded(header.name)
        end = position + header.stored
        if end > self.size:
            detail = f"ends at byte {self.size}, in the middle of {name!r}, which ends at {end}"
            raise _DamagedError(Reason.TRUNCATED_CONTAINER, detail)
        member = None if header.kind == b"5" else _as_member(header, name, position)
        return member, position + padded(header.stored)

    def _after_sparse_map(self, position: int) -> int:
        for count in range(MAX_EXTENDED_BYTES // BLOCK):
            if self._read(position + count * BLOCK, BLOCK)[504] == 0:
                return position + (count + 1) * BLOCK
        raise _bad(position - BLOCK, f"a sparse map of more than {MAX_EXTENDED_BYTES} bytes")

    def _after_zeros(self, start: int) -> int | None:
        """Where the next header is after zero blocks from `start` on; None at the end."""
        position = self._skip_zeros(start)
        if position is None:
            return None
        marked = position - start >= 2 * BLOCK
        if self.size - position < BLOCK:
            if marked and self.found:
                return None
            raise self._cut()
        block = self._read(position, BLOCK)
        if parse_header(block) is None:
            # After an end marker of two zero blocks anything may follow; tar ignores it too.
            if marked and self.found and not claims_to_be_header(block):
                return None
            raise self._no_header(position, position, block)
        self.shared = {}
        return position

    def _skip_zeros(self, position: int) -> int | None:
        """The first block from `position` on that is not zeros; None when there is none."""
        while position < self.size:
            data_at = _next_data(self.file, position)
            if data_at is None:
                return None
            position = max(position, data_at // BLOCK * BLOCK)
            self.file.seek(position)
            part = self.file.read(min(len(_ZEROS), self.size - position))
            if not part:
                return None
            if part != _ZEROS[: len(part)]:
                return position + (len(part) - len(part.lstrip(b"\0"))) // BLOCK * BLOCK
            position += len(part)
            self.zeros += len(part)
            if self.zeros > MAX_ZERO_BYTES:
                raise _bad(position, f"more than {MAX_ZERO_BYTES} bytes of zeros between members")
        return None

    def _block(self, position: int) -> bytes | None:
        """The block at `position`; None at the very end of the file."""
        return None if position == self.size else self._read(position, BLOCK)

    def _read(self, position: int, size: int) -> bytes:
        if position + size > self.size:
            raise self._cut()
        self.file.seek(position)
        data = self.file.read(size)
        if len(data) < size:
            raise self._cut()
        return data

    def _cut(self) -> _DamagedError:
        return _DamagedError(Reason.TRUNCATED_CONTAINER, f"ends at byte {self.size}, in the middle of a member")

    def _no_header(self, start: int, position: int, block: bytes) -> _DamagedError:
        if not self.found and not claims_to_be_header(block):
            kind = kind_of_content(block)
            return _DamagedError(Reason.BAD_CONTAINER, f"not a tar: {self.size} bytes, {kind} where a header belongs")
        return _bad(start, f"no header at byte {position}")


def _bad(position: int, detail: str) -> _DamagedError:
    return _DamagedError(
        Reason.BAD_CONTAINER, f"damaged after byte {position} ({detail}); what follows cannot be found"
    )


def _decoded(name: bytes) -> str:
    return escape_name(name.decode("utf-8", "surrogateescape"))


def _as_member(header: Header, name: str, offset: int) -> Member:
    if header.sparse:
        return Member(name, offset, header.stored, "stored as a GNU sparse file", Reason.BAD_CONTAINER)
    if header.regular:
        return Member(name, offset, header.size)
    if header.kind in (b"1", b"2"):
        kind = "symbolic" if header.kind == b"2" else "hard"
        return Member(name, 0, 0, f"a {kind} link to {_decoded(header.link)!r}", Reason.UNSAFE_MEMBER)
    return Member(name, 0, 0, f"not a file (tar type {header.kind!r})", Reason.UNSAFE_MEMBER)


def _next_data(file: IO[bytes], position: int) -> int | None:
    """The first byte from `position` on that a local file does not leave out as a hole; None when only a hole is
    left. `position` itself where holes cannot be asked for."""
    if not hasattr(os, "SEEK_DATA"):
        return position
    try:
        number = file.fileno()
        before = os.lseek(number, 0, os.SEEK_CUR)
    except (OSError, AttributeError, ValueError):
        return position
    try:
        return os.lseek(number, position, os.SEEK_DATA)
    except OSError as error:
        return None if error.errno == errno.ENXIO else position
    finally:
        os.lseek(number, before, os.SEEK_SET)
