"""The figures of a fine-tuning run, and its best checkpoint."""

from __future__ import annotations

from typing import Any

from pipeline.storage import Storage
from training.engine.checkpoint import Checkpoint, complete_checkpoints
from training.finetuning.trainer import MEASURED, PROBE
from training.watch.json_values import restored


def measured_records(storage: Storage) -> list[dict[str, Any]]:
    """What was measured, by step; the first is the untrained model. Records as `probe.json` has them."""
    names = (name for name in storage.names(MEASURED) if name.endswith(".json"))
    return [restored(storage.read_json(f"{MEASURED}/{name}")) for name in names]


def best_of(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """That with the highest score, the later of equal ones; None where none has a score that is a number."""
    scored = [record for record in records if record["score"] == record["score"]]
    return max(scored, key=lambda record: (record["score"], record["step"]), default=None)


def best_checkpoint(storage: Storage) -> Checkpoint | None:
    """The complete checkpoint with the best figure; None where none was measured."""
    by_step: dict[int, Checkpoint] = {}
    records = []
    for checkpoint in complete_checkpoints(storage):
        record = storage.read_json(f"{checkpoint.name}/{PROBE}")
        if record is not None:
            by_step[checkpoint.step] = checkpoint
            records.append({**restored(record), "step": checkpoint.step})
    best = best_of(records)
    return None if best is None else by_step[best["step"]]
