"""A run directory: one fixed set of inputs, and everything that was made of it.

run.json       what the run is about; written first
work/          plan, scores per chunk, downloads: what a restart builds on
ledger/        one row per input
shards/        the corpus
pretrain/      what was trained on it: a run directory of its own (`pipeline/pretrain.py`)
finetune-seg/  a task model, a run directory of its own as well; likewise other tasks (`pipeline/finetune.py`)
lineage.json   from which bytes, code, models and configuration it came
logs/
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.locks import FolderLock, HeldError, lock_folder
from pipeline.logs import LOG_FILE, RAY_FILE
from pipeline.plan import CHUNKS
from pipeline.storage import RemovedError, Storage

RUN_FILE = "run.json"
FORMAT = 1
PRETRAIN = "pretrain"
FINETUNE = "finetune-"
BESIDE = frozenset({PRETRAIN, "lineage.json"})
"""What training alone leaves in a folder where nothing was curated yet."""

INSIDE = {
    "work": frozenset({"plan", "scores", "attempts", "fetched", "references", "select", "dirty"}),
    "logs": frozenset({LOG_FILE, RAY_FILE, "ray_native.log", "ray_data.log"}),
}
LEFTOVERS = frozenset({"work", "logs", "ledger.incomplete", "shards.incomplete"})
"""What is not a result, and can still be there or come back when a run is removed while it writes."""


class RunConflictError(RuntimeError):
    """The directory belongs to another run, or to something that is not a run."""


@dataclass(frozen=True)
class RunKind:
    """What differs between run directories of different stages.

    Attributes:
        conflict: what a directory with another identity is.
        changeable: what may change without being another identity.
        binds: whether anything was made of the identity that the directory was begun with.
    """

    conflict: str
    changeable: str
    binds: Callable[[Storage], bool]


CURATION = RunKind(
    "a run over other inputs, and two runs never mix in one directory",
    "Policy, selection, export and scorers may change inside a run: what was scored is used again.",
    lambda storage: storage.exists(CHUNKS) or bool(storage.names("work/scores")),
)


class RunDirectory:
    """An opened run directory, locked against a second process while open (local storage only).

    Args:
        output: path or fsspec URL.
        identity: what cannot change; for curation what fixes the rows (`PopulaceConfig.identity`).
        new: set an existing run aside instead of refusing.
        kind: of stage.

    Raises:
        RunConflictError: the directory holds something else, or another process works in it.
    """

    def __init__(self, output: str, identity: dict[str, Any], new: bool = False, kind: RunKind = CURATION) -> None:
        self.storage, self.kind = Storage(output), kind
        self._lock: FolderLock | None = None
        try:
            if new:
                self._set_aside()
            # Before the lock: a directory that is not ours is left as it is found.
            self._refuse_foreign()
            if self.storage.local:
                self._lock = self._lock or hold_folder(self.storage.root)
            self._refuse_foreign()
            # What was never listed binds nobody: a mistake in the source can be mended.
            self.resumed = self.storage.exists(RUN_FILE)
            if not self.resumed:
                # What a removal of the run left: nobody knows any more of which inputs it was made.
                for name in LEFTOVERS & {*self.storage.names()} - {"logs"}:
                    self.storage.remove(name)
            if self.resumed and self._record()["identity"] != identity and not kind.binds(self.storage):
                self.storage.remove("work")
                self.resumed = False
            if self.resumed:
                self._compare(self._record(), identity)
            else:
                record = {"format": FORMAT, "identity": identity}
                self.storage.write_bytes(RUN_FILE, json.dumps(record, indent=2, sort_keys=True).encode() + b"\n")
            self.storage.sweep()
            if self.storage.local:
                self.storage.mark = self.storage.path(RUN_FILE)
        except OSError as error:
            self.close()
            raise RunConflictError(
                f"{self.storage.root} cannot be used as a run directory: {error.strerror or error}. "
                "Give a directory that can be written as output."
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def log_folder(self) -> Path | None:
        """Where logs go; None when the run is not on a local file system."""
        if not self.storage.local:
            return None
        folder = Path(self.storage.path("logs"))
        folder.mkdir(exist_ok=True)
        return folder

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around what is done in the directory; then lets go of it.

        Raises:
            RemovedError: in place of any other error, where somebody has removed the directory meanwhile.
        """
        try:
            try:
                yield
            except Exception as error:
                if isinstance(error, RemovedError) or not self.storage.local:
                    raise
                # What is missing shows itself as many errors: files that cannot be read, tables that look damaged.
                try:
                    self.storage.check_mark()
                except RemovedError as removed:
                    raise removed from error
                raise
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _refuse_foreign(self) -> None:
        found = self.storage.names()
        if RUN_FILE not in found:
            # With what `--new` set aside of it: pretrain.old-1.
            found = [name for name in found if not _beside(name)]
            if self.storage.local and self._is_leftover(found):
                found = []
        if found and RUN_FILE not in found:
            raise RunConflictError(
                f"{self.storage.root} is not empty and not a Populace run (it holds {', '.join(found[:5])}). "
                "Give an empty or new directory as output."
            )

    def _is_leftover(self, names: list[str]) -> bool:
        """Whether these are what remains of a run of ours that was removed while it was still writing."""
        return (
            bool(names)
            and {*names} <= LEFTOVERS
            and not self.storage.exists(CHUNKS)
            and all({*self.storage.names(folder)} <= inside for folder, inside in INSIDE.items() if folder in names)
        )

    def _record(self) -> dict[str, Any]:
        try:
            record = json.loads(self.storage.read_bytes(RUN_FILE))
        except ValueError:
            record = None
        if not isinstance(record, dict) or not {"format", "identity"} <= record.keys():
            raise RunConflictError(
                f"{self.storage.path(RUN_FILE)} was not written by Populace, or is damaged. Put it back from a copy, "
                "or give an empty or new directory as output."
            )
        return record

    def _compare(self, record: dict[str, Any], identity: dict[str, Any]) -> None:
        if record.get("format") != FORMAT:
            raise RunConflictError(
                f"{self.storage.root} was written in run format {record.get('format')}, this version writes {FORMAT}. "
                "Use another output, or --new to set the old run aside."
            )
        differences = list(_differences(record["identity"], identity, ""))
        if differences:
            raise RunConflictError(
                f"{self.storage.root} is {self.kind.conflict}:\n  "
                + "\n  ".join(differences)
                + "\nUse another output, or --new to set the old run aside and start afresh here. "
                f"({self.kind.changeable})"
            )

    def _set_aside(self) -> None:
        storage = self.storage
        if not storage.exists(RUN_FILE):
            return
        if not storage.local:
            raise RunConflictError(
                f"--new cannot set aside a run on an object store; give another output than {storage.root}"
            )
        lock = hold_folder(storage.root)
        try:
            # Another process may have set it aside since: what is there now is new, and held.
            if not storage.exists(RUN_FILE):
                self._lock = lock
                return
            number = 1
            while os.path.exists(f"{storage.root}.old-{number}"):
                number += 1
            os.replace(storage.root, f"{storage.root}.old-{number}")
        finally:
            if self._lock is None:
                lock.close()


def hold_folder(path: str | Path) -> FolderLock:
    """`lock_folder` for a run directory.

    Raises:
        RunConflictError: another process holds it, or nothing can be written there.
    """
    try:
        return lock_folder(path)
    except HeldError as error:
        raise RunConflictError(str(error)) from None
    except OSError as error:
        raise RunConflictError(
            f"{path} cannot be used as a run directory: {error.strerror or error}. "
            "Give a directory that can be written as output."
        ) from error


def finetune_folder(task: str) -> str:
    """Where a task is fine-tuned, below the output."""
    return f"{FINETUNE}{task}"


def _beside(name: str) -> bool:
    stem = name.partition(".old-")[0]
    return bool({name, stem} & BESIDE) or stem.startswith(FINETUNE)


def _differences(old: Any, new: Any, prefix: str) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
    elif old != new:
        yield f"{prefix}: the run has {old!r}, now given {new!r}"
