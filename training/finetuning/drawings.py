"""Pictures of a measurement: held-out pictures, what the model says of them, and the truth, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from training.data.labelled import Picture
from training.engine.parallel import Parallel
from training.finetuning.tasks import NormalSetup, PointmapSetup, PoseSetup, SegmentationSetup, Setup, TaskSetup
from training.tasks.dense_pictures import albedo_picture, depth_bounds, depth_picture, normals_picture, parts_picture
from training.tasks.frames import Frame, Size, letterbox
from training.tasks.pose_pictures import draw_skeletons
from training.tasks.warp import warp
from training.watch.pictures import tiled

Pixels = npt.NDArray[np.uint8]


class Drawings:
    """Gathers the first pictures of a measurement while it runs, each on the rank that has it.

    Args:
        setup: of the task or tasks.
        count: pictures that are drawn.
        height: pixels that a panel is high at most; larger ones are scaled down.
    """

    def __init__(self, setup: Setup, count: int, height: int) -> None:
        self._setup, self._count = setup, count
        factor = min(1.0, height / setup.size[0])
        self._size: Size = (round(setup.size[0] * factor), max(1, round(setup.size[1] * factor)))
        self._rows: dict[int, list[Pixels]] = {}

    def add(self, place: int, picture: Picture, frames: Mapping[str, list[Frame]], outputs: Mapping[str, Any]) -> None:
        """A picture was measured; arguments as `measure.Seen` has them."""
        if place >= self._count:
            return
        panels = [picture.image]
        for task, part in self._setup.parts.items():
            panels += (
                prediction_and_truth(part, picture, frames[task], outputs[task])
                if task in outputs
                else ([picture.image] * 2)
            )
        fit = letterbox(picture.size, self._size)
        self._rows[place] = [warp(panel, fit, "auto") for panel in panels]

    def gathered(self, parallel: Parallel) -> Pixels | None:
        """A row for each picture: the picture, then for each task the prediction and the truth; on rank 0.

        Every rank has to call it. uint8 [rows, columns, 3]; None on other ranks, and where there is no picture.
        """
        rows = {place: row for rank in parallel.gather_objects(self._rows) for place, row in rank.items()}
        if parallel.rank != 0 or not rows:
            return None
        columns = zip(*(rows[place] for place in sorted(rows)), strict=True)
        return tiled([torch.from_numpy(np.stack(column).transpose(0, 3, 1, 2) / 255).float() for column in columns])


def prediction_and_truth(setup: TaskSetup, picture: Picture, frames: list[Frame], output: Any) -> list[Pixels]:
    """Both drawn, each uint8 of the picture's size: skeletons and parts over the picture, the others on people alone.

    Args:
        setup: of the task.
        picture: with its labels.
        frames: of the model's crops of it, at least one.
        output: of the model for them.
    """
    image, mask, task = picture.image, picture.mask, setup.task
    if isinstance(setup, PoseSetup):
        found, true = task.decode(output, frames), setup.in_set(picture).keypoints
        assert true is not None
        pairs = (found.keypoints, found.scores), (true[..., :2], true[..., 2])
        return [draw_skeletons(image, points, scores, task.set) for points, scores in pairs]
    found = task.decode(output, frames[0])
    if isinstance(setup, SegmentationSetup):
        assert picture.parts is not None
        return [parts_picture(image, parts, task.config.classes) for parts in (found, picture.parts)]
    if isinstance(setup, NormalSetup):
        assert picture.normals is not None
        return [normals_picture(normals, mask) for normals in (found, picture.normals)]
    if isinstance(setup, PointmapSetup):
        assert picture.depth is not None
        bounds = depth_bounds(picture.depth, mask)
        return [depth_picture(depth, mask, bounds) for depth in (found.points[..., 2], picture.depth)]
    assert picture.albedo is not None
    return [albedo_picture(image, albedo, mask)[:, image.shape[1] :] for albedo in (found, picture.albedo)]
