"""Frames of a video, through OpenCV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np

from curation.codecs.base import Problem
from curation.reasons import Reason
from training.prediction.boxes import Image

Frame = tuple[int | None, Callable[[], Image | Problem]]
"""A frame's number from 0, None = the video itself; and what decodes it, before the next one is asked for."""


def frame_count(path: Path) -> int:
    """As the header has it; 0 where it says nothing."""
    capture = cv2.VideoCapture(str(path))
    count = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    capture.release()
    return max(0, count)


def frames(path: Path, step: int, max_side: int | None = None) -> Iterator[Frame]:
    """Every `step`-th frame, uint8 [H, W, 3] RGB; a video that cannot be read is one problem."""
    capture = cv2.VideoCapture(str(path))
    try:
        if not capture.isOpened():
            missing = Problem(Reason.MISSING, f"{path} does not exist")
            unread = Problem(Reason.UNSUPPORTED_FORMAT, f"{path}: OpenCV cannot read this video")
            yield None, lambda: unread if path.exists() else missing
            return
        number = 0
        while capture.grab():
            if number % step == 0:
                yield number, lambda: _retrieved(capture, max_side)
            number += 1
        if not number:
            yield None, lambda: Problem(Reason.TRUNCATED, f"{path}: no frame could be read")
    finally:
        capture.release()


def _retrieved(capture: cv2.VideoCapture, max_side: int | None) -> Image | Problem:
    try:
        found, frame = capture.retrieve()
    except cv2.error as error:
        return Problem(Reason.CORRUPT, f"OpenCV cannot decode this frame: {error}")
    if not found or frame is None:
        return Problem(Reason.CORRUPT, "OpenCV cannot decode this frame")
    image = np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), np.uint8)
    if max_side is not None and max(image.shape[:2]) > max_side:
        height, width = (max(1, round(length * max_side / max(image.shape[:2]))) for length in image.shape[:2])
        image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    return image
