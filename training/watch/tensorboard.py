"""The metrics of a run in TensorBoard, where that is installed.

Scalars have the names of the JSON lines ("loss/total"), whose first part is the group that TensorBoard shows them in.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.storage import Storage

FOLDER = "tensorboard"
MISSING = (
    "TensorBoard is not installed, so this run writes no TensorBoard events (metrics.jsonl has all numbers). "
    "To have them: pip install tensorboard; to be rid of this message: set watch.tensorboard: false"
)

logger = logging.getLogger(__name__)


class TensorBoardLog:
    """Writes event files into a folder of the run. Open it on one rank only, with a `with` block or `close`.

    A resumed run adds an event file; TensorBoard then forgets what older files say of `resume_step` and later steps.
    On an object store the files are written here and uploaded by `sync`.

    Without the tensorboard package a warning is logged, `active` is False and every method does nothing.

    Args:
        storage: the run's folder.
        resume_step: the first step that this process will run, 0 for a new run.
        folder: inside the run's folder.
    """

    def __init__(self, storage: Storage, resume_step: int = 0, folder: str = FOLDER) -> None:
        self._storage = storage
        self._folder = folder
        self._spool: tempfile.TemporaryDirectory[str] | None = None
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            logger.warning(MISSING)
            return
        if not storage.local:
            self._spool = tempfile.TemporaryDirectory(prefix="populace-tensorboard-")
        target = storage.path(folder) if self._spool is None else self._spool.name
        self._writer = SummaryWriter(target, purge_step=resume_step)

    @property
    def active(self) -> bool:
        """True when events are written."""
        return self._writer is not None

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Add the numbers of a step; texts and None are left out, names without a group go under run/."""
        if self._writer is None:
            return
        for name, value in values.items():
            if value is not None and not isinstance(value, str):
                self._writer.add_scalar(name if "/" in name else f"run/{name}", float(value), step)

    def image(self, step: int, name: str, picture: npt.NDArray[np.uint8]) -> None:
        """Add a picture, uint8 [H, W, 3]."""
        if self._writer is not None:
            self._writer.add_image(name, picture, step, dataformats="HWC")

    def sync(self) -> None:
        """Write what is pending; on an object store upload this process's event files."""
        if self._writer is None:
            return
        self._writer.flush()
        if self._spool is not None:
            for path in sorted(Path(self._spool.name).iterdir()):
                with open(path, "rb") as file, self._storage.open_write(f"{self._folder}/{path.name}") as target:
                    shutil.copyfileobj(file, target)

    def close(self) -> None:
        """Sync and close; again is harmless."""
        if self._writer is None:
            return
        try:
            self.sync()
        finally:
            self._writer.close()
            self._writer = None
            if self._spool is not None:
                self._spool.cleanup()

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
