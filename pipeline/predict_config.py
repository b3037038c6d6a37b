"""The file of `populace predict --config`: every setting, in sections."""

from __future__ import annotations

import argparse
from typing import Any

from pydantic import Field

from curation.config import Config
from curation.scorers.person_yolo import YoloPersonConfig
from training.prediction.config import InputConfig, OutputConfig, PredictorConfig
from training.tasks.pose import PoseConfig
from training.tasks.segmentation import SegmentationConfig

_ARGUMENTS = {
    "inputs": ("limit", "step", "max_side"),
    "outputs": ("gallery", "normals", "depth"),
}
"""Section -> arguments of the command with the same name."""


class PredictConfig(Config):
    """Settings of a prediction; arguments of the command go before them."""

    predictor: PredictorConfig = Field(PredictorConfig(), description="batches, flip test, boxes, fit of pictures")
    inputs: InputConfig = Field(InputConfig(), description="which pictures are read, and how they are decoded")
    outputs: OutputConfig = Field(OutputConfig(), description="what is written")
    detector: YoloPersonConfig | None = Field(None, description="of people for pose; null: as --detector says")
    pose: PoseConfig | None = Field(None, description="keypoints, crop and decoder; null: as the weights say")
    seg: SegmentationConfig | None = Field(None, description="classes; null: as the weights say")

    def with_options(self, options: argparse.Namespace) -> dict[str, Any]:
        """As a mapping, with the arguments that were given."""
        values = self.model_dump()
        for section, names in _ARGUMENTS.items():
            given = {name: getattr(options, name) for name in names}
            values[section] |= {name: value for name, value in given.items() if value is not None}
        if options.no_overlays:
            values["outputs"]["overlays"] = False
        if options.overwrite:
            values["outputs"]["overwrite"] = True
        return values
