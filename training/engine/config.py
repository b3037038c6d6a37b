"""Configuration of the training engine: workers, precision, memory, checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from curation.config import Config, fingerprint
from training.watch.config import WatchConfig

if TYPE_CHECKING:
    from pipeline.storage import Storage
    from training.engine.journal import Report
    from training.engine.loop import Loop
    from training.engine.parallel import Parallel
    from training.engine.stop import StopSignal
    from training.engine.trainable import Trainable


class EngineConfig(Config):
    """On what a run trains. Losses change by no more than rounding, except with `precision`, and with `workers` where a
    loss looks at the pictures of all of them (`PretrainConfig.rows_at_a_time`)."""

    kind: Literal["zero3", "single"] = Field(
        "zero3", description="zero3: Ray Train workers with DeepSpeed ZeRO-3; single: plain torch in this process"
    )
    workers: int = Field(1, ge=1, description="processes that train, one per GPU; for kind zero3")
    min_workers: int | None = Field(
        None,
        ge=1,
        description="fewest workers to go on with when the cluster has no more (elastic); null: always `workers`",
    )
    use_gpu: bool = Field(False, description="one GPU per worker")
    cpus_per_worker: float = Field(1, gt=0, description="cores that Ray reserves for a worker; its loaders share them")
    precision: Literal["bfloat16", "float32"] = Field(
        "bfloat16", description="of arithmetic; master weights, moments and teacher are float32 either way"
    )
    activation_checkpointing: bool = Field(
        False, description="keep the inputs of blocks only, and compute the rest again: less memory, a third more work"
    )
    compile: bool = Field(False, description="torch.compile of the encoder's blocks")
    offload: Literal["none", "cpu", "nvme"] = Field("none", description="where optimizer state and masters live")
    offload_path: str | None = Field(None, description="folder on a fast disk; for offload nvme")
    max_failures: int = Field(3, ge=-1, description="restarts after a worker or node was lost; -1: no limit")

    @model_validator(mode="after")
    def _consistent(self) -> EngineConfig:
        if self.kind == "single" and self.workers != 1:
            raise ValueError(f"engine.kind single trains in one process, but workers is {self.workers}: give 1")
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError(f"min_workers {self.min_workers} is more than workers {self.workers}")
        if self.offload == "nvme" and not self.offload_path:
            raise ValueError("offload is nvme: give offload_path, a folder on that disk")
        if self.kind == "single" and self.offload != "none":
            raise ValueError("offload needs engine.kind zero3")
        return self

    def check_workers(self, batch: int, micro: int) -> None:
        """See that a step's pictures divide among every number of workers that may come about.

        Raises:
            ValueError: for a number they do not.
        """
        if micro > batch:
            raise ValueError(f"batch.micro {micro} is more than batch.size {batch}: give {batch} or less")
        if batch % micro:
            fitting = [size for size in range(1, batch) if batch % size == 0]
            raise ValueError(
                f"batch.micro {micro} does not divide batch.size {batch}; these do: {', '.join(map(str, fitting[:20]))}"
            )
        fewest = self.workers if self.min_workers is None else self.min_workers
        wrong = [count for count in range(fewest, self.workers + 1) if batch % (count * micro)]
        if wrong:
            allowed = [count for count in range(1, batch // micro + 1) if batch % (count * micro) == 0]
            raise ValueError(
                f"batch.size {batch} does not divide among {', '.join(map(str, wrong))} workers with batch.micro "
                f"{micro}; it does among {', '.join(map(str, allowed[:20]))}. Change batch.size, batch.micro or the "
                "workers (elastic runs need a size that every number from min_workers to workers divides)."
            )


class CheckpointConfig(Config):
    """When the state of a run is saved, and what is kept of it."""

    every: int = Field(1000, ge=1, description="steps between checkpoints; the last step is always saved")
    keep_last: int = Field(2, ge=1, description="newest checkpoints that are kept")
    keep_every: int | None = Field(None, ge=1, description="steps whose multiples are kept for good; null: none")
    keep_best: int = Field(
        0, ge=0, description="checkpoints with the best probe scores (`probe.json` beside them) that are kept"
    )
    background: bool = Field(True, description="write while training goes on, from a copy in host memory")


class OptimiserConfig(Config):
    """AdamW and its schedule; defaults are the paper's (A.1.1)."""

    lr: float = Field(1e-4, gt=0, description="peak learning rate (absolute, not per sample); 1e-4: the paper")
    final_lr: float = Field(1e-7, ge=0, description="learning rate at the end of the cosine; 1e-7: the paper")
    warmup: int = Field(1000, ge=0, description="steps of linear warm-up from 0; 1000: the paper")
    betas: tuple[float, float] = Field((0.9, 0.95), description="the paper's, and MAE's")
    eps: float = Field(1e-8, gt=0, description="AdamW's epsilon; torch's default")
    weight_decay: float = Field(
        0.05, ge=0, description="of matrices only: none on norms, biases, tokens, position embeddings; 0.05: the paper"
    )
    clip_norm: float | None = Field(5.0, gt=0, description="global gradient norm; 5: the paper; null: no clipping")

    @model_validator(mode="after")
    def _betas(self) -> OptimiserConfig:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {list(self.betas)}; both must be at least 0 and below 1")
        return self


class BatchConfig(Config):
    """How many pictures make a step. `micro` changes losses by rounding only, except where they are pooled over the
    pixels of a micro-batch (fine-tuning of normals, pointmap and albedo)."""

    size: int = Field(2048, ge=1, description="pictures of a step, over all workers; the paper is silent (our reading)")
    micro: int = Field(8, ge=1, description="pictures at a time on one worker; what its memory holds")


class TrainConfig(Config):
    """What every training run has; the kinds of runs add their own sections."""

    seed: int = Field(0, ge=0, le=2**31 - 1, description="of weights, order and augmentations")
    steps: int = Field(ge=1, description="optimizer steps")
    optimiser: OptimiserConfig = OptimiserConfig()
    batch: BatchConfig = BatchConfig()
    engine: EngineConfig = EngineConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    watch: WatchConfig = WatchConfig()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What fixes the losses of a run: it cannot change between a run and its continuation."""

    @abstractmethod
    def build_model(self) -> Trainable:
        """The module, with random weights of torch's generator."""

    @abstractmethod
    def make_trainer(
        self, storage: Storage, parallel: Parallel, stop: StopSignal, report: Report | None = None
    ) -> Loop:
        """The run of one rank."""

    @abstractmethod
    def check(self) -> None:
        """Look at the data, so that what is wrong with it is said before workers start."""

    def resumed(self) -> Self:
        """To construct the model of a run that has checkpoints: initial weights are read at the beginning only."""
        return self

    def result_hash(self) -> str:
        """Fingerprint of `identity()`."""
        return fingerprint(self.identity())
