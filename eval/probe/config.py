"""Configuration of a probe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curation.config import Config


class ProbeConfig(Config):
    """How a linear layer is fitted to frozen features.

    The paper probes densely with the same settings for every backbone and states none of them (6.2); the defaults of
    `softmax` are those of DINOv3's linear segmentation probe, an ancestor of the recipe.
    """

    method: Literal["ridge", "softmax"] = Field(
        "ridge",
        description="ridge: least squares on the class shares of patches, exact; softmax: cross-entropy of pixels, "
        "batch norm + linear by AdamW (DINOv3)",
    )
    l2: float = Field(
        1e-3, gt=0, description="ridge: penalty on the weights of features of unit variance, per patch (our choice)"
    )
    lr: float = Field(1e-3, gt=0, description="softmax: peak learning rate of AdamW (DINOv3)")
    weight_decay: float = Field(1e-3, ge=0, description="softmax: AdamW's (DINOv3)")
    batch: int = Field(16, ge=1, description="softmax: pictures of a step (DINOv3)")
    steps: int = Field(40_000, ge=1, description="softmax: steps (DINOv3)")
    warmup: int = Field(1500, ge=0, description="softmax: steps of linear warm-up, then a cosine to 0 (DINOv3)")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="softmax: of the order of pictures; ridge draws nothing")
    encode_batch: int = Field(32, ge=1, description="pictures that are encoded at a time; changes rounding only")

    @model_validator(mode="after")
    def _warmup(self) -> ProbeConfig:
        if self.method == "softmax" and self.warmup >= self.steps:
            raise ValueError(
                f"warmup is {self.warmup} of {self.steps} steps: the learning rate would never reach its peak. Give "
                "fewer, e.g. a tenth of the steps."
            )
        return self
