"""What is known to be damaged in a run: written down before anything is mended, so that a kill forgets nothing.

work/damaged.json   {"files": [names below the run]}; removed when all of them are whole again
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pipeline.storage import Storage

DAMAGED = "work/damaged.json"


def damaged_files(storage: Storage) -> frozenset[str]:
    """Names of files, relative to the run, whose size is right and whose content is not."""
    record = storage.read_json(DAMAGED) or {}
    return frozenset(map(str, record.get("files", ())))


def remember_damage(storage: Storage, names: Iterable[str]) -> None:
    """Add files to those that are known to be damaged."""
    files = sorted({*damaged_files(storage), *names})
    storage.write_bytes(DAMAGED, json.dumps({"files": files}).encode() + b"\n")


def forget_damage(storage: Storage) -> None:
    """All is whole again."""
    storage.remove(DAMAGED)
