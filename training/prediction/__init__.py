"""Prediction: from weights and pictures to results, in memory or in a folder.

predictor.py      Predictor.load(task, weights); predictor(images, boxes) -> results; predictor.stream(...)
run.py            predict_to_folder: a whole source into a folder, resumable
architecture.py   which model a checkpoint holds, from its shapes
tasks.py          the object of `training.tasks` that fits a head
inputs.py         folders, lists, videos, exported shards as one stream of pictures
listing.py, videos.py   which files those have, and frames
ahead.py          pictures are decoded while the model is busy
tars.py           reading samples of shards
bad.py            pictures that are passed over
boxes.py          people: given, or from a detector; non-maximum suppression
box_file.py       people from a COCO file
ledger_boxes.py   people that curation found, for the shards that it exported
detector.py       curation's YOLO scorer as a detector
foreground.py, mask_files.py   people's pixels for the dense tasks
results.py        what comes out, by task
writers.py, pose_writer.py, formats.py, files.py, gallery.py   what is written
config.py         settings of all of these
"""

from training.prediction.box_file import BoxFile
from training.prediction.boxes import Boxes, Detector, KnownBoxes
from training.prediction.config import InputConfig, OutputConfig, PredictorConfig
from training.prediction.foreground import folder_masks, predicted_masks
from training.prediction.inputs import Inputs, read_image
from training.prediction.ledger_boxes import LedgerBoxes
from training.prediction.predictor import Predictor
from training.prediction.results import (
    AlbedoResult,
    NormalResult,
    PointmapResult,
    PoseResult,
    Result,
    SegmentationResult,
)
from training.prediction.run import Summary, predict_to_folder

__all__ = [
    "AlbedoResult",
    "BoxFile",
    "Boxes",
    "Detector",
    "InputConfig",
    "Inputs",
    "KnownBoxes",
    "LedgerBoxes",
    "NormalResult",
    "OutputConfig",
    "PointmapResult",
    "PoseResult",
    "Predictor",
    "PredictorConfig",
    "Result",
    "SegmentationResult",
    "Summary",
    "folder_masks",
    "predict_to_folder",
    "predicted_masks",
    "read_image",
]
