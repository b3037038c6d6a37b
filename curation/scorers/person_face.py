"""From a face to a person: what the embedded face detectors share.

A face detector sees no body. The body's box is *estimated* from the face by the average proportions of a standing
adult and clipped to the picture; the column `person_box_source` says so.

Proportions, in units of the face's height (hairline to chin, which is what libfacedetection's boxes span: on frontal
faces the box is 178 to 186 mm high if the eye line is 65 mm above the mouth):

- crown to chin is 1.25 face heights (trichion-gnathion about 180 mm, vertex-gnathion about 225 mm, means of women and
  men in L. Farkas, Anthropometry of the Head and Face, 2nd ed., 1994);
- stature is 7.5 heads (the artists' canon of 7.5 to 8; the ANSUR surveys' mean statures over head heights give 7.5);
- bideltoid shoulder breadth is 2.05 heads (ANSUR: about 46 cm, mean of women and men, over a head of 22.5 cm).

The box is upright and centred on the face: a lying, sitting or bent person gets a box that is too tall.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from curation.records import Batch, Pixels
from curation.scorers.base import Scorer, ScorerConfig
from curation.scorers.person_columns import (
    COLUMNS,
    ESTIMATED_FROM_FACE,
    FACE5,
    Floats,
    Person,
    clip_box,
    rows_to_columns,
    visible,
)

HEAD_PER_FACE = 1.25
STATURE_IN_HEADS = 7.5
SHOULDERS_IN_HEADS = 2.05

# How far down the body, in heads below the crown, the picture must reach for each framing (same canon: shoulder line
# 1.5, crotch 4, knees 5.5, soles 7.5). A part counts as shown a little before its joint line is reached.
_FRAMING_FROM_HEADS = (("full", 7.0), ("three_quarter", 5.3), ("half", 3.3), ("head_shoulders", 1.5))


class FaceDetectorConfig(ScorerConfig):
    """What all face detectors have in common."""

    min_score: float = Field(0.5, ge=0, le=1, description="faces with a lower score are ignored")
    max_side: int = Field(
        640, ge=64, le=960, description="longer pictures are reduced to this long side before detection, in pixels"
    )


@dataclass(frozen=True, slots=True)
class Face:
    """One face.

    Attributes:
        box: x1, y1, x2, y2 from hairline to chin; may reach outside the picture.
        score: 0..1.
        landmarks: float64 [5, 2] in the order of FACE5, or None.
    """

    box: tuple[float, float, float, float]
    score: float
    landmarks: Floats | None = None

    def scaled(self, x: float, y: float) -> Face:
        """The face in a picture that is resized by these factors."""
        box = (self.box[0] * x, self.box[1] * y, self.box[2] * x, self.box[3] * y)
        return Face(box, self.score, None if self.landmarks is None else self.landmarks * (x, y))


def body_box(face: Sequence[float]) -> tuple[float, float, float, float]:
    """The unclipped box of the body under a face: x1, y1, x2, y2."""
    x1, y1, x2, y2 = face
    head = (y2 - y1) * HEAD_PER_FACE
    centre, half = (x1 + x2) / 2, head * SHOULDERS_IN_HEADS / 2
    top = y2 - head
    return centre - half, top, centre + half, top + head * STATURE_IN_HEADS


def framing_from_face(face: Sequence[float], height: int) -> str:
    """How much of the body is in the picture, if the person stands and nothing hides them; one of FRAMINGS."""
    head = (face[3] - face[1]) * HEAD_PER_FACE
    shown = (height - (face[3] - head)) / head
    return next((name for name, heads in _FRAMING_FROM_HEADS if shown >= heads), "face")


def person_from_face(face: Face, width: int, height: int) -> Person | None:
    """Estimate the person; None if the face is outside the picture or has no extent."""
    face_box, _ = clip_box(face.box, width, height)
    if face_box[2] <= face_box[0] or face_box[3] <= face_box[1]:
        return None
    box, truncation = clip_box(body_box(face.box), width, height)
    keypoints = None
    if face.landmarks is not None:
        keypoints = np.column_stack([face.landmarks, np.ones(len(face.landmarks))])
        keypoints[:, 2] = visible(keypoints, width, height, 0.5)
    framing = framing_from_face(face.box, height)
    return Person(box, face.score, truncation, keypoints, face_box, has_face=True, framing=framing)


class FacePersonScorer(Scorer):
    """Base of the person scorers that find faces. Subclasses implement `detect`.

    Columns: `curation.scorers.person_columns.COLUMNS`.
    """

    name: ClassVar[str] = "person"
    columns = COLUMNS
    needs = ("width", "height")
    layout: ClassVar[str | None] = FACE5

    @abstractmethod
    def detect(self, pixels: Pixels) -> list[Face]:
        """Find faces in an RGB picture, C-contiguous uint8 [h, w, 3] with long side <= `max_side`; its pixels."""

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        """Detect picture by picture; the detectors have no batch interface."""
        sizes = list(zip(batch.columns["width"], batch.columns["height"], strict=True))
        rows = []
        for pixels, (width, height) in zip(batch.pixels, sizes, strict=True):
            small = shrink(pixels, self.config.max_side)
            faces = [
                face.scaled(width / small.shape[1], height / small.shape[0])
                for face in self.detect(small)
                if face.score >= self.config.min_score
            ]
            persons = (person_from_face(face, width, height) for face in faces)
            rows.append([person for person in persons if person is not None])
        return rows_to_columns(rows, sizes, box_source=ESTIMATED_FROM_FACE, layout=self.layout, visibility=0.5)


def shrink(pixels: Pixels, max_side: int) -> Pixels:
    """Reduce to at most `max_side` on the long side (area average); always C-contiguous, never enlarged."""
    height, width = pixels.shape[:2]
    scale = max_side / max(height, width)
    if scale < 1:
        import cv2

        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        return np.ascontiguousarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
    return np.ascontiguousarray(pixels)
