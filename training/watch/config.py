"""What a run shows and keeps of its progress."""

from __future__ import annotations

from pydantic import Field

from curation.config import Config
from training.watch.guard import GuardConfig


class WatchConfig(Config):
    """Logging, pictures and the guard of a training run. All defaults are our choice."""

    every: int = Field(10, ge=1, description="steps between two lines of metrics.jsonl, TensorBoard and the console")
    tensorboard: bool = Field(True, description="write TensorBoard events too, where tensorboard is installed")
    pictures_every: int = Field(
        1000,
        ge=0,
        description="steps between two reconstruction pictures; fine-tuning draws with every measurement; 0 = none",
    )
    pictures_count: int = Field(4, ge=1, le=64, description="images in a picture")
    picture_height: int = Field(
        512, ge=16, description="pixels that a panel of a picture is high at most; larger ones are averaged down"
    )
    rate_window: int = Field(50, ge=1, description="steps that rates and time left are measured over")
    synchronise_timings: bool = Field(
        False,
        description="wait for the GPU around each part of a step, so that the parts' times are its own; costs speed",
    )
    peak_flops: float | None = Field(
        None, gt=0, description="FLOP/s of one device, for utilisation; null = the data sheet's, where it is known"
    )
    guard: GuardConfig = Field(default_factory=GuardConfig, description="what happens at a loss that is not finite")
