"""The feature table: what identifies a picture without its pixels.

A corpus exports one beside each shard, so that a later run can leave out what is there already, and a reference (an
evaluation set, a block list) may be given as one. One row per picture:

    id               string; for a table of a user's without ids: the number of the row
    sha256           string, 64 hex characters, of the encoded bytes; nullable, like all that follow
    phash            uint64, `curation.scorers.screen`
    phash_mirrored   uint64, the same hash of the mirrored picture
    phash_degenerate bool, the hash says nothing; where it is not stated, the number of set bits decides
    embedding        list<float16>, all of one length; only its direction counts

The schema metadata hold, under `populace`, a JSON object: stage ("screen", "embedding") -> fingerprint of what measured
the columns. Without a fingerprint whoever made the table vouches that hashes and embeddings are comparable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.feature_columns import COLUMNS, BadValueError
from curation.parquet_files import open_parquet, parquet_writer
from curation.sources.base import SourceError
from curation.sources.filesystem import Files
from curation.sources.redact import describe, redact_url
from curation.sources.tables import PARQUET_SUFFIXES

FEATURE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("sha256", pa.string()),
        pa.field("phash", pa.uint64()),
        pa.field("phash_mirrored", pa.uint64()),
        pa.field("phash_degenerate", pa.bool_()),
        pa.field("embedding", pa.list_(pa.float16())),
    ]
)
FORMAT = 1
"""Raised when the same features would give another table: finished exports are then written anew."""

META_KEY = b"populace"
FEATURE_STAGES = ("screen", "embedding")
"""Stages whose fingerprints say whether two tables can be compared. The SHA-256 needs none."""

_BATCH = 16_384


class FeatureError(ValueError):
    """A feature table cannot be used. The message says what was given, what is allowed and how to fix it."""


def feature_schema(fingerprints: Mapping[str, str]) -> pa.Schema:
    """`FEATURE_SCHEMA` that states which stages measured the columns: stage -> fingerprint."""
    stated = {stage: fingerprints[stage] for stage in FEATURE_STAGES if stage in fingerprints}
    return FEATURE_SCHEMA.with_metadata({META_KEY: json.dumps(stated, sort_keys=True).encode()})


def stated_fingerprints(schema: pa.Schema) -> dict[str, str]:
    """Stage -> fingerprint, as a table states it; {} where it states nothing that can be read."""
    try:
        stated = json.loads((schema.metadata or {}).get(META_KEY, b"{}"))
    except ValueError:
        return {}
    if not isinstance(stated, dict):
        return {}
    return {stage: str(stated[stage]) for stage in FEATURE_STAGES if stated.get(stage)}


def feature_writer(file: IO[bytes], fingerprints: Mapping[str, str]) -> pq.ParquetWriter:
    """Writes `FEATURE_SCHEMA` tables; the same tables in the same order give the same bytes."""
    # No column repeats its values enough for a dictionary, and embeddings would build a large one for nothing.
    return parquet_writer(file, feature_schema(fingerprints), dictionary=False)


def as_features(table: pa.Table, shown: str, first_row: int = 0) -> pa.Table:
    """Any table as `FEATURE_SCHEMA`: missing columns are null, unknown ones left out, other types converted.

    Args:
        table: columns of the types that `curation.feature_columns.COLUMNS` lists.
        shown: what messages call it.
        first_row: number of its first row, for ids and messages.

    Raises:
        FeatureError: a column has another type, or a value that it cannot have.
    """
    arrays = []
    for field in FEATURE_SCHEMA:
        if field.name not in table.column_names or pa.types.is_null(table.schema.field(field.name).type):
            arrays.append(pa.nulls(len(table), field.type))
            continue
        column = table.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not COLUMNS[field.name].allows(column.type):
            raise FeatureError(_wrong_type(shown, field.name, column.type))
        chunks = column.combine_chunks()
        array = pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks
        try:
            arrays.append(COLUMNS[field.name].convert(array))
        except BadValueError as error:
            raise FeatureError(f"{shown}, row {first_row + error.row}: {field.name} {error.what}") from None
    numbers = pa.array(np.arange(first_row, first_row + len(table)), pa.int64()).cast(pa.string())
    arrays[0] = pc.fill_null(arrays[0], numbers) if arrays[0].null_count else arrays[0]
    return pa.Table.from_arrays(arrays, schema=FEATURE_SCHEMA)


@dataclass(frozen=True)
class FeatureFiles:
    """A feature table on disk: one Parquet file, or a folder of them in order of their names.

    Attributes:
        shown: its path without credentials.
        names: of the files, relative to the path.
        rows: of each file.
        fingerprints: what the files state; they must agree.
    """

    files: Files
    shown: str
    names: tuple[str, ...]
    rows: tuple[int, ...]
    fingerprints: Mapping[str, str]
    columns: frozenset[str]

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return sum(self.rows)

    def read(self) -> pa.Table:
        """All rows, with `feature_schema(fingerprints)`.

        Raises:
            FeatureError: a value that its column cannot have, or embeddings of two lengths.
        """
        tables = list(self._read())
        schema = feature_schema(self.fingerprints)
        return pa.concat_tables([FEATURE_SCHEMA.empty_table(), *tables]).combine_chunks().cast(schema)

    def _read(self) -> Iterator[pa.Table]:
        width: int | None = None
        first = 0
        for name in self.names:
            shown = f"{self.shown}/{name}" if name else self.shown
            with _opened(self.files, name, shown) as parquet:
                wanted = [column for column in FEATURE_SCHEMA.names if column in parquet.schema_arrow.names]
                at = 0
                for batch in parquet.iter_batches(_BATCH, columns=wanted):
                    table = as_features(pa.Table.from_batches([batch]), shown, first + at)
                    found = embedding_width(table)
                    if found is not None and width is not None and found != width:
                        raise FeatureError(
                            f"{shown}: embeddings of {found} values after embeddings of {width}; all must be of one "
                            "length: split the table by the model that made them."
                        )
                    width = width or found
                    at += len(table)
                    yield table
            first += at


def find_features(path: str, options: Mapping[str, Any] | None = None) -> FeatureFiles:
    """Look at a feature table without reading its rows.

    Args:
        path: a Parquet file, or a folder with Parquet files; local or an fsspec URL.
        options: fsspec options.

    Raises:
        FeatureError: nothing there, not Parquet, none of the columns, a column of a wrong type, or files that state
            different fingerprints.
    """
    shown = redact_url(path)
    try:
        files = Files(path, options or {})
        kind = files.kind()
        names = [""]
        if kind == "directory":
            names = [entry.name for entry in files.walk().entries if entry.name.lower().endswith(PARQUET_SUFFIXES)]
    except (OSError, SourceError) as error:
        raise FeatureError(f"the feature table {shown} cannot be opened: {describe(error)}") from error
    if kind is None or not names:
        what = "does not exist" if kind is None else "is a folder without Parquet files"
        raise FeatureError(
            f"the feature table {shown} {what}. Give a Parquet file, or a folder of them, with some of the columns "
            f"{', '.join(FEATURE_SCHEMA.names)}; shards/features of a finished run is one."
        )
    rows: list[int] = []
    columns: set[str] = set()
    fingerprints: dict[str, str] = {}
    for name in names:
        label = f"{shown}/{name}" if name else shown
        with _opened(files, name, label) as parquet:
            rows.append(parquet.metadata.num_rows)
            schema = parquet.schema_arrow
        columns |= _check_schema(schema, label)
        for stage, value in stated_fingerprints(schema).items():
            if fingerprints.setdefault(stage, value) != value:
                raise FeatureError(
                    f"{label} was measured by another {stage} stage than the files before it: their columns cannot be "
                    "compared. Put them into two tables, or measure all of them with one configuration."
                )
    return FeatureFiles(files, shown, tuple(names), tuple(rows), fingerprints, frozenset(columns))


def read_features(path: str, options: Mapping[str, Any] | None = None) -> pa.Table:
    """A whole feature table, `FEATURE_SCHEMA`; see `find_features` and `FeatureFiles.read`."""
    return find_features(path, options).read()


def embedding_width(table: pa.Table) -> int | None:
    """Values of an embedding; None when no row has one."""
    lengths = pc.max(pc.list_value_length(table.column("embedding"))).as_py()
    return None if lengths is None else int(lengths)


def check_fingerprints(
    stated: Mapping[str, str], measured: Mapping[str, str], stages: Sequence[str], shown: str, how: Mapping[str, str]
) -> None:
    """Raise unless a table's columns can be compared with a run's, as far as the table states what measured them.

    Args:
        stated, measured: stage -> fingerprint, of the table and of the run.
        stages: those whose columns will be compared.
        how: stage -> what to do about it.

    Raises:
        FeatureError: a stated fingerprint is not the run's.
    """
    for stage in stages:
        if stage in stated and stated[stage] != measured.get(stage):
            column = "perceptual hashes" if stage == "screen" else "embeddings"
            raise FeatureError(
                f"{shown} holds {column} of another model or configuration (fingerprint {stated[stage]}) than this run "
                f"measures ({measured.get(stage)}): distances between them mean nothing. {how[stage]}"
            )


class _opened:  # noqa: N801 - used like a function
    def __init__(self, files: Files, name: str, shown: str) -> None:
        self._file: IO[bytes] | None = None
        try:
            self._file = files.open(name)
            self._parquet = open_parquet(self._file)
        except (OSError, pa.ArrowException) as error:
            if self._file is not None:
                self._file.close()
            raise FeatureError(f"{shown} cannot be read as Parquet: {describe(error)}") from error
        self._shown = shown

    def __enter__(self) -> pq.ParquetFile:
        return self._parquet

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        assert self._file is not None
        self._file.close()
        if isinstance(error, OSError | pa.ArrowException):
            raise FeatureError(f"{self._shown} is damaged: {describe(error)}") from error


def _check_schema(schema: pa.Schema, shown: str) -> set[str]:
    found = {name for name in FEATURE_SCHEMA.names if name in schema.names}
    for name in found:
        type_ = schema.field(name).type
        type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
        if not pa.types.is_null(type_) and not COLUMNS[name].allows(type_):
            raise FeatureError(_wrong_type(shown, name, type_))
    if not found & {"sha256", "phash", "embedding"}:
        raise FeatureError(
            f"{shown} has none of the columns sha256, phash, embedding; its columns are {', '.join(schema.names)}. "
            "Name the columns so."
        )
    return found


def _wrong_type(shown: str, name: str, type_: pa.DataType) -> str:
    return f"{shown}: the column {name} is {type_}; allowed: {COLUMNS[name].allowed}"
