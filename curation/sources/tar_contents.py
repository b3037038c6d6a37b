"""What a scan of a tar found, and the metadata of its images: sidecars need not stand beside them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import IO, NamedTuple

from curation.records import Locator, record_id
from curation.sources.merged_metadata import MergedMetadata
from curation.sources.metadata import MAX_SIDECAR_BYTES
from curation.sources.metadata_tables import MetadataTable, ReadRange, plain_name, rows_of
from curation.sources.redact import describe
from curation.sources.sidecars import Sidecars
from curation.sources.tar_index import Damage, Member
from curation.sources.unused import Unused

BATCH = 256
"""Images whose rows of tables are held at the same time."""
MAX_HELD_BYTES = 64 << 20
"""Bytes of sidecars that are held for one tar; those beyond are read a second time."""

log = logging.getLogger(__name__)


class TarSidecar(NamedTuple):
    """Where a sidecar is, and its content as long as there is room to hold it."""

    offset: int
    size: int
    content: bytes | None


@dataclass(slots=True)
class TarContents:
    """What a scan found: images, sidecars and tables in order. Holds at most `MAX_HELD_BYTES` of sidecars: what is
    beyond is read again when it is needed."""

    uri: str
    extensions: Sequence[str]
    read: ReadRange
    images: list[Member] = field(default_factory=list)
    sidecars: list[tuple[str, TarSidecar]] = field(default_factory=list)
    tables: list[Member] = field(default_factory=list)
    damage: Damage | None = None
    unused: Unused = field(default_factory=Unused)
    held_bytes: int = 0
    name_bytes: int = 0

    def pass_over(self, name: str) -> None:
        self.unused.add(name, f"{self.uri}: {name}")

    def add_sidecar(self, item: Member, file: IO[bytes]) -> None:
        content = None
        if item.size <= min(MAX_SIDECAR_BYTES, MAX_HELD_BYTES - self.held_bytes):
            file.seek(item.offset)
            content = file.read(item.size)
            self.held_bytes += item.size
        self.sidecars.append((item.name, TarSidecar(item.offset, item.size, content)))

    def locators(self) -> Iterator[Locator]:
        sidecars = Sidecars((image.name for image in self.images), self.extensions, self.sidecars)
        metadata = MergedMetadata(self._bytes, attrgetter("size"), attrgetter("offset"))
        tables = self._read_tables()
        used: set[str] = set()
        read: set[int] = set()
        occurrences: dict[str, int] = {}
        for start in range(0, len(self.images), BATCH):
            batch = self.images[start : start + BATCH]
            rows = rows_of([image.name for image in batch], tables)
            for image in batch:
                number = occurrences[image.name] = occurrences.get(image.name, 0) + 1
                member = image.name if number == 1 else f"{image.name}#{number}"
                while member in used:
                    member += "#2"
                used.add(member)
                usable = image.problem is None
                levels = sidecars.of(image.name, number)
                read.update(item.offset for level in levels for item in level.values())
                yield Locator(
                    record_id(self.uri, member),
                    self.uri,
                    member,
                    offset=image.offset if usable else None,
                    size=image.size if usable else None,
                    metadata=metadata.of(levels, rows.get(image.name, ())),
                    problem=image.reason,
                    problem_detail=image.problem,
                )
        for name, item in self.sidecars:
            if item.offset not in read:
                self.pass_over(name)
        if self.damage is not None:
            yield Locator(
                record_id(self.uri, ""), self.uri, problem=self.damage.reason, problem_detail=self.damage.detail
            )

    def _bytes(self, item: TarSidecar) -> bytes | None:
        if item.content is not None:
            return item.content
        try:
            return self.read(item.offset, item.size)
        except OSError:
            return None

    def _read_tables(self) -> dict[str, list[MetadataTable]]:
        tables: dict[str, list[MetadataTable]] = {}
        for item in sorted(self.tables, key=lambda item: not item.name.lower().endswith(".jsonl")):

            def read(offset: int, size: int, start: int = item.offset) -> bytes:
                return self.read(start + offset, size)

            try:
                table = MetadataTable(f"{self.uri}: {item.name}", item.size, read)
            except Exception as error:  # noqa: BLE001 - the images stay
                log.warning("%s: %s cannot be read: %s", self.uri, item.name, describe(error))
            else:
                tables.setdefault(plain_name(item.name).rpartition("/")[0], []).append(table)
        return tables
