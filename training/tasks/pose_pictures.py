"""Skeletons drawn on pictures."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from training.tasks.keypoint_sets import KeypointSet

THRESHOLD = 0.3
"""Keypoints of lower scores are not drawn (released)."""
COLOURS = np.array(((240, 240, 240), (64, 200, 255), (255, 140, 40)), np.uint8)
"""RGB of the middle, of the person's left, and of the right."""

_SUBPIXEL = 4  # bits of a coordinate behind the point
_FAR = 2**14  # pixels beyond which OpenCV's fixed-point coordinates would overflow


def draw_skeletons(
    image: npt.NDArray[np.uint8],
    keypoints: npt.NDArray[np.floating],
    scores: npt.NDArray[np.floating],
    points: KeypointSet,
    *,
    threshold: float = THRESHOLD,
    radius: float | None = None,
) -> npt.NDArray[np.uint8]:
    """Lines and points of people on a copy of the picture, coloured by the person's side.

    Args:
        image: uint8 [H, W, 3] RGB.
        keypoints: [n, K, 2 or more], x and y in pixels.
        scores: [n, K]; visibilities of labels do as well.
        points: the set of K keypoints.
        threshold: a keypoint of at least this score is drawn, a line where both ends are.
        radius: of a point in pixels; None: 1/200 of the larger side of the person. Points in no line, as those of a
            face, have half of it, lines are as wide.

    Returns:
        uint8 [H, W, 3].

    Raises:
        ValueError: arrays of another shape.
    """
    keypoints, scores = np.asarray(keypoints, np.float64), np.asarray(scores)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"image is {image.shape} {image.dtype}: give uint8 [H, W, 3]")
    if keypoints.ndim != 3 or keypoints.shape[1] != len(points) or scores.shape != keypoints.shape[:2]:
        raise ValueError(
            f"keypoints is {keypoints.shape}, scores {scores.shape}: {points.name} has [n, {len(points)}, 2] and "
            f"[n, {len(points)}]"
        )
    canvas = np.ascontiguousarray(image).copy()
    linked = np.isin(np.arange(len(points)), points.links)
    for person, values in zip(keypoints[..., :2], scores, strict=True):
        drawn = (values >= threshold) & (np.abs(person) < _FAR).all(-1)
        if not drawn.any():
            continue
        size = max(1.0, np.ptp(person[drawn], axis=0).max() / 200) if radius is None else radius
        fixed = np.rint(np.where(drawn[:, None], person, 0) * 2**_SUBPIXEL).astype(int)
        for (first, second), side in zip(points.links, points.link_sides, strict=True):
            if drawn[first] and drawn[second]:
                ends = (tuple(map(int, fixed[first])), tuple(map(int, fixed[second])))
                cv2.line(canvas, *ends, COLOURS[side].tolist(), max(1, round(size)), cv2.LINE_AA, _SUBPIXEL)
        for index in np.flatnonzero(drawn):
            width = max(1, round((size if linked[index] else size / 2) * 2**_SUBPIXEL))
            centre, colour = tuple(map(int, fixed[index])), COLOURS[points.sides[index]].tolist()
            cv2.circle(canvas, centre, width, colour, -1, cv2.LINE_AA, _SUBPIXEL)
    return canvas
