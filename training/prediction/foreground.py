"""Which pixels are people, for normals, pointmaps and albedo: from files, or from a segmentation model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from training.prediction.files import output_path
from training.prediction.inputs import InputPicture
from training.prediction.predictor import Predictor
from training.prediction.results import SegmentationResult
from training.tasks.segmentation import Segmentation

Mask = npt.NDArray[np.bool_]
Foreground = Callable[[InputPicture], Mask | None]
"""A picture -> bool [H, W]; None = not known, everything is taken."""

_SUFFIXES = (".png", ".npy", "_seg.npy")


def folder_masks(folder: str | Path) -> Foreground:
    """Masks or classes as files: `<name>.png`, `<name>.npy` or `<name>_seg.npy`; above 0 is foreground.

    The `parts` folder of a segmentation is one. A mask of another size but the same shape is resized.

    Raises:
        ValueError: no such folder; later, a mask of another shape than its picture or that cannot be read.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"masks {root}: no such folder; give one with <name>.png or <name>.npy for each picture")

    def mask_of(picture: InputPicture) -> Mask | None:
        paths = (output_path(root, picture.name, suffix) for suffix in _SUFFIXES)
        path = next((path for path in paths if path.is_file()), None)
        return None if path is None else _read(path, (picture.image.shape[0], picture.image.shape[1]))

    return mask_of


def _read(path: Path, size: tuple[int, int]) -> Mask:
    if path.suffix == ".npy":
        values = np.load(path, allow_pickle=False)
    else:
        from PIL import Image as PillowImage

        with PillowImage.open(path) as picture:  # a palette PNG's values, not its colours
            values = np.asarray(picture)
    values = values[..., 0] if values.ndim == 3 else values
    if values.ndim != 2 or abs(values.shape[0] * size[1] / (values.shape[1] * size[0]) - 1) > 0.01:
        raise ValueError(
            f"mask {path} is {values.shape}, its picture {size} (height, width): give one of the same shape"
        )
    mask = (values > 0).astype(np.uint8)
    if mask.shape != size:
        mask = np.asarray(cv2.resize(mask, size[::-1], interpolation=cv2.INTER_NEAREST), np.uint8)
    return mask.astype(bool)


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
