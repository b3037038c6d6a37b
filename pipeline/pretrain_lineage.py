"""What pretraining adds to lineage.json, kept as `pretrain/lineage.json`.

Like the rest of the record it depends on nothing but inputs, code, configuration and results: the same run gives the
same bytes, wherever its shards lie. (The files of a checkpoint, and so their hashes, follow the number of workers.)
"""

from __future__ import annotations

import hashlib
import platform
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipeline.lineage import LINEAGE, code_version, json_bytes, manifest_corpora, versions, write_lineage
from pipeline.storage import Storage
from training.data.corpus import Corpus, read_manifest
from training.engine.checkpoint import MARKER, Checkpoint
from training.pretraining.config import PretrainConfig

PACKAGES = ("torch", "deepspeed", "ray", "torchvision", "numpy", "pillow", "simplejpeg", "opencv-python-headless")
CODE = ("curation", "training")


def pretrain_lineage(
    config: PretrainConfig, corpus: Corpus, own_shards: bool, storage: Storage, checkpoint: Checkpoint
) -> dict[str, Any]:
    """The record of a finished training run.

    Args:
        config: with the corpora that were read.
        own_shards: they are the shards of the run that this belongs to.
        storage: the folder of the training run.
        checkpoint: its last.
    """
    manifests = [
        item.manifest_sha256 for entry in config.data.corpora for item in manifest_corpora(*read_manifest(entry))
    ]
    return {
        "format": 1,
        "configuration_hash": config.result_hash(),
        "configuration": config.identity(),
        "code_version": code_version(CODE),
        "python": platform.python_version(),
        "packages": versions(PACKAGES),
        "corpus": {
            "fingerprint": corpus.fingerprint,
            "samples": len(corpus),
            "own_shards": own_shards,
            "manifest_sha256": manifests,
        },
        "steps": checkpoint.step,
        "images": checkpoint.step * config.batch.size,
        "checkpoint": {"name": checkpoint.name, "sha256": checkpoint_sha256(storage, checkpoint)},
    }


def checkpoint_sha256(storage: Storage, checkpoint: Checkpoint) -> str:
    """One SHA-256 for a checkpoint: of the lines `<SHA-256>  <file>` of its files, sorted by name.

    In its folder, `LC_ALL=C sha256sum checkpoint.json rank-* state.safetensors | sha256sum` prints the same.
    """
    files = sorted([*checkpoint.record["files"], MARKER])

    def line(file: str) -> str:
        with storage.open_read(f"{checkpoint.name}/{file}") as source:
            digest = hashlib.sha256()
            while block := source.read(1 << 22):
                digest.update(block)
        return f"{digest.hexdigest()}  {file}\n"

    with ThreadPoolExecutor(4) as pool:
        return hashlib.sha256("".join(pool.map(line, files)).encode()).hexdigest()


def publish_pretrain_lineage(run: Storage, storage: Storage, record: dict[str, Any]) -> None:
    """Write the record beside the checkpoints, and put it into that of the whole run."""
    storage.write_bytes(LINEAGE, json_bytes(record))
    write_lineage(run, run.read_json(LINEAGE) or {"format": 1})
