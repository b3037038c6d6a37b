"""Earlier corpora (`select.against`): what is there already is dropped, so that a corpus grows by increments.

Their rows take part in the search for duplicates through the feature tables that were exported beside their shards.
All rows of all corpora have canonical numbers 0..N-1, in the order of the manifests, their shards, and the rows of a
shard; among the rows of a run they are -1 - number. Nothing is read whole: a map task reads one feature file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.config import fingerprint
from curation.features import FEATURE_SCHEMA, as_features, check_fingerprints, stated_fingerprints
from curation.manifest import MANIFEST_NAME, parse_manifest
from curation.merging import Corpus, corpora_of, join_corpora
from curation.parquet_files import open_parquet
from curation.sources.base import SourceError
from curation.sources.filesystem import Files
from curation.sources.redact import describe, redact_url
from curation.sources.storage import absolute
from pipeline.stages import StageSet
from pipeline.storage import UNREADABLE, DamagedFileError, Storage

Indices = npt.NDArray[np.int64]

_HOW = {
    "screen": "Run the earlier corpus's configuration again with this version and configuration of the screen and of "
    "decode (its shards are written again), or set select.near_duplicates to null.",
    "embedding": "Use the embedding scorer that the earlier corpus was made with, or run that corpus again with this "
    "one, or set select.semantic_duplicates to null.",
}


class CorpusError(ValueError):
    """An earlier corpus cannot be used. The message says what was given, what is allowed and how to fix it."""


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """The feature table of one shard of an earlier corpus.

    Attributes:
        corpus: name of the corpus.
        location: path or URL, absolute.
        first: canonical number of its first row.
        rows: number of rows.
        fingerprints: stage -> what measured it, as the corpus's manifest says.
        bytes, sha256: of the file, as the corpus's manifest says.
    """

    corpus: str
    location: str
    first: int
    rows: int
    fingerprints: tuple[tuple[str, str], ...]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Corpora:
    """All earlier corpora. Picklable; about 300 bytes a shard.

    Attributes:
        corpora: each once.
        files: in canonical order.
    """

    corpora: tuple[Corpus, ...] = ()
    files: tuple[CorpusFile, ...] = ()

    @property
    def rows(self) -> int:
        """N, the rows of all corpora."""
        return self.files[-1].first + self.files[-1].rows if self.files else 0

    @property
    def fingerprint(self) -> str:
        """Identity of what they hold: the SHA-256 of their manifests, in order, with their names."""
        return fingerprint([(corpus.name, corpus.manifest_sha256) for corpus in self.corpora])

    @cached_property
    def _first(self) -> Indices:
        return np.array([file.first for file in self.files], dtype=np.int64)

    def read(self, index: int) -> pa.Table:
        """A feature file: `row` (-1 - number, int64), then `FEATURE_SCHEMA`.

        Args:
            index: position in `files`.

        Raises:
            DamagedFileError: it is gone, or is not what its manifest says.
        """
        file = self.files[index]
        numbers = np.arange(file.first, file.first + file.rows, dtype=np.int64)
        return read_corpus_features(file).add_column(0, "row", pa.array(-1 - numbers))

    def row_names(self, numbers: npt.ArrayLike) -> list[tuple[str, str]]:
        """(name of the corpus, id) of rows, by their canonical numbers; reads the id column of the files needed.

        Raises:
            IndexError: a number is not in 0..N-1.
            DamagedFileError: see `read`.
        """
        wanted = np.asarray(numbers, dtype=np.int64)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < self.rows):
            raise IndexError(f"row {int(wanted.min())} or {int(wanted.max())} is not in 0..{self.rows - 1}")
        names: list[tuple[str, str]] = [("", "")] * len(wanted)
        owner = np.searchsorted(self._first, wanted, side="right") - 1
        order = np.argsort(owner, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1) if len(order) else []:
            file = self.files[int(owner[part[0]])]
            column = read_corpus_features(file, ["id"]).column("id")
            ids = column.take(pa.array(wanted[part] - file.first)).to_pylist()
            for at, name in zip(part.tolist(), ids, strict=True):
                names[at] = (file.corpus, name)
        return names


def read_corpus_features(file: CorpusFile, columns: Sequence[str] = FEATURE_SCHEMA.names) -> pa.Table:
    """Columns of a feature file, in the order of `FEATURE_SCHEMA`.

    Raises:
        DamagedFileError: it is gone, damaged, or has other rows or another origin than its manifest says.
    """
    shown = redact_url(file.location)
    try:
        with Files(file.location, {}).open("") as handle:
            data = handle.read()
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise DamagedFileError(_damaged(file, "it has another SHA-256"))
            parquet = open_parquet(pa.BufferReader(data))
            wanted = [name for name in FEATURE_SCHEMA.names if name in columns or name == "id"]
            table = as_features(parquet.read(columns=wanted), shown)
            stated = stated_fingerprints(parquet.schema_arrow)
    except (*UNREADABLE, SourceError) as error:
        raise DamagedFileError(_damaged(file, describe(error))) from error
    if len(table) != file.rows or stated != dict(file.fingerprints):
        raise DamagedFileError(_damaged(file, f"{len(table)} rows, measured by {stated}"))
    return table.select(list(columns))


def _damaged(file: CorpusFile, what: str) -> str:
    return (
        f"{redact_url(file.location)}, a feature table of the earlier corpus {file.corpus}, is not what the manifest "
        f"says ({what}). Restore it, or remove the manifest of that corpus and run it again: its shards are written "
        "anew."
    )


def load_corpora(
    paths: Sequence[str],
    stages: StageSet,
    *,
    hashes: bool = True,
    embeddings: bool = False,
    output: Storage | None = None,
) -> Corpora:
    """Read the manifests of earlier corpora, and check that their rows can be compared with those of a run.

    Args:
        paths: manifests, or folders that hold a `manifest.json`; local or fsspec URLs. A merged manifest stands for all
            corpora that it lists. A corpus that is reached twice counts once.
        stages: of the run.
        hashes: perceptual hashes will be compared.
        embeddings: embeddings will be compared.
        output: the run's own directory; a corpus inside of it is refused.

    Raises:
        CorpusError: no manifest, no feature tables, hashes or embeddings of another model, a corpus that changed after
            a merged manifest was written, or the run's own corpus.
    """
    found: list[Corpus] = []
    for path in paths:
        location, data = _read_manifest(path)
        digest = hashlib.sha256(data).hexdigest()
        try:
            corpora = corpora_of(parse_manifest(data, redact_url(location)), location, digest)
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(f"select.against: {describe(error, 600)}") from error
        for corpus in corpora:
            # What a merged manifest remembers of a corpus may be old.
            if corpus.manifest_sha256 != digest:
                _check_current(corpus, location)
        found += corpora
    try:
        joined = join_corpora(found)
    except ValueError as error:
        raise CorpusError(f"select.against: {error}") from error
    seen: dict[str, str] = {}
    for corpus in joined:
        before = seen.setdefault(corpus.manifest_sha256, corpus.manifest)
        if before != corpus.manifest:
            raise CorpusError(
                f"select.against: {redact_url(corpus.manifest)} is a copy of {redact_url(before)}: every picture would "
                "be listed twice. List one of them."
            )
    needed = [stage for stage, use in (("screen", hashes), ("embedding", embeddings)) if use]
    files: list[CorpusFile] = []
    first = 0
    for corpus in joined:
        _check_corpus(corpus, stages, needed, output)
        stated = tuple(sorted(corpus.identity.get("feature_fingerprints", {}).items()))
        for shard in corpus.shards:
            size, digest = shard["features_bytes"], shard["features_sha256"]
            files.append(CorpusFile(corpus.name, shard["features"], first, shard["samples"], stated, size, digest))
            first += shard["samples"]
    _check_files(files)
    return Corpora(joined, tuple(files))


def _check_files(files: Sequence[CorpusFile]) -> None:
    """Find out before the run that every feature file is there and has its size."""

    def wrong(file: CorpusFile) -> str | None:
        try:
            with Files(file.location, {}).open("") as handle:
                size = handle.seek(0, 2)
        except (OSError, SourceError) as error:
            return _damaged(file, describe(error))
        return None if size == file.bytes else _damaged(file, f"{size} bytes in place of {file.bytes}")

    with ThreadPoolExecutor(16) as pool:
        for problem in pool.map(wrong, files):
            if problem is not None:
                raise CorpusError(f"select.against: {problem}")


def _read_manifest(path: str) -> tuple[str, bytes]:
    """Where the manifest is, and its bytes."""
    location = absolute(path.rstrip("/"))
    try:
        files = Files(location, {})
        if files.kind() == "directory":
            location = f"{location}/{MANIFEST_NAME}"
            files = Files(location, {})
        with files.open("") as file:
            return location, file.read()
    except Exception as error:  # storage libraries have errors of their own
        raise CorpusError(
            f"select.against: {redact_url(location)} cannot be read ({describe(error)}). Give the shards/manifest.json "
            "of a finished run, or its shards/merged.json for that run and all that it grew from."
        ) from error


def _check_current(corpus: Corpus, merged: str) -> None:
    _, data = _read_manifest(corpus.manifest)
    if hashlib.sha256(data).hexdigest() != corpus.manifest_sha256:
        raise CorpusError(
            f"select.against: {redact_url(merged)} lists the corpus {corpus.name} as it was; since then "
            f"{redact_url(corpus.manifest)} has changed. List the manifest.json of each corpus instead."
        )


def _check_corpus(corpus: Corpus, stages: StageSet, needed: Sequence[str], output: Storage | None) -> None:
    shown = f"the earlier corpus {corpus.name} ({redact_url(corpus.manifest)})"
    if output is not None and f"{corpus.manifest}/".startswith(f"{output.root}/"):
        raise CorpusError(
            f"select.against: {shown} is the output of this run itself: all of its rows would be dropped. List earlier "
            "corpora, and give this run an output of its own."
        )
    if any(shard.get("features") is None for shard in corpus.shards):
        raise CorpusError(
            f"select.against: {shown} has no feature tables. Run it again with export.features: true; its shards are "
            "written again, nothing is measured again."
        )
    stated = corpus.identity.get("feature_fingerprints") or {}
    missing = [stage for stage in needed if corpus.shards and stage not in stated]
    if missing:
        raise CorpusError(
            f"select.against: {shown} holds nothing that its {missing[0]} stage measured. {_HOW[missing[0]]}"
        )
    try:
        check_fingerprints(stated if corpus.shards else {}, stages.fingerprints, needed, shown, _HOW)
    except ValueError as error:
        raise CorpusError(f"select.against: {error}") from None
