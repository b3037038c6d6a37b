"""The numbers of one person in a COCO file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from training.tasks.keypoint_sets import KeypointSet

_WHOLE_BODY = (("foot", 6), ("face", 68), ("lefthand", 21), ("righthand", 21))  # after COCO's 17, in the set's order
_BODY = 17
_MOST = 10**12


def finite(value: Any) -> bool:
    """Whether a JSON value is a number that can be pixels or their area: finite, at most 1e12."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST


def annotation_keypoints(
    annotation: Mapping[str, Any], source: KeypointSet, field: str | None
) -> npt.NDArray[np.float64]:
    """Keypoints of one annotation, as `coco.py` says.

    Args:
        annotation: of the file.
        source: its keypoint set.
        field: that has them; None: by the set.

    Returns:
        float64 [K, 3], visibility 0, 1 or 2; 0, 0, 0 where there is no label.

    Raises:
        ValueError: numbers are not those of the set.
    """
    own, field = field is None, field or "keypoints"
    if own and source.name == "sapiens308" and "goliath_wholebody_kpts" in annotation:
        field = "goliath_wholebody_kpts"
    if annotation.get(field) in (None, []):  # a person without labels, as some tools write them
        return np.zeros((len(source), 3))
    values = _triplets(annotation[field], field)
    if own and source.name == "wholebody133" and len(values) == _BODY:
        lists = [values]
        for part, count in _WHOLE_BODY:
            name = f"{part}_kpts"
            given = annotation.get(name)
            points = np.zeros((count, 3)) if given in (None, []) else _triplets(given, name)
            if len(points) != count:
                raise ValueError(f"{name} has {len(points)} keypoints instead of {count}")
            lists.append(points if annotation.get(f"{part}_valid", True) else np.zeros((count, 3)))
        values = np.concatenate(lists)
    if len(values) != len(source):
        raise ValueError(f"{field} has {len(values)} keypoints, {source.name} has {len(source)}")
    return values


def _small(array: npt.NDArray[Any]) -> bool:
    return bool((np.abs(array.astype(np.float64)) <= _MOST).all())


def _triplets(given: Any, field: str) -> npt.NDArray[np.float64]:
    try:  # as an array at once: a check of every number by itself is ten times as slow
        array = np.array(given if isinstance(given, list) else None)
    except ValueError:
        array = np.array(None)
    if array.ndim != 1 or len(array) % 3 or (len(array) and array.dtype.kind not in "fiu") or not _small(array):
        raise ValueError(f"{field} is no flat list of finite numbers x, y, v")
    values = array.astype(np.float64).reshape(-1, 3)
    visibility = values[:, 2]
    if (visibility < 0).any():
        raise ValueError(f"{field} has a visibility below 0")
    values[:, 2] = np.where((visibility == 0) | (visibility == 1), visibility, 2)
    return np.where(values[:, 2:] > 0, values, 0)


def inside(keypoints: npt.NDArray[np.float32], size: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Keypoints [..., 3] with those that are not labelled or fall on no pixel set to 0."""
    x, y, visible = np.moveaxis(keypoints, -1, 0)
    shown = (visible > 0) & (x >= -0.5) & (y >= -0.5) & (x < size[1] - 0.5) & (y < size[0] - 0.5)
    return np.where(shown[..., None], keypoints, np.float32(0))
