"""Is a run as it was written? Every byte of it, or a cheap sample, against manifest, ledger record and lineage.

| file | checked against |
|---|---|
| ledger/*.parquet | size and SHA-256 in `_complete.json`, and that against lineage.json |
| shards/: tars, index/, features/, card | size and SHA-256 in `manifest.json`; index against tar, by image; totals |
| work/scores, work/plan | the checksum of every page of the Parquet files |
| selection/summary.json, lineage.json | that they are JSON, and of this ledger and this manifest |
| pretrain/, finetune-*/ | the checksums of every complete checkpoint |

Files are checked in Ray tasks, many at a time. `discard` makes what is damaged count as not done, so that the steps of
`pipeline/curate.py` do it again: shards from the source, the ledger from scores, scores by measuring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from curation.manifest import TOTALS, file_problem, image_problem, shard_files, shard_problems
from curation.parquet_files import open_parquet
from pipeline.damage import remember_damage
from pipeline.export import CARD_NAMES, MANIFEST, SHARDS
from pipeline.ledger import COMPLETE, LEDGER, record_problem
from pipeline.lineage import LINEAGE
from pipeline.plan import CHUNKS
from pipeline.progress import RunProgress
from pipeline.rundir import FINETUNE, PRETRAIN, RUN_FILE
from pipeline.select.summary import SUMMARY
from pipeline.source_check import LISTING
from pipeline.storage import UNREADABLE, Storage
from pipeline.tasks import run_tasks, slices

STRAY = "not in"
OTHER = "is of another"
"""What is wrong with lineage.json also where a run was killed after it published its shards, and before that."""
SCORES, UNITS = "work/scores", "work/plan/units"
SAMPLE_BYTES = 64 << 20
SAMPLE_FILES = 256
SAMPLE_IMAGES = 32
"""A sample is files of so many bytes in all, at most so many, and an image each of so many tars too large for it."""


@dataclass(frozen=True)
class Damage:
    """A file, by its name below the run, and what is wrong with it."""

    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}"


@dataclass(frozen=True)
class Item:
    """What one check looks at.

    Attributes:
        bytes: how much of it there is.
        facts: what it is compared with.
    """

    kind: Literal["file", "shard", "image", "parquet", "checkpoint"]
    name: str
    bytes: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes:
        finished: the run has a ledger, shards and a lineage.
        checked, items: how many were checked, of how many.
        bytes: of those that were.
        damages: in order of their names.
    """

    finished: bool
    checked: int
    items: int
    bytes: int
    damages: tuple[Damage, ...]

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        damaged = [{"file": item.name, "problem": item.problem} for item in self.damages]
        return {"finished": self.finished, "checked": self.checked, "bytes": self.bytes, "damaged": damaged}


def verify(storage: Storage, progress: RunProgress, everything: bool = True) -> Verdict:
    """Check a run. Needs Ray.

    Args:
        everything: False: a sample, the same one each time for the same corpus.
    """
    damages, items = _listed(storage)
    chosen = items if everything else _sample(items, storage)
    total = sum(item.bytes for item in chosen)
    checked = _Check(storage)
    with progress.stage("verify", len(chosen), "files", minor=not everything) as stage:
        batches = slices(chosen, 512) if everything else slices(chosen, 8)
        for position, found in run_tasks(checked, batches):
            damages += found
            stage.advance(len(batches[position]))
    if not everything:
        damages = [item for item in damages if not item.problem.startswith(OTHER)]
    finished = all(storage.exists(name) for name in (LINEAGE, f"{LEDGER}/{COMPLETE}", f"{SHARDS}/{MANIFEST}"))
    ordered = tuple(sorted(set(damages), key=lambda item: (item.name, item.problem)))
    return Verdict(finished, len(chosen), len(items), total, ordered)


