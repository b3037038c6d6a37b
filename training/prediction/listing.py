"""Which files a source of pictures has, in which order, and what their pictures are called."""

from __future__ import annotations

import codecs
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from curation.sources.filesystem import Files
from curation.sources.names import IMAGE_EXTENSIONS, unescape_name

VIDEO_EXTENSIONS = ("mp4", "m4v", "mov", "avi", "mkv", "webm", "mpg", "mpeg", "wmv", "mjpg", "mjpeg")

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class ListedFile:
    """A picture or a video.

    Attributes:
        path: where it lies.
        relative: below the root of the source, with "/" and its extension: what box files call it.
        name: of its outputs; of a video, the folder of its frames'.
    """

    path: Path
    relative: str
    name: str

    @property
    def is_video(self) -> bool:
        """By its extension."""
        return is_video(self.path)


def is_video(path: Path) -> bool:
    """Whether a file is called as a video is."""
    return _extension(path.name) in VIDEO_EXTENSIONS


def folder_files(folder: Path) -> list[ListedFile]:
    """Pictures and videos of a folder and its subfolders, by path; linked folders are followed once, as in curation.

    Raises:
        ValueError: there is none, or a folder cannot be read.
    """
    try:
        listing = Files(str(folder), {}).walk()
    except OSError as error:
        raise ValueError(f"input {folder} cannot be read: {error}: give a folder that can be") from None
    names = [unescape_name(entry.name) for entry in listing.entries]
    kept = sorted(
        (name for name in names if _extension(name) in (*IMAGE_EXTENSIONS, *VIDEO_EXTENSIONS)),
        key=lambda name: name.split("/"),
    )
    if not kept:
        ignored = Counter(_extension(name) or "(none)" for name in names)
        seen = ", ".join(f"{count:,} {extension}" for extension, count in ignored.most_common(8)) or "nothing"
        raise ValueError(
            f"input {folder} holds no pictures (extensions {', '.join(IMAGE_EXTENSIONS)}), no videos (extensions "
            f"{', '.join(VIDEO_EXTENSIONS)}) and no manifest.json of exported shards; seen, by extension: {seen}"
        )
    return _named([(folder / name, name) for name in kept])


def given_files(paths: Iterable[Path]) -> list[ListedFile]:
    """Files that are named one by one, in their order; twice the same path is one picture.

    Raises:
        ValueError: there is none.
    """
    files = list(dict.fromkeys(Path(os.path.abspath(path)) for path in paths))
    if not files:
        raise ValueError("the list of pictures is empty: give at least one path")
    root = Path(os.path.commonpath([file.parent for file in files]))
    return _named([(file, file.relative_to(root).as_posix()) for file in files])


def list_file(path: Path) -> list[ListedFile]:
    """The files of a .txt list: a path on each line, relative to the list. UTF-8, or what its byte order mark says.

    Bytes that are not UTF-8 are a name of the file system as they are.

    Raises:
        ValueError: no text, or no path in it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"input {path} cannot be read: {error.strerror}: give a list that can be") from None
    try:
        lines = _text(data).split("\n")
    except UnicodeError as error:
        raise ValueError(f"input {path} is no list in UTF-8 or UTF-16 ({error}): save it as UTF-8") from None
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise ValueError(f"input {path} is empty: give a list with a path on each line")
    if any("\0" in line for line in found):
        raise ValueError(f"input {path} holds NUL characters, and is no list of paths: save it as UTF-8")
    return given_files(path.parent / line for line in found)


def _text(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding)
    if len(data) % 2 == 0 and 3 * data.count(0) > len(data):  # UTF-16 without its mark: Latin letters are half zeros
        little = data[1::2].count(0) >= data[::2].count(0)
        return data.decode("utf-16-le" if little else "utf-16-be")
    return data.decode("utf-8", "surrogateescape")


def _extension(name: str) -> str:
    return PurePosixPath(name).suffix.lower().lstrip(".")


def _named(files: list[tuple[Path, str]]) -> list[ListedFile]:
    """Without extensions, but for files that would share a name, or whose name is the folder of another."""
    short = [str(PurePosixPath(relative).with_suffix("")) for _, relative in files]
    count = Counter(short)
    folders = {str(parent) for _, relative in files for parent in PurePosixPath(relative).parents}
    names = [
        relative if count[name] > 1 or (name in folders and is_video(path)) else name
        for (path, relative), name in zip(files, short, strict=True)
    ]
    if len(set(names)) < len(names):  # a.jpg, a.png and a.jpg.png
        names = [relative for _, relative in files]
    return [ListedFile(path, relative, name) for (path, relative), name in zip(files, names, strict=True)]
