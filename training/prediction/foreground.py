"""Which pixels are people, for normals, pointmaps and albedo: from files, or from a segmentation model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from training.prediction.files import output_path
from training.prediction.inputs import InputPicture
from training.prediction.mask_files import Mask, read_mask
from training.prediction.predictor import Predictor
from training.prediction.results import SegmentationResult
from training.tasks.segmentation import Segmentation

Foreground = Callable[[InputPicture], Mask | None]
"""A picture -> bool [H, W]; None = not known, everything is taken."""

_SUFFIXES = (".png", ".npy", "_seg.npy")


def folder_masks(folder: str | Path, threshold: float | None = None) -> Foreground:
    """Masks or classes as files: `<name>.png`, `<name>.npy` or `<name>_seg.npy`, as `mask_files.py` reads them.

    The `parts` folder of a segmentation is one.

    Args:
        folder: of the files.
        threshold: in 0..1, share of the largest value above which a soft mask is a person; None: by the file's values.

    Raises:
        ValueError: no such folder, or another threshold; later, `MaskError` of a mask that cannot be used.
    """
    if threshold is not None and not 0 <= threshold < 1:
        raise ValueError(f"the threshold of masks is {threshold}: give a share of the largest value, from 0 to below 1")
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"masks {root}: no such folder; give one with <name>.png or <name>.npy for each picture")

    def mask_of(picture: InputPicture) -> Mask | None:
        paths = (output_path(root, picture.name, suffix) for suffix in _SUFFIXES)
        path = next((path for path in paths if path.is_file()), None)
        return None if path is None else read_mask(path, (picture.image.shape[0], picture.image.shape[1]), threshold)

    return mask_of


def predicted_masks(predictor: Predictor) -> Foreground:
    """Everything that a segmentation model does not take for background.

    Raises:
        ValueError: the predictor is for another task, or its classes have no background.
    """
    task = predictor.task
    if not isinstance(task, Segmentation) or task.config.classes.background is None:
        raise ValueError(f"{task.name}: a foreground comes from a segmentation model with a background class")
    background = task.config.classes.background

    def mask_of(picture: InputPicture) -> Mask | None:
        (result,) = predictor([picture.image])
        assert isinstance(result, SegmentationResult)
        return np.asarray(result.labels != background)

    return mask_of
