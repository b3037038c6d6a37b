"""A YOLO pose model in ONNX, run by ONNX Runtime: letterbox, session, decoding, suppression. No ultralytics needed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.records import Pixels

KEYPOINTS = 17
_FILL = 114  # the grey with which the published models were trained


@dataclass(frozen=True, slots=True)
class Poses:
    """Persons in one picture, best score first.

    Attributes:
        boxes: float32 [N, 4], x1, y1, x2, y2 in pixels of the given picture.
        scores: float32 [N], 0..1.
        keypoints: float32 [N, 17, 3], x, y, confidence.
    """

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    keypoints: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Letterbox:
    """How a picture was placed on the model's canvas: scaled by (x, y), then moved by (left, top) pixels."""

    scale_x: float
    scale_y: float
    left: int
    top: int


class OnnxPose:
    """Runs an exported pose model on lists of pictures.

    Args:
        path: the `.onnx`; either the raw head (float [B, 4 + classes + 51, anchors]: centre x, centre y, width, height,
            class scores, keypoints) or with suppression inside ([B, N, 57]: x1, y1, x2, y2, score, class, keypoints).
        image_size: side of the square canvas, for models with dynamic height and width.
        conf: smallest score that is kept.
        iou: overlap above which the weaker box is suppressed (raw heads only).
        max_det: most persons per picture.
        threads: native threads.
        gpu: None, or the CUDA device to run on.

    Raises:
        ValueError: the file is not a pose model with 17 keypoints, or ONNX Runtime cannot use the GPU.
    """

    def __init__(
        self, path: Path, *, image_size: int, conf: float, iou: float, max_det: int, threads: int, gpu: int | None
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, threads)
        options.inter_op_num_threads = 1
        providers: list[Any] = ["CPUExecutionProvider"]
        if gpu is not None:
            if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
                raise ValueError(
                    f"scorers.person.device is a GPU, and this ONNX Runtime has only "
                    f"{onnxruntime.get_available_providers()}: install onnxruntime-gpu instead of onnxruntime, or set "
                    f"scorers.person.device=cpu"
                )
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": gpu}))
        self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        source = self._session.get_inputs()[0]
        self._input = source.name
        self._dtype: npt.DTypeLike = np.float16 if "float16" in source.type else np.float32
        batch, channels, height, width = source.shape if len(source.shape) == 4 else (None, None, None, None)
        self._batch = batch if isinstance(batch, int) else None
        self._height = height if isinstance(height, int) else image_size
        self._width = width if isinstance(width, int) else image_size
        metadata = self._session.get_modelmeta().custom_metadata_map
        shape = ast.literal_eval(metadata.get("kpt_shape", "None"))
        if channels not in (3, "channels") or (shape is not None and list(shape) != [KEYPOINTS, 3]):
            raise ValueError(
                f"scorers.person.weights={path.name}: expected a pose model of images [B, 3, H, W] with "
                f"{KEYPOINTS} keypoints of x, y, visibility; this one takes {source.shape}, keypoints {shape}"
            )
        self._path, self._conf, self._iou, self._max_det = path, conf, iou, max_det

    def __call__(self, pictures: Sequence[Pixels]) -> list[Poses]:
        """Find persons in RGB pictures, uint8 [h, w, 3] of any sizes."""
        step = self._batch or max(1, len(pictures))
        return [pose for start in range(0, len(pictures), step) for pose in self._run(pictures[start : start + step])]

    def _run(self, pictures: Sequence[Pixels]) -> list[Poses]:
        canvas = np.full((self._batch or len(pictures), self._height, self._width, 3), _FILL, np.uint8)
        boxes = [letterbox(picture, canvas[row]) for row, picture in enumerate(pictures)]
        tensor = np.ascontiguousarray(canvas.transpose(0, 3, 1, 2), np.float32) / np.float32(255)
        output = self._session.run(None, {self._input: tensor.astype(self._dtype, copy=False)})[0].astype(np.float32)
        return [
            self._decode(output[row], box, picture.shape)
            for row, (box, picture) in enumerate(zip(boxes, pictures, strict=True))
        ]

    def _decode(self, output: npt.NDArray[np.float32], placed: Letterbox, shape: tuple[int, ...]) -> Poses:
        """One picture's output, as persons in pixels of the picture."""
        if output.ndim == 2 and output.shape[1] == 6 + 3 * KEYPOINTS:
            rows = output[(output[:, 4] > self._conf) & (output[:, 5] == 0)]
            corners, scores, points = rows[:, :4], rows[:, 4], rows[:, 6:]
            order = np.argsort(-scores, kind="stable")[: self._max_det]
        elif output.ndim == 2 and output.shape[0] > 4 + 3 * KEYPOINTS:
            output = output.T
            classes = output[:, 4 : -3 * KEYPOINTS]
            rows = output[(classes[:, 0] > self._conf) & (classes.argmax(axis=1) == 0)]  # class 0 is person, as in COCO
            centre, half = rows[:, :2], rows[:, 2:4] / 2
            corners, scores, points = np.hstack([centre - half, centre + half]), rows[:, 4], rows[:, -3 * KEYPOINTS :]
            order = suppress(corners, scores, self._iou, self._max_det)
        else:
            raise ValueError(
                f"{self._path.name} returns {list(output.shape)} per picture: expected [4 + classes + {3 * KEYPOINTS}, "
                f"anchors] or [N, {6 + 3 * KEYPOINTS}] of a YOLO pose model"
            )
        height, width = shape[:2]
        corners, points = corners[order].copy(), points[order].reshape(-1, KEYPOINTS, 3).copy()
        corners[:, 0::2] = np.clip((corners[:, 0::2] - placed.left) / placed.scale_x, 0, width)
        corners[:, 1::2] = np.clip((corners[:, 1::2] - placed.top) / placed.scale_y, 0, height)
        points[:, :, 0] = np.clip((points[:, :, 0] - placed.left) / placed.scale_x, 0, width)
        points[:, :, 1] = np.clip((points[:, :, 1] - placed.top) / placed.scale_y, 0, height)
        return Poses(corners, scores[order], points)


