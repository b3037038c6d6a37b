"""Persons from faces found by OpenCV 4's boosted Haar cascades (Viola-Jones), which run wherever OpenCV does.

Much less exact than the other detectors: small, turned and tilted faces are missed, and textures sometimes pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
from pydantic import Field

from curation.records import Pixels
from curation.scorers.base import MissingWeightsError, Weights, hash_file
from curation.scorers.person_face import Face, FaceDetectorConfig, FacePersonScorer

FRONTAL = "haarcascade_frontalface_alt2.xml"
PROFILE = "haarcascade_profileface.xml"

# A cascade's square against the face from hairline to chin and from ear to ear, measured on the photographs that
# scikit-image, matplotlib and ultralytics ship, where libfacedetection's boxes are the reference.
_HEIGHT, _WIDTH = 1.05, 0.85


class CascadePersonConfig(FaceDetectorConfig):
    """Haar cascades of OpenCV 4; their files are inside the OpenCV wheel. No landmarks: no head pose."""

    kind: Literal["cascade"] = "cascade"
    max_side: int = Field(
        400,
        ge=64,
        le=960,
        description="longer pictures are reduced to this long side before detection, in pixels; the time goes with its "
        "square, and the smallest face that can be found is 24 pixels",
    )
    min_neighbours: int = Field(
        5, ge=1, description="overlapping hits that make a face; fewer finds more faces and more that are none"
    )
    min_face_share: float = Field(
        0.06, gt=0, le=1, description="smallest face that is looked for, as a share of the picture's short side"
    )


@dataclass(frozen=True, slots=True)
class _Cascade:
    classifier: Any
    threshold: float
    highest: float

    def score(self, weight: float) -> float:
        """Map the last stage's sum to 0..1: 0 at the stage's threshold, rising with it.

        An order, not a probability: how far the sum is from the threshold towards the highest possible sum, stretched
        because sums beyond a quarter of the way are rare.
        """
        margin = max(0.0, (weight - self.threshold) / (self.highest - self.threshold))
        return 1.0 - exp(-10.0 * margin)


class CascadePersonScorer(FacePersonScorer):
    """See `FacePersonScorer`. Keypoint columns are None. Profiles are looked for in both directions."""

    layout = None

    def check(self) -> list[Weights]:
        """Hash the cascade files.

        Raises:
            MissingWeightsError: OpenCV is absent, or is version 5, which has no cascades.
        """
        return [hash_file(_cascade_file(name)) for name in (FRONTAL, PROFILE)]

    def setup(self) -> None:
        """Load the cascades."""
        self._frontal = _load(_cascade_file(FRONTAL))
        self._profile = _load(_cascade_file(PROFILE))

    def detect(self, pixels: Pixels) -> list[Face]:
        """Find faces; see the base class."""
        import cv2

        grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
        width = grey.shape[1]
        mirrored = [
            replace(face, box=(width - face.box[2], face.box[1], width - face.box[0], face.box[3]))
            for face in self._run(self._profile, np.ascontiguousarray(grey[:, ::-1]))
        ]
        return suppress([*self._run(self._frontal, grey), *self._run(self._profile, grey), *mirrored])

    def _run(self, cascade: _Cascade, grey: np.ndarray) -> list[Face]:
        smallest = max(24, round(self.config.min_face_share * min(grey.shape)))
        squares, _, weights = cascade.classifier.detectMultiScale3(
            grey,
            scaleFactor=1.1,
            minNeighbors=self.config.min_neighbours,
            minSize=(smallest, smallest),
            outputRejectLevels=True,
        )
        faces = []
        for (x, y, side, _), weight in zip(np.asarray(squares).reshape(-1, 4).tolist(), weights, strict=True):
            centre_x, centre_y = x + side / 2, y + side / 2
            half_x, half_y = side * _WIDTH / 2, side * _HEIGHT / 2
            box = (centre_x - half_x, centre_y - half_y, centre_x + half_x, centre_y + half_y)
            faces.append(Face(box, cascade.score(float(weight))))
        return faces


def suppress(faces: Sequence[Face], overlap: float = 0.3) -> list[Face]:
    """Non-maximum suppression: of faces whose intersection over union exceeds `overlap`, keep the best score."""
    kept: list[Face] = []
    for face in sorted(faces, key=lambda item: (-item.score, item.box)):
        if all(_overlap(face.box, other.box) <= overlap for other in kept):
            kept.append(face)
    return kept


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def _cascade_file(name: str) -> Path:
    try:
        import cv2
        import cv2.data

        folder = Path(cv2.data.haarcascades)
    except (ImportError, AttributeError) as error:
        raise MissingWeightsError(
            f"scorers.person.kind=cascade needs OpenCV's cascade files: {error}. "
            "Install `opencv-python-headless>=4.10,<5`"
        ) from error
    if not hasattr(cv2, "CascadeClassifier") or not (folder / name).is_file():
        raise MissingWeightsError(
            f"scorers.person.kind=cascade: OpenCV {cv2.__version__} has no cascade detector or no {folder / name}; "
            "OpenCV 5 dropped it. Install `opencv-python-headless>=4.10,<5`"
        )
    return folder / name


def _load(file: Path) -> _Cascade:
    import cv2

    last = ElementTree.parse(file).getroot().findall(".//stages/_")[-1]  # noqa: S314 - OpenCV's own file
    highest = sum(
        max(float(value) for value in (leaf.text or "").split())
        for leaf in last.findall("weakClassifiers/_/leafValues")
    )
    threshold = float(last.findtext("stageThreshold", "nan"))
    return _Cascade(cv2.CascadeClassifier(str(file)), threshold, highest)
