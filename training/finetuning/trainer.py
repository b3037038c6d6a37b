"""A fine-tuning run: schedule, layer-wise rates, and with every checkpoint the tasks' metrics and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from curation.config import fingerprint
from pipeline.storage import Storage
from training.engine.checkpoint import folder_of
from training.engine.journal import MESSAGE, Journal, Report
from training.engine.loop import Loop, Rates
from training.engine.parallel import Parallel
from training.engine.stop import StopSignal
from training.finetuning.config import FinetuneConfig
from training.finetuning.drawings import Drawings
from training.finetuning.measure import measured
from training.finetuning.model import FinetuneModel, TaskOutput
from training.finetuning.pictures import open_pictures
from training.finetuning.samples import Samples, TaskBatch, open_samples
from training.models.cost import model_cost
from training.models.task_model import task_head_config
from training.watch.json_values import dump

PROBE = "probe.json"
"""Beside a checkpoint: its figures."""
MEASURED = "measured"
"""Folder with the same records of every step that was measured, step-000000000.json (untrained) first."""
START_FACTOR = 1e-3
"""Of the peak learning rate at the first step of warm-up (released)."""


class FinetuneTrainer(Loop[TaskBatch]):
    """A fine-tuning run on one rank; see `Loop`."""

    replaced_means = "were of no use to the task"

    def __init__(
        self,
        config: FinetuneConfig,
        storage: Storage,
        parallel: Parallel,
        stop: StopSignal,
        report: Report | None = None,
    ) -> None:
        self.train_pictures, self.held_out = open_pictures(config.data)
        data = fingerprint(self.train_pictures.fingerprint, self.held_out.fingerprint)
        super().__init__(config, storage, parallel, data, stop, report)
        assert isinstance(parallel.model, FinetuneModel)
        self.config, self.model, self.setup = config, parallel.model, config.setup()
        self._journal: Journal | None = None

    def batches(self) -> AbstractContextManager[Iterator[TaskBatch]]:
        """Augmented images and targets."""
        samples = Samples(self.train_pictures, self.setup, self.config.seed, self.plan, self.parallel.rank)
        return open_samples(samples, self.config.workers, self.plan, self.state.step, self.config.steps)

    def journal(self) -> Journal:
        """With the cost of a place in the order: an image for each task."""
        config = self.config
        backbone = config.model.backbone_config().replace(image_size=config.size)
        costs = [
            model_cost(backbone, part.head(task_head_config(task, config.model.backbone, backbone)))
            for task, part in self.setup.parts.items()
        ]
        self._journal = Journal(
            config, self.storage, self.state.step, self.parallel.world, self.parallel.device, self.report,
            flops=sum(cost.training_flops for cost in costs), tokens=sum(cost.tokens for cost in costs), draws=False,
        )  # fmt: skip
        return self._journal

    def rates(self, step: int) -> Rates:
        """Linear warm-up from a thousandth, then linear to the final rate (released)."""
        optimiser = self.config.optimiser
        if step < optimiser.warmup:
            lr = optimiser.lr * (START_FACTOR + (1 - START_FACTOR) * step / optimiser.warmup)
        else:
            done = (step - optimiser.warmup) / max(1, self.config.steps - optimiser.warmup)
            lr = optimiser.lr + (optimiser.final_lr - optimiser.lr) * done
        return Rates(lr, lr)

    def micro_step(self, batch: TaskBatch, last: bool, drawn: bool) -> tuple[TaskOutput, int]:
        """The task's loss."""
        device = self.parallel.device
        targets = {name: value.to(device) for name, value in batch.targets.items()}
        progress = self.state.step / self.config.steps
        return self.parallel.micro_step(batch.images.to(device), targets, progress, last=last), batch.replaced

    def places(self, batch: TaskBatch) -> list[tuple[int, str]]:
        """Of the samples of a micro-batch."""
        return list(zip(batch.places, batch.ids, strict=True))

    def begin(self) -> None:
        """Before the first step: what the model is worth untrained."""
        if self.state.step == 0:
            self._measure()

    def after_saving(self, journal: Journal | None) -> None:
        """Measure what was saved; the figure is what `checkpoint.keep_best` goes by."""
        record = self._measure()
        if record is not None:
            self.storage.write_bytes(f"{folder_of(self.state.step)}/{PROBE}", dump(record, indent=1) + b"\n")

    def _measure(self) -> dict[str, Any] | None:
        """The record of the model as it is, on rank 0; every rank takes part."""
        watch, step = self.config.watch, self.state.step
        with self.stopwatch.part("measure"):
            drawings = Drawings(self.setup, watch.pictures_count if watch.pictures_every else 0, watch.picture_height)
            figures = measured(self.model, self.setup, self.held_out, self.parallel, drawings.add)
            drawn = drawings.gathered(self.parallel)
        if self.parallel.rank != 0:
            return None
        # The figure that counts of each task; the first chooses the best checkpoint.
        counts = {self.setup.label(task, part.metric.primary): part.metric for task, part in self.setup.parts.items()}
        first, metric = next(iter(counts.items()))
        record = {
            "task": self.setup.name,
            "step": step,
            "metric": first,
            "metrics": list(counts),
            "score": figures[first] if metric.higher else -figures[first],
            "pictures": len(self.held_out),
            "figures": figures,
        }
        self.storage.write_bytes(f"{MEASURED}/step-{step:09d}.json", dump(record, indent=1) + b"\n")
        if drawn is not None and self._journal is not None:
            self._journal.picture(step, "predictions", drawn)
        if self.report is not None:
            shown = ", ".join(f"{name} {figures[name]:.4f}" for name in counts)
            self.report(step, {MESSAGE: f"{self.setup.name} {shown} after {step:,} steps"}, False)
        return record