def discard(storage: Storage, damages: Sequence[Damage]) -> list[Damage]:
    """Make what is damaged count as not done. Returns the damages that curating does not mend.

    Shards stay until others take their places; that they are damaged is written down first.
    """
    listed = [item for item in damages if not item.problem.startswith(STRAY)]
    remember_damage(storage, [item.name for item in listed if item.name.startswith(f"{SHARDS}/")])
    left = []
    for item in damages:
        folder = item.name.partition("/")[0]
        if folder == LEDGER:
            storage.remove(f"{LEDGER}/{COMPLETE}")
        elif item.name.startswith(f"{SCORES}/") or item.name == SUMMARY or item.problem.startswith(STRAY):
            storage.remove(item.name)
        elif item.name == LISTING:
            storage.remove(LISTING)  # written again when the source is looked at
        elif item.name == RUN_FILE:
            left.append(item)
        elif item.name.startswith("work/plan/"):
            # The source is listed again; what is known of it (`source.json`) stays.
            storage.remove(CHUNKS)
            storage.remove(UNITS)
        elif folder == PRETRAIN or folder.startswith(FINETUNE):
            left.append(item)
    return left


def _listed(storage: Storage) -> tuple[list[Damage], list[Item]]:
    """What is wrong at first sight, and what is to be checked, in a fixed order."""
    damages: list[Damage] = []
    items: list[Item] = []
    lineage = storage.read_json(LINEAGE)
    if storage.exists(LINEAGE) and lineage is None:
        damages.append(Damage(LINEAGE, "is not JSON"))
    curated = lineage is not None and "ledger" in lineage
    lineage = lineage or {}
    if curated and not _is_of_curation(lineage):
        damages.append(Damage(LINEAGE, "is not what curation writes"))
        curated, lineage = False, {}
    for name, check in ((f"{LEDGER}/{COMPLETE}", _ledger), (f"{SHARDS}/{MANIFEST}", _shards)):
        try:
            check(storage, lineage, curated, damages, items)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            damages.append(Damage(name, f"is not what was written ({type(error).__name__}: {error})"))
    if storage.exists(f"{LEDGER}/{COMPLETE}"):
        damages += _records(storage)
    for folder in (SCORES, UNITS):
        names = [f"{folder}/{name}" for name in storage.names(folder) if name.endswith(".parquet")]
        items += [Item("parquet", name, storage.size(name)) for name in names]
    items += [Item("parquet", name, storage.size(name)) for name in (CHUNKS, LISTING) if storage.exists(name)]
    for folder in storage.names():
        if folder == PRETRAIN or (folder.startswith(FINETUNE) and ".old-" not in folder):
            names = storage.names(f"{folder}/checkpoints")
            items += [Item("checkpoint", f"{folder}/checkpoints/{name}") for name in names]
    return damages, items


def _is_of_curation(lineage: Mapping[str, Any]) -> bool:
    ledger = lineage["ledger"]
    known = isinstance(ledger, dict) and {"rows", "kept", "dropped", "sha256"} <= ledger.keys()
    stated = {"configuration", "configuration_hash", "source", "scorers"} <= lineage.keys()
    return known and stated and isinstance(lineage.get("manifest_sha256"), str)


def _records(storage: Storage) -> list[Damage]:
    """Small records of a run with a ledger that are missing or cannot be what was written."""
    damages = []
    for name, keys in ((RUN_FILE, {"format", "identity"}), (SUMMARY, {"decision"})):
        record = storage.read_json(name)
        if not storage.exists(name):
            damages.append(Damage(name, "missing"))
        elif record is None or not keys <= record.keys():
            damages.append(Damage(name, "is not what was written"))
    return damages


def _ledger(
    storage: Storage, lineage: Mapping[str, Any], curated: bool, damages: list[Damage], items: list[Item]
) -> None:
    name = f"{LEDGER}/{COMPLETE}"
    record = storage.read_json(name)
    if record is None:
        if curated or storage.exists(name):
            damages.append(Damage(name, "is not JSON" if storage.exists(name) else "missing"))
        return
    problem = record_problem(record)
    if problem is not None:
        damages.append(Damage(name, problem))
        return
    if curated and any(lineage["ledger"][key] != record[key] for key in ("rows", "kept", "dropped", "sha256")):
        damages.append(Damage(LINEAGE, f"{OTHER} ledger"))
    items += [
        Item("file", f"{LEDGER}/{part['name']}", part["bytes"], {"sha256": part["sha256"]}) for part in record["parts"]
    ]
    listed = {COMPLETE, *(part["name"] for part in record["parts"])}
    damages += [
        Damage(f"{LEDGER}/{other}", f"{STRAY} {COMPLETE}") for other in storage.names(LEDGER) if other not in listed
    ]


