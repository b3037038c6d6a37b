"""Where people are, for top-down pose: boxes that are given, or from a detector (files are read in `box_file.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Image = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Boxes:
    """People of one picture.

    Attributes:
        boxes: float32 [n, 4], x0, y0, x1, y1, EDGES of the picture's pixels (the whole picture is 0, 0, W, H).
        scores: float32 [n].

    Raises:
        ValueError: another shape, or numbers that are not finite.
    """

    boxes: Floats
    scores: Floats

    def __post_init__(self) -> None:
        boxes = np.asarray(self.boxes, np.float32)
        boxes = boxes.reshape(0, 4) if not boxes.size else boxes
        scores = np.asarray(self.scores, np.float32)
        if boxes.ndim != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
            raise ValueError(
                f"boxes is {boxes.shape}, scores {scores.shape}: give [n, 4] of x0, y0, x1, y1 in pixels and [n]"
            )
        if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
            raise ValueError("boxes or scores hold nan or infinity: give finite numbers")
        object.__setattr__(self, "boxes", boxes)
        object.__setattr__(self, "scores", scores)

    def __len__(self) -> int:
        return len(self.boxes)

    def selected(self, rows: npt.NDArray[Any]) -> Boxes:
        """Some of them, by index or mask."""
        return Boxes(self.boxes[rows], self.scores[rows])


Detector = Callable[[Image], Boxes]
"""A person detector: a picture uint8 [H, W, 3] RGB -> boxes in its pixels. `training.prediction.detector.yolo` is one;
wrap any other in a function."""


def as_boxes(value: Boxes | npt.ArrayLike) -> Boxes:
    """Boxes [n, 4] without scores have score 1."""
    if isinstance(value, Boxes):
        return value
    array = np.asarray(value, np.float32)
    return Boxes(array, np.ones(len(array), np.float32))


def whole(image: Image) -> Boxes:
    """The whole picture as one box of score 1."""
    return as_boxes([[0, 0, image.shape[1], image.shape[0]]])


def on_picture(found: Boxes, image: Image) -> Boxes:
    """Without the boxes of less than a pixel on the picture. The others are left as they are, also beyond its edge."""
    height, width = image.shape[:2]
    limit = np.array((width, height, width, height), np.float32)
    inside = found.boxes.clip(0, limit)
    return found.selected((inside[:, 2:] - inside[:, :2] >= 1).all(axis=1))


def near_picture(found: Boxes, image: Image) -> Boxes:
    """Boxes cut to the picture with as much again on each side: a box of a billion pixels has no crop."""
    height, width = image.shape[:2]
    low, high = np.array((-width, -height) * 2, np.float32), np.array((2 * width, 2 * height) * 2, np.float32)
    return Boxes(found.boxes.clip(low, high), found.scores)


def non_maximum_suppression(found: Boxes, iou: float) -> Boxes:
    """Best first: a box goes whose intersection over union with a better, kept one is above `iou`.

    Ties keep their order. Areas are (x1 - x0)(y1 - y0); the released helper adds a pixel to each side (fact 4.1).
    """
    order = np.argsort(-found.scores, kind="stable")
    boxes = found.boxes[order].astype(np.float64)
    areas = (boxes[:, 2:] - boxes[:, :2]).clip(min=0).prod(axis=1)
    left = np.ones(len(boxes), bool)
    kept = []
    for index in range(len(boxes)):
        if not left[index]:
            continue
        kept.append(index)
        corners = np.minimum(boxes[index, 2:], boxes[:, 2:]) - np.maximum(boxes[index, :2], boxes[:, :2])
        shared = corners.clip(min=0).prod(axis=1)
        left &= shared <= iou * np.maximum(areas[index] + areas - shared, 1e-12)
    return found.selected(order[kept])


class KnownBoxes(Protocol):
    """People that are known before the pictures are read."""

    @property
    def detections(self) -> bool:
        """There are scores, so that the boxes are a detector's: those of low scores and the weaker of two go."""

    @property
    def ids(self) -> Mapping[str, int | str]:
        """File name -> id of the picture, where pictures have ids."""

    def __call__(self, name: str) -> Boxes | None:
        """Boxes of a picture by its file name; None: nothing is known of it.

        Raises:
            ValueError: what is known of this picture is damaged.
        """

    def image_id(self, name: str) -> int | str | None:
        """The id of a picture by its file name."""

    def size(self, name: str) -> tuple[int, int] | None:
        """Height and width of the upright picture that the boxes were made on, where it is known."""
