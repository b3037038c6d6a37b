"""Persons with 17 keypoints from a YOLO pose model: an ONNX file, or an ultralytics checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from curation.records import Batch, Pixels
from curation.scorers.base import Scorer, ScorerConfig, Weights
from curation.scorers.person_columns import (
    COCO17,
    COLUMNS,
    DETECTED,
    Person,
    clip_box,
    framing_from_coco17,
    rows_to_columns,
    visible,
)
from curation.scorers.weights import require_same
from curation.scorers.yolo_onnx import KEYPOINTS, OnnxPose, Poses
from curation.scorers.yolo_weights import prepare_ultralytics, resolve

_NOSE, _EYES = 0, (1, 2)


class YoloPersonConfig(ScorerConfig):
    """A YOLO pose model. Ultralytics' own checkpoints are AGPL-3.0."""

    kind: Literal["yolo"] = "yolo"
    weights: str = Field(
        "yolo11x-pose.pt",
        description="a pose checkpoint's name as published by ultralytics; or a path: an .onnx (preferred), or a .pt "
        "with `sha256`",
    )
    sha256: str | None = Field(
        None,
        pattern=r"^[0-9a-fA-F]{64}$",
        description="the file's SHA-256; without it no .pt is opened from a path, since that would run its code",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda|cuda:\d+)$",
        description="auto: the GPU that the worker was given, else the CPU",
    )
    half: bool = Field(True, description="16-bit floats on a GPU; never on a CPU. An .onnx has its own precision")
    conf: float = Field(0.25, gt=0, lt=1, description="persons with a lower score are ignored")
    iou: float = Field(0.7, gt=0, le=1, description="overlap above which the weaker of two boxes is suppressed")
    image_size: int = Field(
        640, ge=32, multiple_of=32, description="side of the model's square input; an .onnx of fixed size has its own"
    )
    max_det: int = Field(100, ge=1, le=300, description="most persons per picture")
    min_visibility: float = Field(0.5, ge=0, le=1, description="confidence from which a keypoint counts as visible")
    border: float = Field(
        0.005,
        ge=0,
        le=0.1,
        description="a box side that is within this share of the picture's side from its border is cut by the border",
    )

    def identity(self) -> dict[str, Any]:
        """Without the place of the file: the content's hash identifies it."""
        return {key: value for key, value in super().identity().items() if key not in ("weights", "sha256")}


class YoloPersonScorer(Scorer):
    """Columns: `curation.scorers.person_columns.COLUMNS`; `face_box` is None, since the model gives no face boxes."""

    name: ClassVar[str] = "person"
    columns = COLUMNS
    needs = ("width", "height")

    def __init__(self, config: YoloPersonConfig) -> None:
        super().__init__(config)
        self._checked: list[Weights] | None = None
        self._model: Callable[[Sequence[Pixels]], list[Poses]] | None = None

    def check(self) -> list[Weights]:
        """Find the file, or download a published one, and hash it; nothing is unpickled.

        Raises:
            MissingWeightsError: the file, or the package that runs it, is absent.
            ValueError: the file is not allowed (see `curation.scorers.yolo_weights`).
        """
        self._checked = [resolve(self.config.weights, self.config.sha256)[1]]
        return self._checked

    def setup(self) -> None:
        """Load the model.

        Raises:
            MissingWeightsError: this worker has no file, or another file than the driver checked.
            ValueError: the file is not allowed, or not a pose model with 17 keypoints.
        """
        path, found = resolve(self.config.weights, self.config.sha256)
        require_same(self._checked, [found], self.name)
        gpu = _gpu(self.config.device)
        if path.suffix.lower() == ".onnx":
            self._model = OnnxPose(
                path,
                image_size=self.config.image_size,
                conf=self.config.conf,
                iou=self.config.iou,
                max_det=self.config.max_det,
                threads=int(self.config.resources.num_cpus),
                gpu=gpu,
            )
        else:
            self._model = UltralyticsPose(path, self.config, gpu)

    def predict(self, pictures: Sequence[Pixels]) -> list[Poses]:
        """Persons in RGB pictures, in pixels of these pictures. One model call."""
        if self._model is None:
            raise RuntimeError("call setup() before score()")
        return self._model(pictures)

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        """One model call for the batch."""
        sizes = list(zip(batch.columns["width"], batch.columns["height"], strict=True))
        poses = self.predict(batch.pixels)
        rows = [
            self._persons(found, pixels, width, height)
            for found, pixels, (width, height) in zip(poses, batch.pixels, sizes, strict=True)
        ]
        return rows_to_columns(rows, sizes, box_source=DETECTED, layout=COCO17, visibility=self.config.min_visibility)

    def _persons(self, found: Poses, pixels: Pixels, width: int, height: int) -> list[Person]:
        scale = np.array([width / pixels.shape[1], height / pixels.shape[0]])
        persons = []
        for corners, score, points in zip(found.boxes, found.scores, found.keypoints, strict=True):
            box, truncation = clip_box(
                np.asarray(corners, np.float64) * np.tile(scale, 2),
                width,
                height,
                max(1.0, self.config.border * min(width, height)),
            )
            if box[2] <= box[0] or box[3] <= box[1]:
                continue
            keypoints = np.asarray(points, np.float64)
            keypoints = np.column_stack([keypoints[:, :2] * scale, keypoints[:, 2]])
            seen = visible(keypoints, width, height, self.config.min_visibility)
            persons.append(
                Person(
                    box,
                    float(score),
                    truncation,
                    keypoints,
                    has_face=bool(seen[_NOSE] and seen[list(_EYES)].any()),
                    framing=framing_from_coco17(seen),
                )
            )
        return persons


