"""What a source of images is: it lists its inputs once, and reads the bytes of any of them again later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from curation.config import Config, fingerprint
from curation.records import Locator, Payload
from curation.sources.unused import Unused

READ_COLUMNS: dict[str, pa.DataType] = {
    "http_status": pa.int16(),
    "final_url": pa.string(),
    "read_attempts": pa.int16(),
    "read_error": pa.string(),
}
"""Ledger columns that reading fills in (`Payload.columns`); null where they do not apply."""


class SourceConfig(Config):
    """What every source's configuration has. `kind` names the implementation."""

    kind: str

    tuning_fields: ClassVar[frozenset[str]] = frozenset({"storage_options"})
    """Fields that say how a source is read, not which inputs it has; they may change inside a run."""

    def identity_fields(self) -> frozenset[str]:
        """Fields that fix which inputs there are."""
        return frozenset(type(self).model_fields) - self.tuning_fields


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a source that is listed by one task: one container, or a run of plain files.

    Attributes:
        name: shown in messages and progress.
        entries: (uri relative to the root, bytes or None when unknown), in source order.
    """

    name: str
    entries: tuple[tuple[str, int | None], ...]


class Source(ABC):
    """Base of all sources. Picklable; opened connections live in the worker only.

    Listing is in two steps so that it scales: `units()` is cheap and runs on the driver, `list_unit()` may read a
    whole tar's headers and runs in workers. Both are deterministic and sorted.
    """

    fetches: ClassVar[bool] = False
    """True when the bytes come from a place that may answer differently next time (URLs): the pipeline then reads
    each input once and keeps what it got."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def units(self) -> list[Unit]:
        """All units, sorted by name.

        Raises:
            SourceError: the path does not exist, holds nothing usable, or cannot be accessed.
        """

    @abstractmethod
    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """The inputs of a unit, in order. A broken container gives one locator with `problem` set; never raises
        because of what the container holds."""

    @abstractmethod
    def read(self, locators: Sequence[Locator]) -> Iterator[Payload]:
        """The bytes of each locator, in the same order, one payload each. Never raises because of one input.

        Locators of one call are neighbours in source order, so containers are opened once. Lazy: holds few payloads
        at a time.
        """

    def ignored(self) -> dict[str, int]:
        """Files that were seen and are not inputs, counted by extension; filled in by `units()`."""
        return {}

    def ignored_examples(self) -> list[str]:
        """Names of a few of the ignored files; filled in by `units()`."""
        return []

    def ignored_in_unit(self) -> Unused:
        """What the last `list_unit` of this object passed over inside its containers; complete when it has ended."""
        return Unused()

    @staticmethod
    def fingerprint(units: Sequence[Unit]) -> str:
        """Identity of the listing: names and sizes of all files."""
        return fingerprint([unit.entries for unit in units])


class SourceError(RuntimeError):
    """A source cannot be used at all. The message says what was given, what is allowed and how to fix it."""