def _shards(
    storage: Storage, lineage: Mapping[str, Any], curated: bool, damages: list[Damage], items: list[Item]
) -> None:
    name = f"{SHARDS}/{MANIFEST}"
    manifest = storage.read_json(name)
    if manifest is None:
        if curated or storage.exists(name):
            damages.append(Damage(name, "is not JSON" if storage.exists(name) else "missing"))
        return
    try:
        for shard in manifest["shards"]:
            size = sum(size for _, size, _ in shard_files(shard))
            items.append(Item("shard", f"{SHARDS}/{shard['tar']}", size, shard))
        damages += [
            Damage(name, f"{total} is {manifest[total]}, which is not the sum of the shards'")
            for total in TOTALS
            if sum(shard[total] for shard in manifest["shards"]) != manifest[total]
        ]
    except (KeyError, TypeError, ValueError) as error:
        damages.append(Damage(name, f"is not a manifest ({error!r})"))
        return
    if curated and hashlib.sha256(storage.read_bytes(name)).hexdigest() != lineage["manifest_sha256"]:
        damages.append(Damage(LINEAGE, f"{OTHER} manifest"))
    for card in CARD_NAMES if "card_sha256" in manifest else ():
        size = storage.size(f"{SHARDS}/{card}") if storage.exists(f"{SHARDS}/{card}") else 0
        items.append(Item("file", f"{SHARDS}/{card}", size, {"sha256": manifest["card_sha256"]}))
    listed = {file for shard in manifest["shards"] for file, _, _ in shard_files(shard)}
    for folder, suffix in (("", ".tar"), ("index/", ".parquet"), ("features/", ".parquet")):
        present = [f"{folder}{other}" for other in storage.names(f"{SHARDS}/{folder}".rstrip("/"))]
        strays = [other for other in present if other.endswith(suffix) and other not in listed]
        damages += [Damage(f"{SHARDS}/{other}", f"{STRAY} {MANIFEST}") for other in strays]


def _sample(items: Sequence[Item], storage: Storage) -> list[Item]:
    """Files in an order drawn by the corpus, as many as the sample holds; of tars that are too large, one image."""
    seed = hashlib.sha256(storage.read_bytes(f"{SHARDS}/{MANIFEST}")).hexdigest() if storage.exists(
        f"{SHARDS}/{MANIFEST}"
    ) else ""  # fmt: skip
    left, images = SAMPLE_BYTES, 0
    chosen: list[Item] = []
    for item in sorted(items, key=lambda one: hashlib.sha256(f"{seed} {one.name}".encode()).digest()):
        if item.kind == "checkpoint":
            continue  # training looks at its own
        if item.bytes <= left and len(chosen) - images < SAMPLE_FILES:
            left -= item.bytes
            chosen.append(item)
        elif item.kind == "shard" and images < SAMPLE_IMAGES:
            images += 1
            chosen.append(Item("image", item.name, 0, {**item.facts, "seed": seed}))
    return chosen


@dataclass(frozen=True)
class _Check:
    """Checks items; runs in workers."""

    storage: Storage

    def __call__(self, items: Sequence[Item]) -> list[Damage]:
        return [damage for item in items for damage in self._check(item)]

    def _check(self, item: Item) -> Iterator[Damage]:
        storage, facts = self.storage, item.facts
        problem: str | None = None
        if item.kind == "file":
            problem = file_problem(storage.open_read, item.name, item.bytes, facts["sha256"])
        elif item.kind == "parquet":
            problem = parquet_problem(storage, item.name)
        elif item.kind == "checkpoint":
            from training.engine.checkpoint import folder_problem

            folder, _, name = item.name.partition("/")
            problem = folder_problem(storage.child(folder), name)
        else:
            shards = storage.child(SHARDS)
            check = shard_problems if item.kind == "shard" else image_problem
            yield from (Damage(f"{SHARDS}/{name}", text) for name, text in check(shards.open_read, facts))
        if problem is not None:
            yield Damage(item.name, problem)


def parquet_problem(storage: Storage, name: str) -> str | None:
    """Why a Parquet file cannot be read as it was written; None when it can. Holds a row group at a time."""
    try:
        with storage.open_read(name) as file:
            parquet = open_parquet(file)
            for group in range(parquet.num_row_groups):
                parquet.read_row_group(group)
    except UNREADABLE as error:
        return " ".join(str(error).split())[:200]
    return None
