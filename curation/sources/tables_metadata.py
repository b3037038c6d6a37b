"""Which metadata come with the rows of a table: its columns, and the folders `name=value` that it lies in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from curation.rights import is_opt_out_key
from curation.sources.base import SourceError
from curation.sources.leaves import Selection, select
from curation.sources.redact import redact_text
from curation.sources.tables import ParquetReader, require_column, sampled

log = logging.getLogger(__name__)

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What a source carries along.

    Attributes:
        wanted: names of columns, or None for all. Columns that may say an opt-out (`curation.rights.OPT_OUT_KEYS`)
            always come along.
        used: the column of the images or URLs, which is no metadata.
    """

    wanted: tuple[str, ...] | None
    used: str

    def select(self, reader: ParquetReader, uri: str) -> Selection:
        """The Parquet columns of one file. Wanted ones that it lacks are left out: files of one pool may differ."""
        wanted = self.wanted
        return select(reader.schema, None if wanted is None else [*wanted, *self.partitions(uri)], self.used)

    def carries(self, name: str) -> bool:
        """Whether a column is metadata, if it is not the one that is used."""
        return self.wanted is None or name in self.wanted or is_opt_out_key(name)

    def partitions(self, uri: str) -> dict[str, str]:
        """Values in the names of the folders, as Hive, Spark and pandas write them: `dt=2024-01-01/part-0.parquet`."""
        values: dict[str, str] = {}
        for component in uri.split("/")[:-1]:
            name, separator, value = component.partition("=")
            name = unquote(name)
            if separator and name and value != _NULL_PARTITION and self.carries(name):
                values[name] = unquote(value)
        return values


@dataclass(frozen=True, slots=True)
class Columns:
    """What one file has.

    Attributes:
        names: of its columns.
        binary: paths of values that are left out of the metadata because they are bytes.
        error: why it cannot be used, e.g. that it has no column of images.
    """

    names: Sequence[str]
    binary: Sequence[str] = ()
    error: SourceError | None = None


def check_columns(names: Sequence[str], metadata: TableMetadata, look: Callable[[str], Columns | None]) -> None:
    """Find the configured columns in some file, and say which columns are left out because they hold bytes.

    Looks at one file where that has them all, else at up to `CHECKED_FILES`: files of one pool may differ.

    Args:
        names: of the files.
        look: the columns of a file, or None when it has no rows to tell. May raise: what cannot be opened is passed
            over here, and has a row of its own in the listing.

    Raises:
        SourceError: a column is in none of the files.
    """
    unfit: SourceError | None = None
    lacking: tuple[str, Sequence[str]] | None = None
    missing = dict.fromkeys(metadata.wanted or ())
    fits = False
    for position in sampled(len(names)):
        name = names[position]
        try:
            columns = look(name)
        except Exception:  # noqa: BLE001, S112 - a broken file is accounted for by list_unit
            continue
        if columns is None:
            continue
        for column in (*columns.names, *metadata.partitions(name)):
            missing.pop(column, None)
        if missing and lacking is None:
            lacking = name, columns.names
        if columns.error is not None:
            unfit = unfit or columns.error
            continue
        if not fits:
            _tell(columns.binary, name)
        fits = True
        if not missing:
            return
    if unfit is not None and not fits:
        raise unfit
    if lacking is not None and missing:
        require_column(lacking[1], next(iter(missing)), "source.metadata_columns", lacking[0])


def _tell(binary: Sequence[str], name: str) -> None:
    if binary:
        shown = ", ".join(binary[:_SHOWN]) + (f" and {len(binary) - _SHOWN} more" if len(binary) > _SHOWN else "")
        log.warning(
            "%s: binary values are not carried as metadata: %s. Columns that are named in source.metadata_columns are "
            "carried whole.",
            name,
            redact_text(shown),
        )
