"""Images in a folder and its subfolders."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Literal

from pydantic import Field, field_validator

from curation.reasons import Reason
from curation.records import Locator, Payload, record_id
from curation.sources.base import Source, SourceError, Unit
from curation.sources.failures import failure
from curation.sources.filesystem import Entry, Files, read_ahead
from curation.sources.merged_metadata import MergedMetadata
from curation.sources.metadata import MAX_SIDECAR_BYTES
from curation.sources.metadata_tables import MetadataTable, cached_table, rows_of
from curation.sources.names import IMAGE_EXTENSIONS, split_extension
from curation.sources.redact import describe, redact_url
from curation.sources.sidecars import SIDECARS, Sidecars, is_table, table_folders
from curation.sources.storage import StorageConfig
from curation.sources.unused import Unused

UNIT_FILES = 10_000
BATCH = 256
"""Images whose rows of tables are held at the same time."""

log = logging.getLogger(__name__)


class FolderConfig(StorageConfig):
    """An image folder, searched recursively."""

    kind: Literal["folder"] = "folder"
    extensions: tuple[str, ...] = Field(
        IMAGE_EXTENSIONS, description="file extensions that are inputs, any case; files with none are inputs as well"
    )
    sniff: bool = Field(
        False,
        description="take files of every other extension for inputs too (photo.jpg?w=300, photo.jpg_large, "
        "photo.jpg.1), so that their content decides; sidecars stay sidecars",
    )

    @field_validator("extensions")
    @classmethod
    def _without_dots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(item.lower().lstrip(".") for item in value)


class FolderSource(Source):
    """Files with an image extension, and files with no extension (content-addressed pools), are inputs.

    Sidecars beside an image and `metadata.jsonl` or `metadata.csv` in its folder or one above become its metadata, by
    the rules of `curation.sources.sidecars`. Hidden files, `__MACOSX`, sidecars without an image and other extensions
    are ignored and counted; with `sniff` the files of other extensions are inputs too, and those that are no images get
    a row with reason not_an_image. Links are followed; the uri is the relative path.
    """

    config: FolderConfig

    def __init__(self, config: FolderConfig) -> None:
        super().__init__(config)
        self.files = Files(config.path, config.storage_options)
        self._unused = Unused()

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
        found = self._sort_out(listing.entries)
        inputs = found.inputs
        units, used = self._in_units(found)
        unused = [*found.rest, *(entry for entry in found.sidecars.all() if entry.name not in used)]
        unused += [entry for entry in found.tables if entry.name not in used]
        self._unused = Unused(listing.skipped)
        for name in sorted(entry.name for entry in unused):
            self._unused.add(name)
        if not inputs:
            raise SourceError(
                f"source.path: {shown} holds no images. Seen and ignored: {self.ignored() or 'nothing'}. "
                "Extensions are set by source.extensions, and source.sniff=true takes every file for an image that "
                "has the content of one; tars need source.kind=webdataset, Parquet files parquet."
            )
        return units

    def _in_units(self, found: _Sorted) -> tuple[list[Unit], set[str]]:
        """The units, and the names of all sidecars and tables in them."""
        tables: dict[str, list[Entry]] = {}
        for entry in found.tables:
            tables.setdefault(entry.name.rpartition("/")[0], []).append(entry)
        units, used = [], set[str]()
        for start in range(0, len(found.inputs), UNIT_FILES):
            run = found.inputs[start : start + UNIT_FILES]
            others: set[Entry] = set()
            for entry in run if found.sidecars else ():
                for level in found.sidecars.of(entry.name):
                    others.update(level.values())
            if tables:
                folders = {
                    folder
                    for name in {entry.name.rpartition("/")[0] for entry in run}
                    for folder in table_folders(f"{name}/")
                }
                others.update(entry for folder in folders for entry in tables.get(folder, ()))
            used.update(entry.name for entry in others)
            ordered = sorted([*run, *others], key=lambda entry: entry.name)
            units.append(Unit(run[0].name, tuple((entry.name, entry.size) for entry in ordered)))
        return units, used

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """One locator per image; its sidecars are read here."""
        found = self._sort_out([Entry(name, size) for name, size in unit.entries])
        tables = self._tables(found.tables)
        metadata_of = MergedMetadata(self._content, attrgetter("size"), attrgetter("name")).of
        for start in range(0, len(found.inputs), BATCH):
            batch = found.inputs[start : start + BATCH]
            rows = rows_of([entry.name for entry in batch], tables)
            jobs = (
                (0, partial(metadata_of, found.sidecars.of(entry.name), rows.get(entry.name, ()))) for entry in batch
            )
            # Without sidecars nothing is read, and locally a thread costs more than the read.
            remote = bool(found.sidecars) and not self.files.local
            run = read_ahead(jobs, 16) if remote else (job() for _, job in jobs)
            for entry, metadata in zip(batch, run, strict=True):
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
        return dict(sorted(self._unused.counts.items()))

    def ignored_examples(self) -> list[str]:
        """Names of some of them."""
        return list(self._unused.examples)

    def _read_one(self, locator: Locator) -> Payload:
        try:
            data = self.files.read(locator.uri, self.config.max_bytes)
        except Exception as error:  # noqa: BLE001 - any failure of one file is that row's reason
            return failure(error)
        return Payload(data) if data else Payload(None, Reason.EMPTY, "the file has zero bytes")

    def _sort_out(self, entries: Sequence[Entry]) -> _Sorted:
        """Inputs in order, their sidecars and tables, and the rest."""
        inputs: list[Entry] = []
        sidecars: list[tuple[str, Entry]] = []
        tables: list[Entry] = []
        rest: list[Entry] = []
        for entry in entries:
            extension = split_extension(entry.name)[1]
            if not extension or extension in self.config.extensions:
                inputs.append(entry)
            elif is_table(entry.name):
                tables.append(entry)
            elif extension in SIDECARS:
                sidecars.append((entry.name, entry))
            else:
                (inputs if self.config.sniff else rest).append(entry)
        names = (entry.name for entry in inputs)
        return _Sorted(inputs, Sidecars(names, self.config.extensions, sidecars), tables, rest)

    def _tables(self, entries: Sequence[Entry]) -> dict[str, list[MetadataTable]]:
        """The tables of each folder, those that can be read."""
        tables: dict[str, list[MetadataTable]] = {}
        for entry in sorted(entries, key=lambda entry: not entry.name.lower().endswith(".jsonl")):
            try:
                table = cached_table(self.files, entry.name)
            except Exception as error:  # noqa: BLE001 - the images stay
                log.warning("%s cannot be read, and says nothing of its images: %s", entry.name, describe(error))
            else:
                tables.setdefault(entry.name.rpartition("/")[0], []).append(table)
        return tables

    def _content(self, entry: Entry) -> bytes | None:
        try:
            return self.files.read(entry.name, MAX_SIDECAR_BYTES)
        except Exception:  # noqa: BLE001 - an unreadable sidecar is named in the metadata, the image stays
            return None


@dataclass(frozen=True, slots=True)
class _Sorted:
    inputs: list[Entry]
    sidecars: Sidecars[Entry]
    tables: list[Entry]
    rest: list[Entry]
