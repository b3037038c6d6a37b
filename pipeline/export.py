"""Export: the kept rows of a ledger -> WebDataset shards, index, manifest, dataset card.

The original bytes are copied from the source and compared with the SHA-256 that the ledger has; nothing is encoded
again. Shards are written beside the old ones, each whole or not at all, and take their place together when all are
there: a killed export leaves `shards.incomplete/`, from which the next one continues. Beside each shard goes a table of
hashes and embeddings, by which a later run finds what is here already.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from curation.config import Config, fingerprint
from curation.dataset_card import FORMAT as CARD_FORMAT
from curation.dataset_card import CardFacts, ModelFact, dataset_card
from curation.features import FEATURE_STAGES
from curation.features import FORMAT as FEATURES_FORMAT
from curation.manifest import FORMAT as MANIFEST_FORMAT
from curation.manifest import (
    MANIFEST_NAME,
    MERGED_NAME,
    ManifestShard,
    build_manifest,
    manifest_bytes,
    shard_files,
)
from curation.merging import Corpus, corpora_of, merge_manifests
from curation.parquet_files import FORMAT as PARQUET_FORMAT
from curation.parquet_files import read_parquet
from curation.shards import EXTENSIONS, INDEX_FORMAT, TAR_FORMAT, plan_shards
from curation.sidecar import merged_types
from pipeline.damage import damaged_files
from pipeline.fetch import Reader
from pipeline.ledger import ledger_parts
from pipeline.progress import RunProgress
from pipeline.shard_task import SIDECAR_FORMAT, STAGING, KeptTypes, ShardPlan, ShardTask
from pipeline.storage import Storage
from pipeline.tasks import run_tasks

SHARDS = "shards"
MANIFEST = MANIFEST_NAME
CARD_NAMES = ("DATASET_CARD.md", "README.md")
"""README.md is the name under which Hugging Face reads the card."""

SHARD_FORMATS = {
    "tar": TAR_FORMAT,
    "sidecar": SIDECAR_FORMAT,
    "index": INDEX_FORMAT,
    "features": FEATURES_FORMAT,
    "parquet": PARQUET_FORMAT,
}
CARD_FORMATS = {"manifest": MANIFEST_FORMAT, "card": CARD_FORMAT}
"""Versions of what writes the files of an export; each stands beside its writer. A finished export is written anew when
one of them is raised, and not because a line of the code changed."""

SIDECAR_ALLOWANCE = 1024
"""Bytes per sample that shard planning sets aside for the JSON sidecar."""
SHORT_SIDES = (256, 384, 512, 768, 1024, 2048)


class ExportConfig(Config):
    """How the corpus is written."""

    shard_bytes: int = Field(
        1_000_000_000, ge=1, le=2**50, description="largest tar, bytes; one larger sample has its own"
    )
    shard_samples: int = Field(10_000, ge=1, description="most samples in a tar")
    sidecar: tuple[str, ...] = Field(
        ("width", "height", "person_count", "person_box", "person_short_side", "head_yaw", "head_pitch", "head_roll",
         "aesthetic", "realism", "text_share"),
        description="ledger columns that go into each sample's JSON, where the run has them",
    )  # fmt: skip
    features: bool = Field(
        True,
        description="write a table of hashes and embeddings beside each shard, so that a later corpus can leave out "
        "what is in this one (select.against)",
    )
    title: str = Field("Human images", description="name of the dataset on its card")
    contact: str | None = Field(None, description="where to ask for removal; printed on the card")


def check_sidecar(config: ExportConfig, measured: Collection[str]) -> None:
    """Find out before the run that the sidecar's columns are columns of a ledger.

    The defaults may name columns of scorers that this run does not have; a name of the user's may not.

    Args:
        measured: the columns that the run's stages give.

    Raises:
        ValueError: a name is no column.
    """
    usual = ExportConfig.model_fields["sidecar"].default
    valid = sorted({*measured, "caption", "url", "licence", *usual})
    for name in config.sidecar:
        if name not in valid:
            near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
            raise ValueError(
                f"export.sidecar: {name!r} is no column that this run measures: "
                f"{f'did you mean {near[0]}? ' if near else ''}valid: {', '.join(valid)}"
            )


def plan_export(storage: Storage, config: ExportConfig) -> list[ShardPlan]:
    """Which kept rows go into which shard: by format, since readers want one per shard, then in source order."""
    parts, rows, sizes, formats = [], [], [], []
    names = ledger_parts(storage)
    for number, name in enumerate(names):
        with storage.open_read(name) as file:
            table = read_parquet(file, ["verdict", "bytes", "format"])
        kept = np.flatnonzero(pc.equal(table.column("verdict"), "kept").to_numpy(zero_copy_only=False))
        picked = table.take(pa.array(kept))
        parts.append(np.full(len(kept), number))
        rows.append(kept)
        sizes.append(picked.column("bytes").to_numpy(zero_copy_only=False))
        formats += [EXTENSIONS[name] for name in picked.column("format").to_pylist()]
    if not formats:
        return []
    part, row, size = np.concatenate(parts), np.concatenate(rows), np.concatenate(sizes).astype(np.int64)
    group = np.unique(np.array(formats), return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    members = np.stack([size[order], np.full(len(order), SIDECAR_ALLOWANCE)], axis=1)
    bounds = plan_shards(members, config.shard_bytes, config.shard_samples, group[order]).tolist()
    plans = []
    for number, (start, stop) in enumerate(pairwise(bounds)):
        picked = order[start:stop]
        pieces = [
            (names[index], tuple(row[picked[part[picked] == index]].tolist())) for index in np.unique(part[picked])
        ]
        plans.append(ShardPlan(number, tuple(pieces)))
    return plans


def export(
    storage: Storage,
    config: ExportConfig,
    facts: ExportFacts,
    reader: Reader,
    progress: RunProgress,
    earlier: Sequence[Corpus] = (),
) -> dict[str, Any]:
    """Write the shards of the finished ledger, or find that they are there. Returns the manifest.

    Args:
        earlier: corpora that this one adds to (`pipeline.select.corpora.Corpora.corpora`): with any, `merged.json`
            lists their shards and the new ones.
    """
    manifest = _export(storage, config, facts, reader, progress)
    _publish_merged(storage, manifest, earlier)
    return manifest


def _publish_merged(storage: Storage, manifest: dict[str, Any], earlier: Sequence[Corpus]) -> None:
    """Put `merged.json` beside the manifest, or take an old one away. Cheap, so it is made again each time: it names
    places, and those may have changed."""
    name = f"{SHARDS}/{MERGED_NAME}"
    if not earlier:
        storage.remove(name)
        return
    digest = hashlib.sha256(manifest_bytes(manifest)).hexdigest()
    own = corpora_of(manifest, storage.path(f"{SHARDS}/{MANIFEST}"), digest)
    merged = manifest_bytes(merge_manifests([*earlier, *own], storage.path(name)))
    if not storage.exists(name) or storage.read_bytes(name) != merged:
        storage.write_bytes(name, merged)


def _export(
    storage: Storage, config: ExportConfig, facts: ExportFacts, reader: Reader, progress: RunProgress
) -> dict[str, Any]:
    stated = {name: facts.feature_fingerprints[name] for name in FEATURE_STAGES if name in facts.feature_fingerprints}
    features = stated if config.features else None
    # What decides the bytes of the tars and tables, and what decides those of manifest and card besides. Neither knows
    # the version of the code: that of each format takes its place.
    shards_stamp = fingerprint(
        facts.ledger["sha256"], config.shard_bytes, config.shard_samples, config.sidecar, features, SHARD_FORMATS
    )
    stamp = fingerprint(shards_stamp, config, facts.stated(), CARD_FORMATS)
    task = ShardTask(storage, reader, config.sidecar, shards_stamp, {}, features)
    present = storage.read_json(f"{SHARDS}/{MANIFEST}") or {}
    folder = SHARDS
    entries = None
    if present.get("shards_stamp") == shards_stamp:
        entries = _mended(storage, config, task, present, progress)
    if entries is None:
        folder, present = STAGING, {}
        plans = plan_export(storage, config)
        entries = list(_written(task, plans, facts.ledger["kept"], progress).values())
    manifest = build_manifest(
        entries,
        config_hash=facts.config_hash,
        formats={**SHARD_FORMATS, **CARD_FORMATS},
        source_fingerprint=facts.source_fingerprint,
        feature_fingerprints=features,
    )
    manifest |= {"ledger_sha256": facts.ledger["sha256"], "shards_stamp": shards_stamp, "export_stamp": stamp}
    if present.get("export_stamp") == stamp and _card_is_whole(storage, present):
        manifest["card_sha256"] = present["card_sha256"]
    else:
        card = _card(storage, config, facts, manifest).encode()
        manifest["card_sha256"] = hashlib.sha256(card).hexdigest()
        for name in CARD_NAMES:
            storage.write_bytes(f"{folder}/{name}", card)
    data = manifest_bytes(manifest)
    if folder == STAGING:
        for name in storage.hidden(STAGING):
            storage.remove(f"{STAGING}/{name}")
        storage.write_bytes(f"{STAGING}/{MANIFEST}", data)
        storage.publish_folder(STAGING, SHARDS, last=MANIFEST)
    elif storage.read_bytes(f"{SHARDS}/{MANIFEST}") != data:
        storage.write_bytes(f"{SHARDS}/{MANIFEST}", data)
    return manifest


def _written(
    task: ShardTask, plans: Sequence[ShardPlan], images: int, progress: RunProgress
) -> dict[int, ManifestShard]:
    """Write shards to `STAGING`, but for those that an earlier call with the same stamp wrote; their entries."""
    storage, stamp_file = task.storage, f"{STAGING}/.stamp"
    if not storage.exists(stamp_file) or storage.read_bytes(stamp_file).decode() != task.stamp:
        storage.remove(STAGING)
        storage.write_bytes(stamp_file, task.stamp.encode())
    # Over all kept rows, also where only some shards are written: a key has one type in the whole corpus.
    types = merged_types(found for _, found in run_tasks(KeptTypes(storage), ledger_parts(storage)))
    task = replace(task, types=types)
    entries: dict[int, ManifestShard] = {}
    with progress.stage("export", images, "images") as stage:
        for position, entry in run_tasks(task, plans):
            entries[plans[position].number] = entry
            stage.advance(entry.samples)
    return entries


def _mended(
    storage: Storage, config: ExportConfig, task: ShardTask, manifest: Mapping[str, Any], progress: RunProgress
) -> list[ManifestShard] | None:
    """The entries of a finished export, with those of its shards written anew that are not whole any more.

    Until its files take their place, a damaged shard stays as it is: most of its images may still be good.

    Returns:
        None where a shard that is written anew is not the one that was there (another version of a library writes
        Parquet otherwise): then the whole export is.
    """
    damaged = damaged_files(storage)
    if f"{SHARDS}/{MANIFEST}" in damaged:
        return None
    entries = [ManifestShard(**shard) for shard in manifest["shards"]]
    broken = [
        number
        for number, shard in enumerate(manifest["shards"])
        if any(f"{SHARDS}/{name}" in damaged or not _has_size(storage, name, size)
               for name, size, _ in shard_files(shard))
    ]  # fmt: skip
    if not broken:
        return entries
    plans = plan_export(storage, config)
    if len(plans) != len(entries):
        return None
    images = sum(entries[number].samples for number in broken)
    written = _written(task, [plans[number] for number in broken], images, progress)
    if any(written[number] != entries[number] for number in broken):
        return None
    for number in broken:
        for name, _, _ in shard_files(manifest["shards"][number]):
            storage.publish_file(f"{STAGING}/{name}", f"{SHARDS}/{name}")
    storage.remove(STAGING)
    return entries


def _has_size(storage: Storage, name: str, size: int) -> bool:
    return storage.exists(f"{SHARDS}/{name}") and storage.size(f"{SHARDS}/{name}") == size


def _card_is_whole(storage: Storage, manifest: Mapping[str, Any]) -> bool:
    return all(
        storage.exists(f"{SHARDS}/{name}")
        and hashlib.sha256(storage.read_bytes(f"{SHARDS}/{name}")).hexdigest() == manifest.get("card_sha256")
        for name in CARD_NAMES
    )


@dataclass(frozen=True)
class ExportFacts:
    """What manifest and card say beside the shards.

    Attributes:
        ledger: `_complete.json` of the ledger.
        thresholds: the policy and selection in force, as plain mappings.
        models: weights of the scorers.
        limits: sentences on known limits.
        feature_fingerprints: stage -> identity of its scores (`StageSet.fingerprints`); those of `FEATURE_STAGES` are
            stated in the feature tables.
    """

    ledger: Mapping[str, Any]
    config_hash: str
    source_kind: str
    source_fingerprint: str
    thresholds: Mapping[str, Any]
    models: Sequence[ModelFact]
    limits: Sequence[str]
    feature_fingerprints: Mapping[str, str]

    def stated(self) -> list[Any]:
        """What manifest and card repeat of them, JSON-able; the ledger by its hash."""
        models = [[model.scorer, model.name, model.sha256, model.bytes] for model in self.models]
        facts = [self.config_hash, self.source_kind, self.source_fingerprint, dict(self.thresholds), list(self.limits)]
        return [self.ledger["sha256"], self.ledger["rows"], self.ledger["dropped"], models, *facts]


UNRECOGNISED = "stated in words that are not recognised"


def _states_licence(metadata: str | None) -> bool:
    return metadata is not None and bool(json.loads(metadata).get("licence"))


def _card(storage: Storage, config: ExportConfig, facts: ExportFacts, manifest: Mapping[str, Any]) -> str:
    licences: Counter[str | None] = Counter()
    sides: Counter[str] = Counter()
    labels = [
        f"below {SHORT_SIDES[0]}",
        *(f"{low}-{high - 1}" for low, high in pairwise(SHORT_SIDES)),
    ]
    labels.append(f"{SHORT_SIDES[-1]} and more")
    for name in ledger_parts(storage):
        with storage.open_read(name) as file:
            table = read_parquet(file, ["verdict", "licence", "metadata", "short_side"])
        table = table.filter(pc.equal(table.column("verdict"), "kept"))
        licences.update(
            known if known is not None or not _states_licence(text) else UNRECOGNISED
            for known, text in zip(
                table.column("licence").to_pylist(), table.column("metadata").to_pylist(), strict=True
            )
        )
        bins = np.digitize(table.column("short_side").to_numpy(zero_copy_only=False), SHORT_SIDES)
        sides.update(labels[position] for position in bins.tolist())
    return dataset_card(
        CardFacts(
            title=config.title,
            source_kind=facts.source_kind,
            source_fingerprint=facts.source_fingerprint,
            config_hash=facts.config_hash,
            revision=fingerprint([[shard["sha256"], shard["index_sha256"]] for shard in manifest["shards"]]),
            inputs=facts.ledger["rows"],
            kept=facts.ledger["kept"],
            dropped=facts.ledger["dropped"],
            shards=len(manifest["shards"]),
            bytes=manifest["bytes"],
            image_bytes=manifest["image_bytes"],
            thresholds=facts.thresholds,
            models=facts.models,
            licences=dict(sorted(licences.items(), key=lambda item: (-item[1], item[0] or ""))),
            extensions=manifest["extensions"],
            short_sides={label: sides[label] for label in labels if sides[label]},
            limits=facts.limits,
            contact=config.contact,
        )
    )
