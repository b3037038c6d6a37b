"""The columns that every person detector fills, and the geometry behind them.

All coordinates are pixels of the original, EXIF-oriented picture, as continuous values: x from 0 (left edge) to
`width`, y from 0 (top edge) to `height`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]

MAX_BOXES = 16
"""How many persons `person_boxes` holds."""

TRUNCATED_LEFT, TRUNCATED_TOP, TRUNCATED_RIGHT, TRUNCATED_BOTTOM = 1, 2, 4, 8
"""Bits of `person_truncation`."""

DETECTED = "detected"
ESTIMATED_FROM_FACE = "estimated_from_face"

COCO17 = "coco17"
"""Keypoint layout: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles; in each pair the subject's left
side first."""

FACE5 = "face5"
"""Keypoint layout: right eye, left eye, nose tip, right and left corner of the mouth. Sides are the subject's own, so
in an unmirrored frontal picture the right eye has the smaller x."""

LAYOUT_LENGTH = {COCO17: 17, FACE5: 5}

FRAMINGS = ("face", "head_shoulders", "half", "three_quarter", "full")
"""Values of `person_framing`, from close to wide: the lowest part of the body in the picture is the face, the
shoulders, the hips, the knees, the feet."""

COLUMNS: dict[str, pa.DataType] = {
    # Persons above the detector's threshold. 0 is a value: nobody was found.
    "person_count": pa.int32(),
    # The largest person: the one whose box has the longest short side. Every `person_*` column below is about them.
    "person_box": pa.list_(pa.float32()),  # [x1, y1, x2, y2]; None without a person
    "person_short_side": pa.float32(),  # pixels; the maximum over persons; 0 without a person
    "person_score": pa.float32(),  # the detector's score, 0..1; 0 without a person
    "person_area_share": pa.float32(),  # box area / picture area, 0..1; 0 without a person
    "person_truncation": pa.int8(),  # TRUNCATED_* bits of the borders that cut the box; None without a person
    "person_box_source": pa.string(),  # DETECTED | ESTIMATED_FROM_FACE
    "person_keypoints": pa.list_(pa.float32()),  # x, y, visibility (0..1) of each keypoint of the layout
    "person_keypoint_layout": pa.string(),  # COCO17 | FACE5 | None when the detector gives none
    "person_keypoint_visibility": pa.float32(),  # share of the keypoints that are visible, 0..1
    "person_framing": pa.string(),  # one of FRAMINGS, or None when it cannot be told
    # Up to MAX_BOXES persons, largest first: x1, y1, x2, y2, score of each.
    "person_boxes": pa.list_(pa.float32()),
    "face_count": pa.int32(),  # faces found; for COCO17: persons whose nose and at least one eye are visible
    "face_box": pa.list_(pa.float32()),  # [x1, y1, x2, y2] of the largest person's face; None if not measured
}


@dataclass(frozen=True, slots=True)
class Person:
    """One detected person, clipped to the picture.

    Attributes:
        box: x1, y1, x2, y2 in original pixels.
        score: 0..1.
        truncation: TRUNCATED_* bits.
        keypoints: float64 [K, 3] of x, y, visibility (0..1), or None.
        face_box: x1, y1, x2, y2, or None when the detector does not give it.
        has_face: True when a face is visible.
        framing: one of FRAMINGS, or None.
    """

    box: tuple[float, float, float, float]
    score: float
    truncation: int
    keypoints: Floats | None = None
    face_box: tuple[float, float, float, float] | None = None
    has_face: bool = False
    framing: str | None = None

    @property
    def short_side(self) -> float:
        """Shorter side of the box in pixels."""
        return min(self.box[2] - self.box[0], self.box[3] - self.box[1])

    @property
    def area(self) -> float:
        """Area of the box in pixels."""
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])


def clip_box(
    box: Sequence[float], width: int, height: int, tolerance: float = 0.0
) -> tuple[tuple[float, float, float, float], int]:
    """Clip a box to the picture and tell which borders cut it.

    Args:
        box: x1, y1, x2, y2.
        width: of the picture.
        height: of the picture.
        tolerance: a side within this many pixels of the border counts as cut by it.

    Returns:
        The clipped box, and TRUNCATED_* bits.
    """
    x1, y1, x2, y2 = (float(value) for value in box)
    bits = (
        (TRUNCATED_LEFT if x1 <= tolerance else 0)
        | (TRUNCATED_TOP if y1 <= tolerance else 0)
        | (TRUNCATED_RIGHT if x2 >= width - tolerance else 0)
        | (TRUNCATED_BOTTOM if y2 >= height - tolerance else 0)
    )
    clipped = (
        min(max(x1, 0.0), float(width)),
        min(max(y1, 0.0), float(height)),
        min(max(x2, 0.0), float(width)),
        min(max(y2, 0.0), float(height)),
    )
    return clipped, bits


def visible(keypoints: Floats, width: int, height: int, threshold: float) -> npt.NDArray[np.bool_]:
    """Which keypoints count as visible: confident enough and inside the picture. Bool [K]."""
    x, y, confidence = keypoints[:, 0], keypoints[:, 1], keypoints[:, 2]
    inside = (x >= 0) & (x <= width) & (y >= 0) & (y <= height)
    return np.asarray((confidence >= threshold) & inside, dtype=bool)


def framing_from_coco17(seen: npt.NDArray[np.bool_]) -> str | None:
    """Framing from the lowest visible joints of COCO17; `seen` is bool [17]. None when nothing is visible."""
    for framing, joints in (
        ("full", (15, 16)),
        ("three_quarter", (13, 14)),
        ("half", (11, 12)),
        ("head_shoulders", (5, 6)),
        ("face", (0, 1, 2, 3, 4)),
    ):
        if seen[list(joints)].any():
            return framing
    return None


def rows_to_columns(
    rows: Sequence[Sequence[Person]],
    sizes: Sequence[tuple[int, int]],
    *,
    box_source: str,
    layout: str | None,
    visibility: float,
) -> dict[str, Sequence[Any]]:
    """Turn the persons of each picture into the shared columns.

    Args:
        rows: persons of each picture, in any order.
        sizes: (width, height) of each original picture.
        box_source: DETECTED or ESTIMATED_FROM_FACE.
        layout: COCO17, FACE5 or None.
        visibility: confidence from which a keypoint counts as visible.

    Returns:
        `COLUMNS`, one entry per picture. Values are rounded (pixels to 1/100, scores to 1/10000) so that the last
        bits of a model's arithmetic, which depend on the batch size, do not reach the ledger.
    """
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for persons, (width, height) in zip(rows, sizes, strict=True):
        for name, value in _row(persons, width, height, box_source, layout, visibility).items():
            columns[name].append(value)
    return dict(columns)


def _row(
    persons: Sequence[Person], width: int, height: int, box_source: str, layout: str | None, visibility: float
) -> dict[str, Any]:
    # Ties are broken by value, never by the order in which a detector happens to report.
    persons = sorted(persons, key=lambda person: (-person.short_side, -person.area, -person.score, person.box))
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row["person_count"] = len(persons)
    row["face_count"] = sum(person.has_face for person in persons)
    row["person_boxes"] = [
        value for person in persons[:MAX_BOXES] for value in (*_pixels(person.box), round(person.score, 4))
    ]
    row["person_short_side"] = row["person_score"] = row["person_area_share"] = 0.0
    if not persons:
        return row
    largest = persons[0]
    row["person_box"] = _pixels(largest.box)
    row["person_short_side"] = round(largest.short_side, 2)
    row["person_score"] = round(largest.score, 4)
    row["person_area_share"] = round(largest.area / (width * height), 6)
    row["person_truncation"] = largest.truncation
    row["person_box_source"] = box_source
    row["person_framing"] = largest.framing
    row["face_box"] = None if largest.face_box is None else _pixels(largest.face_box)
    if layout is not None and largest.keypoints is not None:
        row["person_keypoint_layout"] = layout
        row["person_keypoints"] = [
            round(float(value), 4 if column == 2 else 2)
            for point in largest.keypoints
            for column, value in enumerate(point)
        ]
        row["person_keypoint_visibility"] = round(
            float(visible(largest.keypoints, width, height, visibility).mean()), 4
        )
    return row


def _pixels(values: Sequence[float]) -> list[float]:
    return [round(float(value), 2) for value in values]
