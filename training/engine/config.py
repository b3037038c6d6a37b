"""Configuration of the training engine: workers, precision, memory, checkpoints."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curation.config import Config


class EngineConfig(Config):
    """On what a run trains. Of these only `precision` changes its losses by more than rounding."""

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
