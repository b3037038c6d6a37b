"""One 512-byte header block of a tar, and the records of a pax header. Every length is bounded before it is used."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 512
_OCTAL = b"01234567"
_REGULAR = frozenset((b"0", b"\0", b"7", b"S"))
_WITHOUT_DATA = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))
_GNU_EXTENSIONS = frozenset((b"L", b"K", b"S"))
_LENGTH_DIGITS = 20


@dataclass(slots=True)
class Header:
    """What a header block says.

    Attributes:
        kind: the type flag, one byte; that of an old folder (a regular file whose name ends in a slash) is b'5'.
        size: bytes of data; never negative.
        name, link: as stored, without the terminating NUL.
        continues: a GNU sparse header whose map goes on in the next block.
        sparse: stored with holes left out, so that the data is not the file.
    """

    kind: bytes
    size: int
    name: bytes
    link: bytes
    continues: bool = False
    sparse: bool = False

    @property
    def regular(self) -> bool:
        """True for a file with data of its own."""
        return self.kind in _REGULAR

    @property
    def stored(self) -> int:
        """Bytes of data that follow: links, folders and devices have none, whatever their size field says."""
        return 0 if self.kind in _WITHOUT_DATA else self.size


def parse_header(block: bytes) -> Header | None:
    """The header in a block of 512 bytes (old, ustar, GNU); None when it is none: wrong checksum, no valid size."""
    size = _number(block[124:136])
    if size is None or size < 0 or not _checksum_holds(block):
        return None
    kind = block[156:157]
    name = _text(block[0:100])
    if kind == b"\0" and name.endswith(b"/"):
        kind = b"5"
    if kind == b"5":
        name = name.rstrip(b"/")
    if block[345] and kind not in _GNU_EXTENSIONS:
        name = _text(block[345:500]) + b"/" + name
    sparse = kind == b"S"
    return Header(kind, size, name, _text(block[157:257]), sparse and block[482] != 0, sparse)


def claims_to_be_header(block: bytes) -> bool:
    """True when the block has the magic of ustar and GNU tars, whether or not its checksum holds."""
    return block[257:262] == b"ustar"


def padded(size: int) -> int:
    """`size` rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def parse_pax(data: bytes) -> dict[bytes, bytes]:
    """Keyword -> value of the records `LENGTH KEYWORD=VALUE\\n`, in time linear in their bytes; the last of a keyword
    counts. Only path, linkpath, size and the GNU.sparse family are kept. What follows a malformed record is left out.
    """
    records: dict[bytes, bytes] = {}
    position, size = 0, len(data)
    while position < size:
        blank = data.find(b" ", position, position + _LENGTH_DIGITS + 1)
        digits = data[position:blank] if blank > 0 else b""
        if not digits.isdigit():
            break
        end = position + int(digits)
        equals = data.find(b"=", blank + 1, end)
        if end > size or equals < 0:
            break
        keyword = data[blank + 1 : equals]
        if keyword in (b"path", b"linkpath", b"size") or keyword.startswith(b"GNU.sparse."):
            records[keyword] = data[equals + 1 : end - 1]
        position = end
    return records


def decimal(text: bytes) -> int | None:
    """A whole number of at most 20 digits; None for anything else."""
    text = text.strip()
    return int(text) if text.isdigit() and len(text) <= _LENGTH_DIGITS else None


def text_of(field: bytes) -> bytes:
    """A field up to its first NUL."""
    return _text(field)


def _text(field: bytes) -> bytes:
    end = field.find(b"\0")
    return field if end < 0 else field[:end]


def _number(field: bytes) -> int | None:
    """Octal digits, or base 256 for what they cannot hold."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") - (256 ** (len(field) - 1) if field[0] == 0xFF else 0)
    digits = _text(field).strip()
    if digits.translate(None, _OCTAL):
        return None
    return int(digits, 8) if digits else 0


def _checksum_holds(block: bytes) -> bool:
    """The sum of all bytes with the checksum's own field as blanks; some old tars summed signed bytes."""
    stored = _number(block[148:156])
    rest = block[:148] + block[156:]
    total = 256 + sum(rest)
    return stored == total or stored == total - 256 * sum(byte > 127 for byte in rest)
