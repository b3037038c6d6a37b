"""A pretraining run: views of pictures, the schedules of the objective, its centre and its collapse checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from pipeline.storage import Storage
from training.data.batch import Batch
from training.data.corpus import Corpus
from training.data.loader import PretrainLoader
from training.engine.journal import Journal, Report
from training.engine.loop import Loop, Rates
from training.engine.parallel import Parallel
from training.engine.stop import StopSignal
from training.objectives.collapse import CollapseStats
from training.objectives.distillation import teacher_temperature_at, update_centre
from training.objectives.ema import momentum_at
from training.objectives.masks import visible_count
from training.objectives.schedules import warmup_cosine
from training.pretraining.config import PretrainConfig
from training.pretraining.model import Inputs, Output, PretrainModel
from training.watch.pictures import reconstruction_picture
from training.watch.step_cost import StepCost, step_cost


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


class Trainer(Loop[Batch]):
    """A pretraining run on one rank; see `Loop`.

    Args:
        corpus: what is read.
    """

    def __init__(
        self,
        config: PretrainConfig,
        storage: Storage,
        parallel: Parallel,
        corpus: Corpus,
        stop: StopSignal,
        report: Report | None = None,
    ) -> None:
        super().__init__(config, storage, parallel, corpus.fingerprint, stop, report)
        assert isinstance(parallel.model, PretrainModel)
        self.config, self.corpus, self.model = config, corpus, parallel.model
        if config.trains_distillation:
            self.state.tensors["centre"] = torch.zeros(config.model.prototypes, device=parallel.device)
        self.collapse = CollapseStats(
            config.model.prototypes if config.trains_distillation else 1,
            config.model.backbone_config().width,
            config.koleo.group,
            parallel.device,
        )
        self._centre_sum: Tensor | None = None
        self._drawn: tuple[Inputs, Output] | None = None

    @contextmanager
    def batches(self) -> Iterator[Iterator[Batch]]:
        """Views and masks, from the loader."""
        config = self.config
        views = config.views
        if not config.uses_locals:
            views = views.model_copy(update={"local_count": 0})
        with PretrainLoader(
            self.corpus,
            self.corpus.order(config.seed),
            data=config.data,
            views=views,
            mask=config.mask,
            grid=config.model.backbone_config().grid_of(*views.global_size),
            plan=self.plan,
            rank=self.parallel.rank,
            start_step=self.state.step,
            stop_step=config.steps,
            pin_memory=self.parallel.device.type == "cuda",
        ) as loader:
            yield iter(loader)

    def journal(self) -> Journal:
        """With the cost of a picture's views, and pictures where anything is reconstructed."""
        cost = run_step_cost(self.config)
        return Journal(
            self.config, self.storage, self.state.step, self.parallel.world, self.parallel.device, self.report,
            flops=cost.total_flops, tokens=cost.tokens, draws=self.config.trains_reconstruction,
        )  # fmt: skip

    def rates(self, step: int) -> Rates:
        """Warm-up and cosine; prototypes may stay as they are at first."""
        optimiser, steps = self.config.optimiser, self.config.steps
        lr = warmup_cosine(step, peak=optimiser.lr, final=optimiser.final_lr, warmup=optimiser.warmup, total=steps)
        return Rates(lr, 0.0 if step < optimiser.freeze_last_layer else lr, momentum_at(self.config.ema, step, steps))

    def begin(self) -> None:
        """Empty the sums."""
        self.collapse.reset()
        self._centre_sum = self._drawn = None

    def micro_step(self, batch: Batch, last: bool, drawn: bool) -> tuple[Output, int]:
        """All losses of a micro-batch."""
        with self.stopwatch.part("data"):
            inputs = self.model.prepare(batch.to(self.parallel.device))
        temperature = teacher_temperature_at(self.config.distillation, self.state.step)
        output: Output = self.parallel.micro_step(inputs, temperature, self.state.tensors.get("centre"), last=last)
        if output.centre_sum is not None:
            self._centre_sum = output.centre_sum if self._centre_sum is None else self._centre_sum + output.centre_sum
        self.collapse.update(output.teacher, output.cls)
        if drawn:
            self._drawn = inputs, output
        return output, int(batch.replaced.sum())

    def places(self, batch: Batch) -> list[tuple[int, str]]:
        """Of the samples of a micro-batch."""
        return [(int(place), id_) for place, id_ in zip(batch.position, batch.ids, strict=True)]

    def sums(self) -> Sequence[Tensor]:
        """Of the collapse checks, and of the teacher's logits."""
        return [self.collapse.sums] if self._centre_sum is None else [self.collapse.sums, self._centre_sum]

    def absorb(self, sums: Sequence[Tensor], applied: bool) -> None:
        """Move the centre by the logits of all ranks."""
        self.collapse.sums.copy_(sums[0])
        if applied and len(sums) > 1:
            rows = self.config.views.global_count * self.config.batch.size
            momentum = self.config.distillation.centre_momentum
            self.state.tensors["centre"] = update_centre(self.state.tensors["centre"], sums[1].float(), rows, momentum)

    def numbers(self) -> Mapping[str, float]:
        """The collapse checks."""
        return {f"collapse/{name}": value for name, value in self.collapse.values().items()}

    def picture(self, journal: Journal) -> None:
        """Input, mask and reconstruction of the first images of a micro-batch."""
        assert self._drawn is not None
        (inputs, output), config = self._drawn, self.config
        assert output.predicted is not None
        images = inputs.globals_.flatten(0, 1)
        count = min(config.watch.pictures_count, len(images))
        journal.picture(
            self.state.step,
            "reconstruction",
            reconstruction_picture(
                images[:count].float().cpu(),
                inputs.keep.flatten(0, 1)[:count].cpu(),
                output.predicted[:count].float().cpu(),
                config.model.backbone_config().grid_of(*config.views.global_size),
                config.model.decoder_config().pixels,
                normalised=config.reconstruction.normalise,
                eps=config.reconstruction.eps,
                panel_height=config.watch.picture_height,
            ),
        )
