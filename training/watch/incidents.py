"""What is kept of a step that the guard skipped or stopped at: enough to look at its images, and to go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.storage import Storage
from training.watch.guard import GuardStopError, Verdict
from training.watch.json_values import dump

FOLDER = "incidents"


def incident_name(step: int) -> str:
    """Name of the record of a step, inside the run's folder."""
    return f"{FOLDER}/step-{step}.json"


def incident_record(
    step: int,
    verdict: Verdict,
    *,
    ids: Sequence[str],
    positions: Sequence[int],
    losses: Mapping[str, Any],
    grad_norm: float | None = None,
    per_sample: Mapping[str, Sequence[float]] | None = None,
    context: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of a step.

    Args:
        step: its number.
        verdict: the guard's.
        ids: of the whole global batch, those of every rank and micro-batch.
        positions: of the same samples in the order of samples.
        losses: terms and total, as they were reduced for the guard.
        grad_norm: before clipping.
        per_sample: term -> one number for each of `ids`, where the engine has them.
        context: anything else that helps, e.g. the learning rate.

    Returns:
        A JSON-able mapping; non-finite numbers are the strings "nan", "inf" and "-inf" once it is written.

    Raises:
        ValueError: the lists differ in length.
    """
    lengths = {"positions": len(positions)} | {f"per_sample {key}": len(row) for key, row in (per_sample or {}).items()}
    for name, length in lengths.items():
        if length != len(ids):
            raise ValueError(f"there are {len(ids)} ids but {length} of {name}: give one for each sample of the batch")
    return {
        "step": step,
        "action": verdict.action,
        "kind": verdict.kind,
        "reason": verdict.reason,
        "losses": dict(losses),
        "grad_norm": grad_norm,
        "context": dict(context or {}),
        "samples": [
            {"id": id_, "position": int(position)} | {key: row[i] for key, row in (per_sample or {}).items()}
            for i, (id_, position) in enumerate(zip(ids, positions, strict=True))
        ],
    }


def write_incident(storage: Storage, record: Mapping[str, Any]) -> str:
    """Publish a record as `incidents/step-N.json` of the run; returns its full path. The same step again replaces it:
    a resumed run meets the same batch at the same step."""
    name = incident_name(record["step"])
    storage.write_bytes(name, dump(record, indent=1) + b"\n")
    return storage.path(name)


def stop_error(verdict: Verdict, path: str) -> GuardStopError:
    """The error to raise for a "stop".

    Args:
        verdict: the guard's.
        path: of the record, from `write_incident`.
    """
    policy = "on_nonfinite" if verdict.kind == "nonfinite" else "on_spike"
    return GuardStopError(
        f"training stopped: {verdict.reason}. The ids of the batch are in {path}; no weights were updated with it, and "
        "checkpoints that were saved are sound. Resuming is exact, so the run as it is comes to the same batch again. "
        f"To go on from there, leave such steps out: watch.guard.{policy}: skip (and a higher max_consecutive_skips "
        "there if it stopped over that). A lower learning rate, or a corpus without the bad images, make another run: "
        "--new, with model.initial_weights from `populace export-weights` if the weights so far are worth it"
    )
