"""What rank 0 writes down of a run: metrics, TensorBoard, pictures, rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pipeline.storage import Storage
from training.objectives.masks import visible_count
from training.pretraining.config import PretrainConfig
from training.pretraining.model import Inputs, Output
from training.watch import names
from training.watch.events import MetricsLog
from training.watch.peak_flops import device_peak_flops
from training.watch.pictures import reconstruction_picture, write_picture
from training.watch.step_cost import StepCost, step_cost
from training.watch.tensorboard import TensorBoardLog
from training.watch.throughput import Rates, peak_memory_bytes

Report = Callable[[int, Mapping[str, Any], bool], None]
"""Called with a step, its values, and whether they are new numbers to show (else only the step is done)."""


def run_step_cost(config: PretrainConfig) -> StepCost:
    """FLOPs and tokens of one training image of this run."""
    backbone = config.model.backbone_config()
    grid = backbone.grid_of(*config.views.global_size)
    return step_cost(
        backbone,
        config.model.decoder_config() if config.trains_reconstruction else None,
        config.model.projection_config() if config.trains_distillation else None,
        visible=visible_count(grid[0] * grid[1], config.mask.ratio),
        global_size=config.views.global_size,
        local_size=config.views.local_size,
        global_views=config.views.global_count,
        local_views=config.views.local_count,
        patch_distillation=config.trains_patches,
    )


class Journal:
    """The logs of a run, opened at the step that is done next.

    Args:
        report: who else is told of every step.
    """

    def __init__(
        self,
        config: PretrainConfig,
        storage: Storage,
        first_step: int,
        world: int,
        device: torch.device,
        report: Report | None,
    ) -> None:
        self._config, self._storage, self._device, self._report = config, storage, device, report
        watch = config.watch
        self._cost = run_step_cost(config)
        peak = device_peak_flops(device, config.engine.precision, watch.peak_flops)
        self._rates = Rates(
            flops_per_image=self._cost.total_flops,
            tokens_per_image=self._cost.tokens,
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
        self._metrics.write(step, numbers, images=images, tokens=images * self._cost.tokens)
        if self._board is not None:
            self._board.scalars(step, numbers)
        if self._report is not None:
            self._report(step, numbers, True)

    def wants_picture(self, step: int) -> bool:
        """Whether the reconstruction of this step is drawn."""
        every = self._config.watch.pictures_every
        last = step + 1 == self._config.steps
        return self._config.trains_reconstruction and every > 0 and ((step + 1) % every == 0 or last)

    def picture(self, step: int, inputs: Inputs, output: Output) -> None:
        """Draw the first images of a micro-batch."""
        assert output.predicted is not None
        config = self._config
        images = inputs.globals_.flatten(0, 1)
        count = min(config.watch.pictures_count, len(images))
        drawn = reconstruction_picture(
            images[:count].float().cpu(),
            inputs.keep.flatten(0, 1)[:count].cpu(),
            output.predicted[:count].float().cpu(),
            config.model.backbone_config().grid_of(*config.views.global_size),
            config.model.decoder_config().pixels,
            normalised=config.reconstruction.normalise,
            eps=config.reconstruction.eps,
            panel_height=config.watch.picture_height,
        )
        write_picture(self._storage, step, drawn)
        if self._board is not None:
            self._board.image(step, "reconstruction", drawn)

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
