"""`selection/summary.json`: what selection found and did, in numbers."""

from __future__ import annotations

import json
from typing import Any

from curation.reasons import Reason
from pipeline.storage import Storage

SUMMARY = "selection/summary.json"


def write_summary(storage: Storage, decision: str, summary: dict[str, Any]) -> None:
    """Publish the summary of a selection.

    Args:
        decision: identity of the ledger that it belongs to.
    """
    record = {"decision": decision, **summary}
    storage.write_bytes(SUMMARY, json.dumps(record, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n")


def summary_record(storage: Storage) -> dict[str, Any]:
    """The summary, or {} when there is none."""
    return storage.read_json(SUMMARY) or {}


def outcome(summary: dict[str, Any]) -> str:
    """One line: how many rows took part, and what fell."""
    dropped = {**summary["references"], **summary.get("duplicates", {}).get("dropped", {})}
    balance = summary.get("balance")
    if balance is not None:
        dropped[str(Reason.OVER_REPRESENTED)] = balance["rows"]["before"] - balance["rows"]["after"]
    fallen = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()) if count)
    taken = summary["candidates"] + sum(summary["references"].values())
    return f"{taken:,} candidates; dropped: {fallen or 'none'}"
