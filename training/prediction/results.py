"""What a prediction says about one picture; one class for each task. Everything is in the picture's own pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PoseResult:
    """People of a picture.

    Attributes:
        boxes: float32 [n, 4], x0, y0, x1, y1, edges of pixels: where the people were looked for.
        box_scores: float32 [n].
        keypoints: float32 [n, K, 2], x, y, centres of pixels.
        scores: float32 [n, K], about 0..1.
        instance_scores: float32 [n], box score x mean of the keypoint scores above 0.2 (released).
    """

    boxes: Floats
    box_scores: Floats
    keypoints: Floats
    scores: Floats
    instance_scores: Floats


@dataclass(frozen=True, eq=False)
class SegmentationResult:
    """`labels`: uint8 [H, W], the class of every pixel."""

    labels: npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class NormalResult:
    """`normals`: float32 [H, W, 3], unit vectors in camera axes (x right, y down, z forward)."""

    normals: Floats


@dataclass(frozen=True, eq=False)
class PointmapResult:
    """Shape in metres.

    Attributes:
        points: float32 [H, W, 3], camera axes (x right, y down, z forward).
        scale: canonical focal length / fx of what the network saw.
        focal: fx in pixels of the picture, from the scale.
    """

    points: Floats
    scale: float
    focal: float

    @property
    def depth(self) -> Floats:
        """float32 [H, W], z in metres."""
        return self.points[..., 2]


@dataclass(frozen=True, eq=False)
class AlbedoResult:
    """`albedo`: float32 [H, W, 3] in 0..1."""

    albedo: Floats


Result = PoseResult | SegmentationResult | NormalResult | PointmapResult | AlbedoResult
