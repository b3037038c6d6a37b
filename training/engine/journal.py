"""What rank 0 writes down of a run: metrics, TensorBoard, pictures, rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipeline.storage import Storage
from training.engine.config import TrainConfig
from training.watch import names
from training.watch.events import MetricsLog
from training.watch.peak_flops import device_peak_flops
from training.watch.pictures import write_picture
from training.watch.tensorboard import TensorBoardLog
from training.watch.throughput import Rates, peak_memory_bytes

Report = Callable[[int, Mapping[str, Any], bool], None]
"""Called with a step, its values, and whether they are new numbers to show (else only the step is done, or there is a
word for the user: {MESSAGE: text})."""
MESSAGE = "message"


class Journal:
    """The logs of a run, opened at the step that is done next.

    Args:
        report: who else is told of every step.
        flops, tokens: of one training image, forward and backward; 0: not known, and no rate of it is shown.
        draws: whether there is anything to draw.
    """

    def __init__(
        self,
        config: TrainConfig,
        storage: Storage,
        first_step: int,
        world: int,
        device: torch.device,
        report: Report | None,
        *,
        flops: float,
        tokens: int,
        draws: bool,
    ) -> None:
        self._config, self._storage, self._device, self._report = config, storage, device, report
        watch = config.watch
        self._tokens, self._draws = tokens, draws
        peak = device_peak_flops(device, config.engine.precision, watch.peak_flops)
        self._rates = Rates(
            flops_per_image=flops,
            tokens_per_image=tokens,
            peak_flops=None if peak is None else peak * world,
            total_steps=config.steps,
            window=watch.rate_window,
        )
        self._metrics = MetricsLog(storage, first_step)
        self._board = TensorBoardLog(storage, first_step) if watch.tensorboard else None

    def step(self, step: int, values: Callable[[], Mapping[str, Any]]) -> None:
        """A step is done; `values` gives its numbers, and is called when they are logged."""
        self._rates.step(step, self._config.batch.size)
        last = step + 1 == self._config.steps
        if (step + 1) % self._config.watch.every and not last:
            if self._report is not None:
                self._report(step, {}, False)
            return
        numbers = {**values(), **self._rates.values(), names.PEAK_BYTES: peak_memory_bytes(self._device)}
        images = (step + 1) * self._config.batch.size
        self._metrics.write(step, numbers, images=images, tokens=images * self._tokens)
        if self._board is not None:
            self._board.scalars(step, numbers)
        if self._report is not None:
            self._report(step, numbers, True)

    def wants_picture(self, step: int) -> bool:
        """Whether this step is drawn."""
        every = self._config.watch.pictures_every
        last = step + 1 == self._config.steps
        return self._draws and every > 0 and ((step + 1) % every == 0 or last)

    def picture(self, step: int, name: str, drawn: npt.NDArray[np.uint8]) -> None:
        """Keep a picture, uint8 [H, W, 3]."""
        write_picture(self._storage, step, drawn)
        if self._board is not None:
            self._board.image(step, name, drawn)

    def sync(self) -> None:
        """Before a checkpoint: what was logged until here survives."""
        self._metrics.sync()
        if self._board is not None:
            self._board.sync()

    def close(self) -> None:
        """Write what is pending."""
        self._metrics.close()
        if self._board is not None:
            self._board.close()
