"""The curation's YOLO person scorer as a detector of people for pose."""

from __future__ import annotations

import numpy as np

from curation.scorers.person_yolo import YoloPersonConfig, YoloPersonScorer
from training.prediction.boxes import Boxes, Detector, Image


def yolo(config: YoloPersonConfig | None = None) -> Detector:
    """A detector from a YOLO pose model: an ONNX file or an ultralytics checkpoint (see `YoloPersonConfig`).

    Its keypoints are not used. The default checkpoint is ultralytics' (AGPL-3.0), which downloads it.

    Raises:
        MissingWeightsError: the file, or the package that runs it, is absent.
        ValueError: the file is not allowed, or not a pose model.
    """
    scorer = YoloPersonScorer(config or YoloPersonConfig())
    scorer.check()
    scorer.setup()

    def detect(image: Image) -> Boxes:
        found = scorer.predict([image])[0]
        return Boxes(np.asarray(found.boxes, np.float32), np.asarray(found.scores, np.float32))

    return detect
