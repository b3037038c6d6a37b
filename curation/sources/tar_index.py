"""Scans the headers of a tar: what is in it and where, without reading what is not asked for."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from curation.reasons import Reason
from curation.sources.names import escape_name

BLOCK = tarfile.BLOCKSIZE
_TAIL_BYTES = 1 << 20
_MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"
}  # fmt: skip


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


class _TarInfo(tarfile.TarInfo):
    """Refuses negative sizes, with which tarfile before 2025 runs in circles (CVE-2025-8194)."""

    def _block(self, count: int) -> int:
        if count < 0:
            raise tarfile.ReadError("negative size")
        return super()._block(count)  # type: ignore[misc]


def scan(file: IO[bytes], size: int) -> Iterator[Member | Damage]:
    """The members of a tar of `size` bytes, in order; complete ones before a `Damage`.

    A tar that ends between two members without its end marker is taken as whole, as GNU tar does. Tars that were
    appended to each other are read through.

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
        yield Damage(Reason.BAD_CONTAINER, f"not a tar: {size} bytes that start with {head[:16]!r}")
        return
    file.seek(0)
    yield from _members(file, size, head)


def _members(file: IO[bytes], size: int, head: bytes) -> Iterator[Member | Damage]:
    tar: Any = None
    end = 0
    while True:
        try:
            if tar is None:
                tar = tarfile.TarFile(
                    fileobj=file, mode="r", tarinfo=_TarInfo, encoding="utf-8", errors="surrogateescape"
                )
            info = tar.next()
            tar.members.clear()
        except (tarfile.TarError, ValueError, IndexError, KeyError, OverflowError, EOFError) as error:
            yield _damage(size, end, head, f"{error}")
            return
        if info is None:
            start = _next_archive(file, size, tar.offset)
            if start is None:
                return
            if start < 0:
                yield _damage(size, end, head, f"no header at byte {-start}")
                return
            tar.offset = start
            file.seek(start)
            continue
        if tar.offset <= end or info.size < 0:
            yield _damage(size, end, head, "a header points backwards")
            return
        data_end = info.offset_data + info.size
        if info.isreg() and not info.issparse() and data_end > size:
            yield Damage(
                Reason.TRUNCATED_CONTAINER,
                f"ends at byte {size}, in the middle of {escape_name(info.name)!r}, which ends at {data_end}",
            )
            return
        end = tar.offset
        if not info.isdir():
            yield _member(info)


def _member(info: tarfile.TarInfo) -> Member:
    name = escape_name(info.name)
    if info.issparse():
        return Member(name, info.offset_data, info.size, "stored as a GNU sparse file", Reason.BAD_CONTAINER)
    if info.isreg():
        return Member(name, info.offset_data, info.size)
    if info.issym() or info.islnk():
        kind = "symbolic" if info.issym() else "hard"
        return Member(name, 0, 0, f"a {kind} link to {escape_name(info.linkname)!r}", Reason.UNSAFE_MEMBER)
    return Member(name, 0, 0, f"not a file (tar type {info.type!r})", Reason.UNSAFE_MEMBER)


def _damage(size: int, end: int, head: bytes, detail: str) -> Damage:
    """Damage after `end` good bytes. tarfile says the same for a cut and for garbage: the place tells them apart."""
    if end == 0 and head[257:262] != b"ustar":
        return Damage(Reason.BAD_CONTAINER, f"not a tar: starts with {head[:16]!r}")
    if size - end < BLOCK or any(word in detail for word in ("unexpected end", "truncated", "empty header")):
        return Damage(Reason.TRUNCATED_CONTAINER, f"ends at byte {size}, in the middle of a member")
    return Damage(Reason.BAD_CONTAINER, f"damaged after byte {end} ({detail}); what follows cannot be found")


def _next_archive(file: IO[bytes], size: int, offset: int) -> int | None:
    """Where the next header is after the place at which tarfile stopped: None at the end of the file, the negated
    place when what is there is no header."""
    file.seek(offset)
    tail = file.read(min(_TAIL_BYTES, size - offset))
    filled = len(tail) - len(tail.lstrip(b"\0"))
    if filled == len(tail):
        return None
    start = offset + filled // BLOCK * BLOCK
    header = tail[start - offset : start - offset + BLOCK]
    try:
        tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        # After an end marker of two zero blocks anything may follow; tar ignores it too.
        return None if filled >= 2 * BLOCK else -max(start, 1)
    # At the very place tarfile had refused it, so going on would not end.
    return start if start > offset else -start
