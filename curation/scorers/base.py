"""What a scorer is, and how it is run over a batch without ever losing a row.

A scorer *measures*: it maps a batch of rows to columns. It never decides; limits live in `curation/policy.py`.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from curation.config import Config, fingerprint
from curation.records import Batch

log = logging.getLogger(__name__)


class ResourceConfig(Config):
    """What one worker of a scorer asks Ray for. Neighbouring scorers with equal resources share a worker."""

    num_cpus: float = Field(1.0, gt=0, description="CPU cores; also the size of native thread pools")
    num_gpus: float = Field(0.0, ge=0, description="GPUs: 0, a fraction below 1, or a whole number")


class ScorerConfig(Config):
    """What every scorer's configuration has. `kind` names the implementation."""

    kind: str
    batch_size: int = Field(32, ge=1, description="largest number of rows in one model call")
    resources: ResourceConfig = ResourceConfig()

    def identity(self) -> dict[str, Any]:
        """The part of the configuration that changes scores: everything but batch size, resources and device."""
        return self.model_dump(mode="json", exclude={"batch_size", "resources", "device"})


@dataclass(frozen=True, slots=True)
class Weights:
    """One weight file that a scorer uses, for the lineage record."""

    name: str
    sha256: str
    bytes: int


class MissingWeightsError(RuntimeError):
    """Weights were not found. The message says what was looked for, where, and how to get it."""


class Scorer(ABC):
    """Base of all scorers.

    Life: constructed on the driver (cheap, no model), `check()` there, pickled to workers, `setup()` once in a
    worker just before the first batch, `score()` many times.

    Class attributes:
        name: key in the `scorers` section; also names the stage.
        columns: column name -> Arrow type, exactly what `score` returns.
        needs: columns of earlier scorers (or of the locator: `metadata`) that must be in the batch.
        needs_pixels: False for scorers that compute from columns only; they never cause a decode.
        version: raise by one when the code gives other scores for the same input.
    """

    name: ClassVar[str]
    columns: ClassVar[Mapping[str, pa.DataType]]
    needs: ClassVar[Sequence[str]] = ()
    needs_pixels: ClassVar[bool] = True
    version: ClassVar[int] = 1

    def __init__(self, config: Any) -> None:
        self.config = config

    def check(self) -> list[Weights]:
        """Find the weights and hash them, without loading a model.

        Raises:
            MissingWeightsError: weights or the package that holds them are absent.
        """
        return []

    def setup(self) -> None:  # noqa: B027 - an optional hook
        """Load the model. Called once per worker."""

    @abstractmethod
    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        """Map a batch to `columns`; each value has one entry per row, None where there is no value."""

    def model_fingerprint(self, weights: Sequence[Weights]) -> str:
        """Identity of the scores: the same fingerprint promises the same columns for the same pixels."""
        return fingerprint(
            self.name, self.version, self.config.identity(), [(item.name, item.sha256) for item in weights]
        )


def hash_file(path: str | Path) -> Weights:
    """SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    size = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return Weights(Path(path).name, digest.hexdigest(), size)


def is_out_of_memory(error: BaseException) -> bool:
    """True for an allocation failure of the host, CUDA or ONNX Runtime."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return "out of memory" in text or "failed to allocate memory" in text


class BatchRunner:
    """Runs one scorer over any number of rows: batches, halves the batch when memory runs out and remembers the
    size that worked, and isolates a row on which the scorer raises.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.batch_size: int = scorer.config.batch_size
        self._ready = False

    def __call__(self, batch: Batch) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """Score all rows.

        Returns:
            The columns, one entry per row; and the errors, row index -> message, of rows whose columns are None.
        """
        if not self._ready:
            self.scorer.setup()
            self._ready = True
        columns: dict[str, list[Any]] = {name: [] for name in self.scorer.columns}
        errors: dict[int, str] = {}
        start = 0
        while start < len(batch):
            stop = min(start + self.batch_size, len(batch))
            result, stop = self._attempt(batch, start, stop, errors)
            for name, values in columns.items():
                values.extend(result[name])
            start = stop
        return columns, errors

    def _attempt(
        self, batch: Batch, start: int, stop: int, errors: dict[int, str]
    ) -> tuple[Mapping[str, Sequence[Any]], int]:
        while True:
            try:
                part = batch.slice(start, stop)
                result = self.scorer.score(part)
                for name in self.scorer.columns:
                    if name not in result or len(result[name]) != len(part):
                        raise ValueError(
                            f"scorer {self.scorer.name}: column {name!r} must have {len(part)} values, got "
                            f"{len(result[name]) if name in result else 'none'}"
                        )
                return result, stop
            except Exception as error:  # noqa: BLE001 - one bad row must cost one row
                size = stop - start
                if size == 1:
                    errors[start] = f"{type(error).__name__}: {error}"[:500]
                    log.warning("scorer %s failed on %s: %s", self.scorer.name, batch.ids[start], errors[start])
                    return {name: [None] for name in self.scorer.columns}, stop
                stop = start + size // 2
                if is_out_of_memory(error):
                    self.batch_size = max(1, size // 2)
                    _free_device_memory()
                    log.warning("scorer %s: out of memory at %d rows, now %d", self.scorer.name, size, self.batch_size)


def _free_device_memory() -> None:
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
