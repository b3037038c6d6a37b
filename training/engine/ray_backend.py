"""The process group of Ray Train workers, and a SIGTERM that lets them save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

from training.engine import stop


class _SavingBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Set up torch's process group; then take over SIGTERM, which Ray's own handler would end the worker at."""
        super().on_start(worker_group, backend_config)
        # Runs in the main thread of each worker, the only one that may set handlers; training runs in another.
        worker_group.execute(stop.install)


@dataclass
class SavingTorchConfig(TorchConfig):
    """`TorchConfig` whose workers save at SIGTERM."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _SavingBackend
