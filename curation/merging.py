"""Merged manifests: one list of the shards of several corpora, each of which stays where it is.

A corpus that grows by increments is several exports: each run leaves out what the earlier ones have, and writes
`merged.json` beside its own `manifest.json`. A merged manifest has the format of a manifest; each of its shards says
which corpus it belongs to, and `corpora` lists those:

    {"format": "webdataset", "format_version": 1, "samples": ..., "shards": [{..., "corpus": "day1"}, ...],
     "corpora": [{"name": "day1", "manifest": "../../day1/shards/manifest.json", "manifest_sha256": ..., ...}]}

Paths are relative to the file wherever both ends are local, so that corpora which are moved together stay together; on
an object store, what lies outside the file's folder is named by its URL.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from curation.manifest import FORMAT_VERSION, TOTALS, manifest_totals
from curation.sources.storage import absolute, is_local

IDENTITY = ("config_hash", "formats", "source_fingerprint", "feature_fingerprints")
PATHS = ("tar", "index", "features")


class MergeError(ValueError):
    """Corpora do not fit together. The message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """One export.

    Attributes:
        name: short; unique among the corpora of a merged manifest.
        manifest: path or URL of its own manifest, absolute.
        manifest_sha256: of that file, hex.
        identity: what the manifest says of itself (`IDENTITY`).
        shards: its entries of a manifest, with absolute paths or URLs.
    """

    name: str
    manifest: str
    manifest_sha256: str
    identity: Mapping[str, Any]
    shards: tuple[Mapping[str, Any], ...]


def corpora_of(manifest: Mapping[str, Any], location: str, sha256: str) -> list[Corpus]:
    """The corpora that a manifest lists: those of a merged one, or the one that it belongs to.

    Args:
        manifest: as `curation.manifest.parse_manifest` gives it.
        location: path or URL of its file.
        sha256: of the file.

    Raises:
        MergeError: a shard of a merged manifest belongs to no corpus.
    """
    location = _absolute(location)
    shards = [
        dict(shard) | {name: _resolve(location, shard[name]) for name in PATHS if shard.get(name) is not None}
        for shard in manifest["shards"]
    ]
    if "corpora" not in manifest:
        identity = {name: manifest[name] for name in IDENTITY if name in manifest}
        return [Corpus(corpus_name(location), location, sha256, identity, tuple(shards))]
    of_corpus: dict[str, list[Mapping[str, Any]]] = {entry["name"]: [] for entry in manifest["corpora"]}
    for shard in shards:
        name = shard.pop("corpus", None)
        if name not in of_corpus:
            raise MergeError(
                f"{location}: shard {shard['tar']} names the corpus {name!r}, which the file does not list"
            )
        of_corpus[name].append(shard)
    return [
        Corpus(
            entry["name"],
            _resolve(location, entry["manifest"]),
            entry["manifest_sha256"],
            {name: entry[name] for name in IDENTITY if name in entry},
            tuple(of_corpus[entry["name"]]),
        )
        for entry in manifest["corpora"]
    ]


def join_corpora(corpora: Iterable[Corpus]) -> tuple[Corpus, ...]:
    """Every corpus and every shard once, in the order given, under names of their own.

    Raises:
        MergeError: a corpus or a tar comes in two versions: it was changed after a merged manifest was written.
    """
    joined: dict[str, Corpus] = {}
    tars: dict[str, str] = {}
    names: set[str] = set()
    for corpus in corpora:
        before = joined.get(corpus.manifest)
        if before is not None:
            _same(corpus.manifest, before.manifest_sha256, corpus.manifest_sha256)
            continue
        shards = []
        for shard in corpus.shards:
            if shard["tar"] not in tars:
                shards.append(shard)
            _same(shard["tar"], tars.setdefault(shard["tar"], shard["sha256"]), shard["sha256"])
        name, number = corpus.name, 2
        while name in names:
            name, number = f"{corpus.name}-{number}", number + 1
        names.add(name)
        joined[corpus.manifest] = replace(corpus, name=name, shards=tuple(shards))
    return tuple(joined.values())


def merge_manifests(corpora: Iterable[Corpus], location: str) -> dict[str, Any]:
    """The merged manifest of some corpora; the last one is the newest and lends it its identity.

    Args:
        corpora: in order; each is listed once (`join_corpora`).
        location: path or URL at which the file will be.

    Raises:
        MergeError: no corpora, or two versions of one.
    """
    joined = join_corpora(corpora)
    if not joined:
        raise MergeError("there is no corpus to merge: give at least one manifest")
    location = _absolute(location)
    shards: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    for corpus in joined:
        totals = manifest_totals(corpus.shards)
        entries.append(
            {
                "name": corpus.name,
                "manifest": _relative(location, corpus.manifest),
                "manifest_sha256": corpus.manifest_sha256,
                **{name: totals[name] for name in TOTALS},
                **corpus.identity,
            }
        )
        for shard in corpus.shards:
            paths = {name: _relative(location, shard[name]) for name in PATHS if shard.get(name) is not None}
            shards.append({**shard, **paths, "corpus": corpus.name})
    newest = {
        name: joined[-1].identity.get(name, {} if name == "formats" else "")
        for name in IDENTITY
        if name != "feature_fingerprints"
    }
    return {
        "format": "webdataset",
        "format_version": FORMAT_VERSION,
        **newest,
        **manifest_totals(shards),
        "corpora": entries,
        "shards": shards,
    }


def corpus_name(location: str) -> str:
    """The name of a corpus by where its manifest is: that of the run's folder, without `shards`."""
    folders = [part for part in re.split(r"[/\\]+", location)[:-1] if part and not part.endswith(":")]
    while len(folders) > 1 and folders[-1] == "shards":
        folders.pop()
    name = "".join(char if char.isprintable() else "_" for char in folders[-1]) if folders else ""
    return name or "corpus"


def _same(what: str, one: str, other: str) -> None:
    if one != other:
        raise MergeError(
            f"{what} is listed in two versions (SHA-256 {one[:12]} and {other[:12]}): it was changed after a merged "
            "manifest was written that lists it. List the manifest.json of each corpus instead of that merged.json."
        )


def _absolute(location: str) -> str:
    if not is_local(location):
        return location
    # The folder's real path, so that a corpus reached through a link is the same one, and `..` leads where it seems to.
    folder, name = os.path.split(absolute(location))
    return os.path.join(os.path.realpath(folder), name)


def _resolve(location: str, path: str) -> str:
    """A path of a manifest at `location`, absolute."""
    if "://" in path or os.path.isabs(path):
        return path
    if is_local(location):
        return _absolute(os.path.join(os.path.dirname(location), path))
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{posixpath.normpath(posixpath.join(posixpath.dirname(rest), path))}"


def _relative(location: str, path: str) -> str:
    """A path or URL as it is written in a manifest at `location`."""
    if is_local(location):
        return os.path.relpath(path, os.path.dirname(location)).replace(os.sep, "/") if is_local(path) else path
    folder = location.rpartition("/")[0] + "/"
    return path.removeprefix(folder)
