"""Head pose by perspective-n-point: the rotation that projects a mean face onto the face's keypoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import asin, atan2, cos, degrees, radians, sin
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from curation.records import Batch
from curation.scorers.base import Scorer, ScorerConfig
from curation.scorers.face_model import FACE_POINTS

Floats = npt.NDArray[np.float64]

MIN_POINTS = 4  # three points allow up to four poses


class HeadPoseConfig(ScorerConfig):
    """Head pose from the person scorer's keypoints."""

    kind: Literal["pnp"] = "pnp"
    focal_ratio: float = Field(
        1.0,
        gt=0.1,
        le=20,
        description="assumed focal length over the picture's longer side; 1.0 is a 36 mm lens on a 36 mm wide sensor",
    )
    min_visibility: float = Field(0.5, ge=0, le=1, description="confidence from which a keypoint is used")
    max_error: float = Field(
        0.25,
        gt=0,
        description="no angles are given when `head_reprojection_error` is above this: the points are not a face",
    )


@dataclass(frozen=True, slots=True)
class HeadPose:
    """Angles in degrees (see `angles_from_rotation`), and the RMS reprojection error over the face's size."""

    yaw: float
    pitch: float
    roll: float
    error: float


class HeadPoseScorer(Scorer):
    """Yaw, pitch and roll of the largest person's head.

    Columns:
        head_yaw: degrees, -90..90; positive when the face turns to the right of the picture (the subject's left).
        head_pitch: degrees, -90..90; positive when the face looks up.
        head_roll: degrees, -180..180; positive when the head leans clockwise as the picture is seen.
        head_reprojection_error: root mean square distance between the keypoints and the projected model, divided by
            the diagonal of the keypoints' bounding box.
        face_visible: whether the nose and at least one eye are visible. False without a person; never None.

    The angles are relative to the camera's axes, for a camera that looks at the middle of the picture. They are None
    without a face, with fewer than four visible points (a full profile in COCO17 shows three), or when the points
    do not fit a face. The face's depth differs between people, so pitch has a personal offset of some degrees.
    """

    name: ClassVar[str] = "head_pose"
    columns = {  # noqa: RUF012 - declared by the base class
        "head_yaw": pa.float32(),
        "head_pitch": pa.float32(),
        "head_roll": pa.float32(),
        "head_reprojection_error": pa.float32(),
        "face_visible": pa.bool_(),
    }
    needs = ("person_keypoints", "person_keypoint_layout", "width", "height")
    needs_pixels = False

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        """One small optimisation per row."""
        columns: dict[str, list[Any]] = {name: [] for name in self.columns}
        for keypoints, layout, width, height in zip(*(batch.columns[name] for name in self.needs), strict=True):
            pose, face = self._row(keypoints, layout, width, height)
            columns["head_yaw"].append(None if pose is None else round(pose.yaw, 2))
            columns["head_pitch"].append(None if pose is None else round(pose.pitch, 2))
            columns["head_roll"].append(None if pose is None else round(pose.roll, 2))
            columns["head_reprojection_error"].append(None if pose is None else round(pose.error, 5))
            columns["face_visible"].append(face)
        return dict(columns)

    def _row(
        self, keypoints: Sequence[float] | None, layout: str | None, width: int, height: int
    ) -> tuple[HeadPose | None, bool]:
        if keypoints is None or layout not in FACE_POINTS:
            return None, False
        model = FACE_POINTS[layout]
        points = np.asarray(keypoints, np.float64).reshape(-1, 3)[: len(model)]
        seen = points[:, 2] >= self.config.min_visibility
        nose = layout_index(layout, "nose")
        face = bool(seen[nose] and seen[[layout_index(layout, "left"), layout_index(layout, "right")]].any())
        if not face or seen.sum() < MIN_POINTS:
            return None, face
        focal = self.config.focal_ratio * max(width, height)
        pose = solve(points[seen, :2], model[seen], focal, (width / 2, height / 2))
        return (None if pose is None or pose.error > self.config.max_error else pose), face


def layout_index(layout: str, part: Literal["nose", "left", "right"]) -> int:
    """Index of the nose, the left or the right eye in a layout."""
    return {"face5": {"nose": 2, "left": 1, "right": 0}, "coco17": {"nose": 0, "left": 1, "right": 2}}[layout][part]


