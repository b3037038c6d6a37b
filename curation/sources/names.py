"""File and member names: what is an image by its name, what is hidden, and how odd names become valid UTF-8."""

from __future__ import annotations

import re

IMAGE_EXTENSIONS: tuple[str, ...] = (
    "avif", "bmp", "dib", "gif", "heic", "heif", "ico", "j2k", "jfif", "jp2", "jpe", "jpeg", "jpg", "jxl",
    "pbm", "pgm", "png", "pnm", "ppm", "svg", "tga", "tif", "tiff", "webp",
)  # fmt: skip
"""Extensions that make a file an input. Formats that are recognised and not decoded are listed too: their rows get
the reason `unsupported_format`, where an ignored file would get no row at all."""

_UNSAFE = re.compile(r"[\\\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|x[0-9a-f]{2}|u[0-9a-f]{4})")


def escape_name(name: str) -> str:
    r"""Make any name valid UTF-8, reversibly.

    A byte 0xNN that is not UTF-8 (Python reads it as the surrogate U+DCNN) becomes `\xNN`, any other lone surrogate
    `\uNNNN`, and a backslash `\\`. All other names are unchanged.
    """

    def escape(match: re.Match[str]) -> str:
        char = match[0]
        code = ord(char)
        if char == "\\":
            return "\\\\"
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"

    return _UNSAFE.sub(escape, name)


def unescape_name(name: str) -> str:
    """The inverse of `escape_name`."""

    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if code == "\\":
            return "\\"
        return chr(int(code[1:], 16) + (0xDC00 if code[0] == "x" else 0))

    return _ESCAPE.sub(unescape, name) if "\\" in name else name


def split_extension(name: str) -> tuple[str, str]:
    """Split at the last dot of the last path component: ('a/b.c', 'jpg') for 'a/b.c.JPG'.

    The extension is lower-case and without its dot; empty when there is none. '.jpg' has an empty stem.
    """
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.rpartition(".")
    if not dot:
        return name, ""
    return f"{folder}{slash}{stem}", extension.lower()


def webdataset_key(name: str) -> str:
    """The key by WebDataset's convention: the name up to the first dot of its last path component."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.partition('.')[0]}"


def is_hidden(component: str) -> bool:
    """True for one path component that tools, not people, put there: dotfiles and `__MACOSX`."""
    return component.startswith(".") or component == "__MACOSX"


def extension_label(name: str) -> str:
    """The key under which an ignored file is counted: '.txt', or '(other)' for what is no sane extension."""
    extension = split_extension(name)[1]
    return f".{extension}" if extension.isalnum() and len(extension) <= 10 else "(other)"