def letterbox(picture: Pixels, canvas: Pixels) -> Letterbox:
    """Scale a picture to fit the canvas, aspect ratio kept, and put it in the middle; the rest stays as it is."""
    import cv2

    (height, width), (room_y, room_x) = picture.shape[:2], canvas.shape[:2]
    scale = min(room_y / height, room_x / width)
    new_x, new_y = max(1, round(width * scale)), max(1, round(height * scale))
    if (new_y, new_x) != (height, width):
        picture = np.asarray(cv2.resize(picture, (new_x, new_y), interpolation=cv2.INTER_LINEAR), np.uint8)
    # An odd rest: the smaller half goes left and above.
    left, top = round((room_x - new_x) / 2 - 0.1), round((room_y - new_y) / 2 - 0.1)
    canvas[top : top + new_y, left : left + new_x] = picture
    return Letterbox(new_x / width, new_y / height, left, top)


def suppress(
    boxes: npt.NDArray[np.float32], scores: npt.NDArray[np.float32], iou: float, limit: int
) -> npt.NDArray[np.intp]:
    """Greedy non-maximum suppression.

    Args:
        boxes: [N, 4] x1, y1, x2, y2.
        scores: [N].
        iou: a box is dropped if its intersection over union with a kept, better one is above this.
        limit: most boxes that are kept.

    Returns:
        Indices of the kept boxes, best score first; equal scores in input order.
    """
    order = np.argsort(-scores, kind="stable")
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        corner_a = np.maximum(boxes[rest, :2], boxes[best, :2])
        corner_b = np.minimum(boxes[rest, 2:], boxes[best, 2:])
        common = np.clip(corner_b - corner_a, 0, None).prod(axis=1)
        union = areas[rest] + areas[best] - common
        order = rest[common <= iou * union]
    return np.asarray(kept, dtype=np.intp)
