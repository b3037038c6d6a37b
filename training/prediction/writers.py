"""What is written for each picture of the dense tasks, and the face that all writers have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from training.prediction import formats
from training.prediction.config import OutputConfig
from training.prediction.files import land, output_path
from training.prediction.inputs import InputPicture
from training.tasks.dense_pictures import albedo_picture, depth_picture, normals_picture, palette, parts_picture
from training.tasks.segmentation import Segmentation

Mask = npt.NDArray[np.bool_]
Pixels = npt.NDArray[np.uint8]


class Writer(ABC):
    """Writes the results of one task into a folder.

    Args:
        folder: of all outputs; made when it is needed.
        config: formats.
        task: the predictor's, for names and colours.
    """

    def __init__(self, folder: Path, config: OutputConfig, task: Any) -> None:
        self.folder, self.config, self.task = folder, config, task
        if "exr" in {"normal": config.normals, "pointmap": config.depth}.get(task.name, ""):
            formats.require_exr()  # before hours of work

    @abstractmethod
    def done(self, name: str) -> bool:
        """Whether everything of a picture is there already."""

    @abstractmethod
    def write(self, picture: InputPicture, result: Any, mask: Mask | None) -> None:
        """Write a picture's result; `mask` bool [H, W] is its foreground, None = everything."""

    @abstractmethod
    def overlay(self, picture: InputPicture, result: Any, mask: Mask | None) -> Pixels:
        """A picture of the result, uint8 [H, W or 2 W, 3]."""

    def finish(self) -> None:  # noqa: B027 - most writers have nothing left to do
        """Every picture has been written: make what is made of all of them."""

    def close(self) -> None:  # noqa: B027
        """Let go of open files; called in any case."""


class _DenseWriter(Writer):
    """Files of their own for each picture: {(folder, suffix): bytes}."""

    @abstractmethod
    def _outputs(self) -> list[tuple[str, str]]:
        """(folder, suffix) of each file."""

    def done(self, name: str) -> bool:
        return all(output_path(self.folder / kind, name, suffix).is_file() for kind, suffix in self._outputs())

    def _land(self, name: str, kind: str, suffix: str, data: bytes) -> None:
        land(output_path(self.folder / kind, name, suffix), data)


class SegmentationWriter(_DenseWriter):
    """`parts/<name>.png`: class ids as an 8-bit palette PNG."""

    task: Segmentation

    def _outputs(self) -> list[tuple[str, str]]:
        return [("parts", ".png")]

    def write(self, picture: InputPicture, result: Any, mask: Mask | None) -> None:
        data = formats.index_png(result.labels, palette(self.task.config.classes))
        self._land(picture.name, "parts", ".png", data)

    def overlay(self, picture: InputPicture, result: Any, mask: Mask | None) -> Pixels:
        return parts_picture(picture.image, result.labels, self.task.config.classes)


class NormalWriter(_DenseWriter):
    """`normals/<name>.npy` float32 [H, W, 3], `.exr`, or `.png` (`formats.coded_normals`); 0 outside of the mask."""

    def _outputs(self) -> list[tuple[str, str]]:
        return [("normals", f".{self.config.normals}")]

    def write(self, picture: InputPicture, result: Any, mask: Mask | None) -> None:
        normals = result.normals if mask is None else np.where(mask[..., None], result.normals, np.float32(0))
        match self.config.normals:
            case "png":
                data = formats.rgb_png(formats.coded_normals(normals))
            case "exr":
                data = formats.exr({"RGB": normals})
            case _:
                data = formats.npy(normals)
        self._land(picture.name, "normals", f".{self.config.normals}", data)

    def overlay(self, picture: InputPicture, result: Any, mask: Mask | None) -> Pixels:
        return normals_picture(result.normals, mask, picture.image)


class PointmapWriter(_DenseWriter):
    """`depth/<name>.npy`, `.exr` (metres) or `.png` (millimetres), 0 outside of the mask; and `points/<name>.ply`."""

    def _outputs(self) -> list[tuple[str, str]]:
        return [("depth", f".{self.config.depth}"), *([("points", ".ply")] if self.config.points else [])]

    def write(self, picture: InputPicture, result: Any, mask: Mask | None) -> None:
        depth = result.depth if mask is None else np.where(mask, result.depth, np.float32(0))
        if self.config.points:
            self._land(picture.name, "points", ".ply", formats.ply(result.points, picture.image, mask))
        match self.config.depth:
            case "png":
                data = formats.rgb_png(formats.coded_depth(depth))
            case "exr":
                data = formats.exr({"Z": depth})
            case _:
                data = formats.npy(depth)
        self._land(picture.name, "depth", f".{self.config.depth}", data)

    def overlay(self, picture: InputPicture, result: Any, mask: Mask | None) -> Pixels:
        return depth_picture(result.depth, mask, background=picture.image)


class AlbedoWriter(_DenseWriter):
    """`albedo/<name>.png`: 8 bits, round(255 x albedo), linear as predicted; 0 outside of the mask."""

    _name: ClassVar[tuple[str, str]] = ("albedo", ".png")

    def _outputs(self) -> list[tuple[str, str]]:
        return [self._name]

    def write(self, picture: InputPicture, result: Any, mask: Mask | None) -> None:
        values = np.rint(255 * np.nan_to_num(result.albedo).clip(0, 1)).astype(np.uint8)
        if mask is not None:
            values = np.where(mask[..., None], values, np.uint8(0))
        self._land(picture.name, *self._name, formats.rgb_png(values))

    def overlay(self, picture: InputPicture, result: Any, mask: Mask | None) -> Pixels:
        return albedo_picture(picture.image, result.albedo, mask)