def solve(points: Floats, model: Floats, focal: float, centre: tuple[float, float]) -> HeadPose | None:
    """Find the head pose.

    Few, nearly coplanar points have several local optima (a face tilted up looks much like one tilted down), so
    every solver's answer and a set of turned starts are refined, and the best fit wins among the possible ones: all
    points before the camera, the face towards it.

    Args:
        points: [N, 2] pixels, N >= 4.
        model: [N, 3] millimetres, `curation.scorers.face_model`.
        focal: focal length in pixels.
        centre: principal point in pixels.

    Returns:
        None when the points have no extent or no possible pose exists.
    """
    import cv2

    size = float(np.linalg.norm(np.ptp(points, axis=0)))
    if not np.isfinite(points).all() or size < 1e-6:
        return None
    # Normalised image coordinates, so that the solvers' tolerances do not depend on the picture's size.
    image = np.ascontiguousarray((points - centre) / focal)
    camera = np.eye(3)
    best: tuple[float, Floats] | None = None
    stop = (cv2.TERM_CRITERIA_COUNT + cv2.TERM_CRITERIA_EPS, 60, 1e-10)
    for start in _starts(image, model):
        rotation, translation = cv2.solvePnPRefineLM(model, image, camera, None, *start, stop)
        matrix = np.asarray(cv2.Rodrigues(rotation)[0], np.float64)
        seen = model @ matrix.T + translation.T
        if not np.isfinite(seen).all() or (seen[:, 2] <= 0).any() or matrix[2, 2] <= 0:
            continue
        error = float(np.sqrt(np.mean(np.sum((seen[:, :2] / seen[:, 2:] - image) ** 2, axis=1))))
        # A margin, so that equal fits resolve to the first start on every machine.
        if best is None or error < best[0] - 1e-9:
            best = error, matrix
    if best is None:
        return None
    return HeadPose(*angles_from_rotation(best[1]), error=best[0] * focal / size)


def _starts(image: Floats, model: Floats) -> list[tuple[Floats, Floats]]:
    """Rotation and translation vectors to refine, each float64 [3, 1]."""
    import cv2

    camera = np.eye(3)
    starts: list[tuple[Floats, Floats]] = []
    for flag in (cv2.SOLVEPNP_SQPNP, cv2.SOLVEPNP_EPNP):
        try:
            _, rotations, translations, _ = cv2.solvePnPGeneric(model, image, camera, None, flags=flag)
        except cv2.error:  # a degenerate configuration of points
            continue
        starts += [
            (np.asarray(rotation, np.float64), np.asarray(translation, np.float64))
            for rotation, translation in zip(rotations, translations, strict=True)
            if np.isfinite(rotation).all() and np.isfinite(translation).all()
        ]
    # Weak perspective: the distance from the spread of the points, for faces turned in each direction.
    spread = float(np.linalg.norm(image - image.mean(axis=0)))
    for yaw, pitch in ((0, 0), (-45, 0), (45, 0), (0, -30), (0, 30)):
        rotation = rotation_from_angles(yaw, pitch, 0)
        turned = model @ rotation.T
        turned = turned - turned.mean(axis=0)
        depth = float(np.linalg.norm(turned[:, :2])) / spread
        shift = np.append(image.mean(axis=0) * depth, depth) - (model @ rotation.T).mean(axis=0)
        starts.append((np.asarray(cv2.Rodrigues(rotation)[0], np.float64), shift.reshape(3, 1)))
    return starts


def rotation_from_angles(yaw: float, pitch: float, roll: float) -> Floats:
    """Face to camera axes, [3, 3]: roll about the face's own forward axis, then pitch, then yaw. Degrees.

    The inverse of `angles_from_rotation`.
    """
    y, p, r = -radians(yaw), -radians(pitch), radians(roll)
    about_y = np.array([[cos(y), 0, sin(y)], [0, 1, 0], [-sin(y), 0, cos(y)]])
    about_x = np.array([[1, 0, 0], [0, cos(p), -sin(p)], [0, sin(p), cos(p)]])
    about_z = np.array([[cos(r), -sin(r), 0], [sin(r), cos(r), 0], [0, 0, 1]])
    return np.asarray(about_y @ about_x @ about_z)


def angles_from_rotation(rotation: Floats) -> tuple[float, float, float]:
    """Yaw, pitch, roll in degrees of R = Ry(-yaw) Rx(-pitch) Rz(roll), in camera axes x right, y down, z forward.

    Yaw and pitch are the longitude and latitude of the direction in which the nose points, R (0, 0, -1): yaw 90 is the
    right of the picture, pitch 90 is up. Roll is what remains about that direction.
    """
    yaw = atan2(-rotation[0, 2], rotation[2, 2])
    pitch = asin(min(1.0, max(-1.0, float(rotation[1, 2]))))
    roll = atan2(rotation[1, 0], rotation[1, 1])
    return degrees(yaw), degrees(pitch), degrees(roll)