class UltralyticsPose:
    """Runs an ultralytics checkpoint. The file must have been approved by `yolo_weights.resolve`."""

    def __init__(self, path: Path, config: YoloPersonConfig, gpu: int | None) -> None:
        prepare_ultralytics()
        from ultralytics import YOLO
        from ultralytics.utils import DEFAULT_CFG_DICT

        self._yolo = YOLO(str(path), task="pose", verbose=False)
        shape = list(getattr(self._yolo.model, "kpt_shape", None) or [])
        if self._yolo.task != "pose" or shape != [KEYPOINTS, 3]:
            raise ValueError(
                f"scorers.person.weights={config.weights!r}: expected a pose model with {KEYPOINTS} keypoints of x, y, "
                f"visibility; this is a {self._yolo.task} model, keypoints {shape or None}"
            )
        self._arguments: dict[str, Any] = {
            "imgsz": config.image_size,
            "conf": config.conf,
            "iou": config.iou,
            "max_det": config.max_det,
            "classes": [0],  # person, as in COCO
            "rect": False,  # a fixed square: the result must not depend on the batch's other pictures
            "device": "cpu" if gpu is None else f"cuda:{gpu}",
            "verbose": False,
            "save": False,
        }
        if gpu is not None and config.half:
            self._arguments |= {"quantize": 16} if "quantize" in DEFAULT_CFG_DICT else {"half": True}

    def __call__(self, pictures: Sequence[Pixels]) -> list[Poses]:
        """Find persons in RGB pictures, uint8 [h, w, 3] of any sizes."""
        if not pictures:
            return []
        # The library takes arrays as BGR, and a list as one batch.
        bgr = [np.ascontiguousarray(picture[:, :, ::-1]) for picture in pictures]
        # A result holds its picture: keep the numbers, drop the results.
        return [_poses(result) for result in self._yolo.predict(bgr, batch=len(bgr), **self._arguments)]


def _poses(result: Any) -> Poses:
    boxes = result.boxes.xyxy.float().cpu().numpy()
    scores = result.boxes.conf.float().cpu().numpy()
    keypoints = result.keypoints.data.float().cpu().numpy().reshape(-1, KEYPOINTS, 3)
    order = np.argsort(-scores, kind="stable")
    return Poses(boxes[order], scores[order], keypoints[order])


def _gpu(device: str) -> int | None:
    """The CUDA device's number, or None for the CPU."""
    if device == "cpu":
        return None
    if device == "auto":
        import torch

        return 0 if torch.cuda.is_available() else None
    return int(device.partition(":")[2] or 0)
