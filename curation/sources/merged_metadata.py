"""The metadata of images from their sidecars, with bounds: what many images share is read and cut down once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from curation.sources.metadata import (
    MAX_METADATA_BYTES,
    MAX_SIDECAR_BYTES,
    SidecarContent,
    reduced,
    sidecar_metadata,
)

MAX_MERGED_BYTES = 4 * MAX_METADATA_BYTES
"""Bytes of sidecars that one image takes its metadata from, each counted at most as the cap of metadata; those beyond
count as unreadable."""

_MAX_CACHED = 64

T = TypeVar("T")


class MergedMetadata(Generic[T]):
    """Merges sidecars of type T. Threads may share it.

    Args:
        read: the content of a sidecar of at most `MAX_SIDECAR_BYTES`; None when it cannot be read.
        size: its bytes, None when unknown.
        key: what tells it from others.
    """

    def __init__(
        self, read: Callable[[T], bytes | None], size: Callable[[T], int | None], key: Callable[[T], Hashable]
    ) -> None:
        self._read = read
        self._size = size
        self._key = key
        self._texts: dict[Hashable, str | None] = {}
        self._reduced: dict[Hashable, SidecarContent] = {}

    def of(self, levels: Sequence[Mapping[str, T]], rows: Sequence[Mapping[str, Any]] = ()) -> str | None:
        """`Locator.metadata` of an image.

        Args:
            levels: its sidecars (`curation.sources.sidecars.Sidecars.of`).
            rows: its rows of tables.
        """
        key = tuple((label, self._key(item)) for level in levels for label, item in level.items())
        if not key or rows:
            return sidecar_metadata(self._contents(levels), rows)
        if key in (texts := self._texts):
            return texts[key]
        text = sidecar_metadata(self._contents(levels))
        if len(texts) >= _MAX_CACHED:
            texts = self._texts = {}
        texts[key] = text
        return text

    def _contents(self, levels: Sequence[Mapping[str, T]]) -> list[dict[str, SidecarContent]]:
        found: list[dict[str, SidecarContent]] = []
        room = MAX_MERGED_BYTES
        for level in levels:
            contents: dict[str, SidecarContent] = {}
            for label, item in level.items():
                cost = min(self._size(item) or 0, MAX_METADATA_BYTES)
                contents[label] = self._content(label, item) if cost <= room else None
                room -= cost
            found.append(contents)
        return found

    def _content(self, label: str, item: T) -> SidecarContent:
        size = self._size(item)
        if size is not None and size > MAX_SIDECAR_BYTES:
            return None
        if size is not None and size <= MAX_METADATA_BYTES:
            return self._read(item)
        key = label, self._key(item)
        if key in (known := self._reduced):
            return known[key]
        data = self._read(item)
        content = None if data is None else reduced(label, data)
        if len(known) >= _MAX_CACHED:
            known = self._reduced = {}
        known[key] = content
        return content
