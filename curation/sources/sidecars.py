"""Which files beside an image belong to it, by their names: one rule for folders and for tars.

Of several files that have the same key of metadata, the first in this order counts; an opt-out counts wherever it is.

| order | for `s.rgb.jpg` | for `s.jpg` |
|---|---|---|
| 1. the whole name and an extension of `SIDECARS` | `s.rgb.jpg.json` | `s.jpg.json` |
| 2. the name without the image's extension | `s.rgb.json` | `s.json` |
| 3. that and a field | `s.rgb.meta.json` | `s.meta.json`, `s.seg.json` |
| 4. a shorter name that ends at a dot, which no image has, alone or with a field of small letters | \
`s.json`, `s.meta.json` | |
| 5. the rows of `metadata.jsonl`, then `metadata.csv`, whose `file_name` it is: its own folder's, then those above | \
`metadata.jsonl` | `metadata.jsonl` |

A file that is named after another image (`s.meta.json` beside `s.meta.jpg`) is that image's alone. Case matters in
names, not in extensions. Several images may share a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar

from curation.sources.names import split_extension, webdataset_key

SIDECARS = frozenset(
    ["json", "txt", "text", "caption", "transcript", "cls", "cls2", "index", "inx", "id", "url", "licence", "license"]
)
"""Extensions of files that hold metadata of one image."""

TABLES = ("metadata.jsonl", "metadata.csv")
"""Names of files that hold metadata of the images in a folder and its subfolders, as Hugging Face's imagefolder has
them."""

MAX_SIDECARS = 64
"""Files that one image takes its metadata from, at most."""

_MAX_DOTS = 8
_FIELD = re.compile(r"[a-z][a-z_]{0,31}")

T = TypeVar("T")


def is_table(name: str) -> bool:
    """True for the name of a `TABLES` file, in whatever folder."""
    return name.rpartition("/")[2].lower() in TABLES


def table_folders(name: str) -> Iterator[str]:
    """The folders whose tables may name this file, nearest first; '' is the root."""
    folder = name.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


def own_stems(name: str, extensions: Collection[str]) -> tuple[str, ...]:
    """The names that a sidecar may have before its extension to be this image's own, most exact first.

    A name whose last part is no image extension (`photo.jpg?w=300`, `photo.jpg_large`, `photo.jpg.1`) is an image by
    its content: what stands before is tried as well, with the image extension in it and without.
    """
    stem, extension = split_extension(name)
    if not extension:
        return (name,)
    if extension in extensions:
        return name, stem
    inner, inner_extension = split_extension(stem)
    if inner_extension in extensions:
        return name, stem, inner
    known = re.split(r"[^a-z0-9]", extension)[0]
    return (name, name[: len(stem) + 1 + len(known)], stem) if known in extensions else (name,)


class Sidecars(Generic[T]):
    """The sidecars of a folder or a tar, by stem and extension, and who owns them.

    Args:
        images: names of all images; a name that one of them has is never lent to another.
        extensions: image extensions, lower-case.
        sidecars: (name, value) of all files with an extension of `SIDECARS`, in order.
    """

    def __init__(self, images: Iterable[str], extensions: Collection[str], sidecars: Iterable[tuple[str, T]]) -> None:
        self._extensions = frozenset(extensions)
        self._files: dict[str, dict[str, list[T]]] = {}
        for name, value in sidecars:
            stem, extension = split_extension(name)
            self._files.setdefault(stem, {}).setdefault(extension, []).append(value)
        self._taken: set[str] = set()
        if self._files:
            for image in images:
                self._taken.update(own_stems(image, self._extensions))
        self._fields: dict[str, list[str]] = {}
        self._by_key: dict[str, list[str]] = {}
        for stem in sorted(self._files.keys() - self._taken):
            parent, field = split_extension(stem)
            if field and field not in self._extensions:
                self._fields.setdefault(parent, []).append(stem)
                self._by_key.setdefault(webdataset_key(stem), []).append(stem)

    def __bool__(self) -> bool:
        return bool(self._files)

    def all(self) -> Iterator[T]:
        """Every sidecar, whether it belongs to an image or not."""
        return (value for by_extension in self._files.values() for values in by_extension.values() for value in values)

    def of(self, image: str, number: int = 1) -> list[dict[str, T]]:
        """What belongs to an image: for each place in the order, label -> value. The label is the extension, after the
        field if there is one (`meta.json`).

        Args:
            number: which occurrence of this name it is, from 1; it gets the same occurrence of a repeated sidecar.
        """
        if not self._files:
            return []
        own = own_stems(image, self._extensions)
        stem, key = own[-1], webdataset_key(image)
        levels = [self._at(None, [name], number) for name in own if name in self._files]
        # A name without dots takes all that WebDataset would put into its sample.
        fields = self._by_key.get(key, []) if stem == key else self._fields.get(stem, [])
        levels.append(self._at(stem, fields, number))
        for _ in range(_MAX_DOTS):
            stem, field = split_extension(stem)
            if not field or stem in self._taken:
                break
            levels.append(self._at(None, [stem] if stem in self._files else [], number))
            lent = [name for name in self._fields.get(stem, []) if _FIELD.fullmatch(name, len(stem) + 1)]
            levels.append(self._at(stem, lent, number))
        return [level for level in levels if level]

    def _at(self, owner: str | None, stems: Iterable[str], number: int) -> dict[str, T]:
        found: dict[str, T] = {}
        for stem in stems:
            if len(found) >= MAX_SIDECARS:
                break
            prefix = "" if owner is None else f"{stem[len(owner) + 1 :]}."
            for extension, values in self._files[stem].items():
                found[prefix + extension] = values[min(number, len(values)) - 1]
        return found
