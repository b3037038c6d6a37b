"""Images in a folder and its subfolders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import Field, field_validator

from curation.reasons import Reason
from curation.records import Locator, Payload, record_id
from curation.sources.base import Source, SourceError, Unit
from curation.sources.failures import failure
from curation.sources.filesystem import Entry, Files, read_ahead
from curation.sources.metadata import MAX_SIDECAR_BYTES, normalise, sidecar_values
from curation.sources.names import IMAGE_EXTENSIONS, extension_label, split_extension
from curation.sources.redact import describe, redact_url
from curation.sources.storage import StorageConfig

UNIT_FILES = 10_000
SIDECARS = ("json", "txt")


class FolderConfig(StorageConfig):
    """An image folder, searched recursively."""

    kind: Literal["folder"] = "folder"
    extensions: tuple[str, ...] = Field(
        IMAGE_EXTENSIONS, description="file extensions that are inputs, any case; files with none are inputs as well"
    )

    @field_validator("extensions")
    @classmethod
    def _without_dots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(item.lower().lstrip(".") for item in value)


class FolderSource(Source):
    """Files with an image extension, and files with no extension (content-addressed pools), are inputs.

    `<stem>.json` (an object of metadata) and `<stem>.txt` (a caption) beside an image belong to it. Hidden files,
    `__MACOSX` and other extensions are ignored and counted. Links are followed; the uri is the relative path.
    """

    config: FolderConfig

    def __init__(self, config: FolderConfig) -> None:
        super().__init__(config)
        self.files = Files(config.path, config.storage_options)
        self._ignored: dict[str, int] = {}

    def units(self) -> list[Unit]:
        """Runs of at most 10,000 inputs with their sidecars, by name."""
        shown = redact_url(self.config.path)
        try:
            kind = self.files.kind()
            if kind is None:
                raise SourceError(f"source.path: {shown} does not exist. Give a folder of images.")
            if kind == "file":
                raise SourceError(
                    f"source.path: {shown} is a file, and kind folder needs a folder. For tars use "
                    "source.kind=webdataset, for Parquet files source.kind=parquet."
                )
            listing = self.files.walk()
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"source.path: {shown} cannot be listed: {describe(error)}") from error
        inputs, sidecars, ignored = self._sort_out(listing.entries)
        for entry in ignored:
            listing.skipped[extension_label(entry.name)] += 1
        self._ignored = dict(sorted(listing.skipped.items()))
        if not inputs:
            raise SourceError(
                f"source.path: {shown} holds no images. Seen and ignored: {self._ignored or 'nothing'}. "
                "Extensions are set by source.extensions; tars need source.kind=webdataset, Parquet files parquet."
            )
        units = []
        for start in range(0, len(inputs), UNIT_FILES):
            run = inputs[start : start + UNIT_FILES]
            entries = set(run)
            for entry in run:
                entries.update(sidecars.get(self._stem(entry.name), ()))
            ordered = sorted(entries, key=lambda entry: entry.name)
            units.append(Unit(run[0].name, tuple((entry.name, entry.size) for entry in ordered)))
        return units

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """One locator per image; its sidecars are read here."""
        inputs, sidecars, _ = self._sort_out([Entry(name, size) for name, size in unit.entries])
        owned = (sidecars.get(self._stem(entry.name), []) for entry in inputs)
        jobs = ((0, partial(self._metadata, found)) for found in owned)
        # Without sidecars nothing is read, and locally a thread costs more than the read.
        run = read_ahead(jobs, 16) if sidecars and not self.files.local else (job() for _, job in jobs)
        for entry, metadata in zip(inputs, run, strict=True):
            yield Locator(
                record_id(entry.name, ""),
                entry.name,
                offset=0 if entry.size is not None else None,
                size=entry.size,
                metadata=metadata,
            )

    def read(self, locators: Sequence[Locator]) -> Iterator[Payload]:
        """Whole files; remote ones are read ahead in parallel."""
        if self.files.local:
            yield from map(self._read_one, locators)
        else:
            cap = self.config.max_bytes
            yield from read_ahead((min(item.size or 0, cap), partial(self._read_one, item)) for item in locators)

    def ignored(self) -> dict[str, int]:
        """Extension, '(hidden)', '(not a file)' or '(repeated folder)' -> number."""
        return dict(self._ignored)

    def _read_one(self, locator: Locator) -> Payload:
        try:
            data = self.files.read(locator.uri, self.config.max_bytes)
        except Exception as error:  # noqa: BLE001 - any failure of one file is that row's reason
            return failure(error)
        return Payload(data) if data else Payload(None, Reason.EMPTY, "the file has zero bytes")

    def _stem(self, name: str) -> str:
        """The name without its image extension; the whole name when it has none."""
        stem, extension = split_extension(name)
        return stem if extension in self.config.extensions else name

    def _sort_out(self, entries: Sequence[Entry]) -> tuple[list[Entry], dict[str, list[Entry]], list[Entry]]:
        """Inputs in order, sidecars by the stem of their image, and the rest."""
        inputs: list[Entry] = []
        others: list[Entry] = []
        for entry in entries:
            extension = split_extension(entry.name)[1]
            (inputs if not extension or extension in self.config.extensions else others).append(entry)
        stems = {self._stem(entry.name) for entry in inputs}
        sidecars: dict[str, list[Entry]] = {}
        ignored = []
        for entry in others:
            stem, extension = split_extension(entry.name)
            if extension in SIDECARS and stem in stems:
                sidecars.setdefault(stem, []).append(entry)
            else:
                ignored.append(entry)
        return inputs, sidecars, ignored

    def _metadata(self, sidecars: Sequence[Entry]) -> str | None:
        if not sidecars:
            return None
        contents: dict[str, Any] = {}
        for entry in sidecars:
            try:
                contents[split_extension(entry.name)[1]] = self.files.read(entry.name, MAX_SIDECAR_BYTES)
            except Exception:  # noqa: BLE001 - an unreadable sidecar is named in the metadata, the image stays
                contents[split_extension(entry.name)[1]] = None
        return normalise(sidecar_values(contents))
