"""What foreign bytes are, said without quoting them: a file that should not have been read leaves nothing in a log."""

from __future__ import annotations

import codecs
import re

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ\x00", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"%PDF-", "a PDF"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the file itself"),
    (0, b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (0, b"FLV\x01", "a Flash video"),
    (0, b"\x00\x00\x01\xba", "an MPEG video"),
    (0, b"OggS", "an Ogg file"),
    (0, b"ID3", "an MP3 file"),
    (0, b"fLaC", "a FLAC file"),
    (4, b"ftyp", "an MP4 or QuickTime file"),
    (257, b"ustar", "a tar"),
)
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_LOOKED_AT = 1024


def kind_of_content(data: bytes) -> str:
    """Names the kind of `data` by its first 1,024 bytes: 'an HTML page', 'a PDF', 'text', 'binary data', ...

    The answer is one of a closed list, so it never holds a byte of what it describes.
    """
    head = data[:_LOOKED_AT]
    for offset, magic, name in _MAGIC:
        if head.startswith(magic, offset):
            return name
    if _HTML.match(head):
        return "an HTML page"
    if not head.strip(b"\0"):
        return "zero bytes only" if head else "nothing"
    if _BINARY.search(head):
        return "binary data"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return "text" if 2 * sum(byte > 127 for byte in head) < len(head) else "binary data"
    return "text"
