"""What a predictor that does not look at the picture is worth: the mean of the training pictures, place by place.

People stand in the middle of pictures and in their boxes, so such means are not bad: a trained model has to beat them
before its figures say anything. They are fitted in the frame that the model sees (`TaskSetup.crops`: no augmentation)
and measured as a model is, by the same metric on the same pictures:

| task | at each pixel of the frame |
|---|---|
| seg | the most frequent class of the pixel |
| normal | the mean normal of the people's pixels that fell there |
| pointmap | the mean point in metres of the people's pixels that fell there, and the mean scale |
| albedo | the mean albedo of the people's pixels that fell there |
| pose | (no pixels) the mean place of each keypoint in the person's box, as shares of its crop |

A pixel of the frame that few people covered borrows from the mean over all pixels, as if `BORROWED` pixels with that
mean had been seen there too. With `by_place=False` there is one value for all places: the most frequent class
(background), one normal, point or colour, and the middle of all keypoints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from training.data.labelled import IGNORE_PART, Picture
from training.finetuning.pictures import Pictures
from training.finetuning.tasks import DenseSetup, PoseSetup, TaskSetup
from training.tasks.frames import Frame

Array = npt.NDArray[np.float64]
BORROWED = 4.0
"""Pixels with the mean of all places that every place is given besides its own (ours)."""
TARGETS = {"normal": "normals", "pointmap": "points", "albedo": "albedo"}
"""Names of the targets that hold three numbers of each pixel."""


def mean_predictor_figures(
    setup: TaskSetup, train_pictures: Pictures, held_out: Pictures, count: int, by_place: bool = True
) -> dict[str, float]:
    """The figures of the mean of training pictures on held-out ones.

    Args:
        setup: of the task, as the model's (`FinetuneConfig.setup()`).
        train_pictures: to fit to; the first `count` of them are read.
        held_out: to measure on; all of them.
        count: of pictures to fit to, at least 1; all where there are fewer. Some hundreds are enough.
        by_place: False: one value for all places.

    Returns:
        What the task's metric computes, as of a model (`training.finetuning.measure.measured`).

    Raises:
        ValueError: `count` is below 1, or none of those training pictures shows a person with labels of the task.
    """
    if count < 1:
        raise ValueError(f"count is {count}: give at least 1 training picture to fit the mean to")
    read = (train_pictures[index] for index in range(min(count, len(train_pictures))))
    held = (held_out[index] for index in range(len(held_out)))
    metric = setup.new_metric()
    if isinstance(setup, PoseSetup):
        places = _mean_keypoints(setup, read, by_place)
        for picture in held:
            _add_people(setup, metric, picture, places)
    elif isinstance(setup, DenseSetup):
        output = _class_counts(setup, read, by_place) if setup.name == "seg" else _mean_map(setup, read, by_place)
        for picture in held:
            setup.add(metric, picture, [setup.fit(picture)], output)
    else:
        raise TypeError(f"there is no mean predictor for {type(setup).__name__}")
    figures: dict[str, float] = metric.compute()
    return figures


def _class_counts(setup: DenseSetup, pictures: Any, by_place: bool) -> torch.Tensor:
    """How often each class was seen, as logits: float32 [1, classes, H, W]."""
    classes = len(setup.task.config.classes)
    counts = np.zeros((classes, *setup.size))
    for picture in pictures:
        labels = setup.task.targets(setup.moved(picture, setup.fit(picture)))["labels"].numpy()
        rows, columns = np.nonzero(labels != IGNORE_PART)
        np.add.at(counts, (labels[rows, columns], rows, columns), 1)
    if not counts.any():
        raise ValueError(_NOBODY)
    if not by_place:
        counts[:] = counts.sum((1, 2), keepdims=True)
    return torch.from_numpy(counts[None]).float()


def _mean_map(setup: DenseSetup, pictures: Any, by_place: bool) -> Any:
    """The mean of a target with three channels as a model's output: float32 [1, 3, H, W]; pointmap: with the scale."""
    sums, seen, scales = np.zeros((3, *setup.size)), np.zeros(setup.size), []
    for picture in pictures:
        targets = setup.task.targets(setup.moved(picture, setup.fit(picture)))
        values, mask = targets[TARGETS[setup.name]].numpy().astype(np.float64), targets["mask"].numpy()[0]
        if "scale" in targets:
            # Metres, of which the mean is better than that of canonical points over the mean scale.
            scales.append(float(targets["scale"]))
            values = values / scales[-1]
        sums += np.where(mask, values, 0)
        seen += mask
    if not seen.any():
        raise ValueError(_NOBODY)
    whole = sums.sum((1, 2)) / seen.sum()
    mean = np.broadcast_to(whole[:, None, None], sums.shape)
    if by_place:
        mean = (sums + BORROWED * mean) / (seen + BORROWED)
    if not scales:
        return torch.from_numpy(mean.copy()[None]).float()
    scale = float(np.mean(scales))
    return torch.from_numpy(mean[None] * scale).float(), torch.tensor([[scale]])


def _mean_keypoints(setup: PoseSetup, pictures: Any, by_place: bool) -> Array:
    """Mean places of keypoints in the crop, as shares of it: float64 [K, 2]; what nobody showed is in the middle."""
    keypoints = len(setup.task.set)
    sums, seen = np.zeros((keypoints, 2)), np.zeros((keypoints, 1))
    for picture in map(setup.in_set, pictures):
        for person in range(0 if picture.keypoints is None else len(picture.keypoints)):
            targets = setup.task.sample(picture, person, setup.task.frame(picture, person, setup.size))[1]
            visible = targets["visible"].numpy()[:, None]
            sums += targets["points"].numpy() * visible
            seen += visible
    if not seen.any():
        raise ValueError(_NOBODY)
    whole = sums.sum(0) / seen.sum()
    if not by_place:
        return np.broadcast_to(whole, sums.shape).copy()
    return np.where(seen > 0, sums / np.maximum(seen, 1), whole)


def _add_people(setup: PoseSetup, metric: Any, picture: Picture, places: Array) -> None:
    """Add a picture's people to the metric, each with the mean keypoints in its box, all equally sure."""
    picture = setup.in_set(picture)
    if picture.keypoints is None or not len(picture.keypoints):
        return
    frames: list[Frame] = [setup.task.frame(picture, person, setup.size) for person in range(len(picture.keypoints))]
    pixels = places * (np.array(setup.size[::-1]) - 1)
    found = np.stack([frame.points_back(pixels) for frame in frames])
    owners = np.arange(len(frames))
    scores = np.ones(len(frames))
    metric.update(picture.id, found, scores, picture.keypoints, picture.areas, picture.boxes, owners=owners)


_NOBODY = "no training picture that was read shows a person with labels of this task: give others, or a higher count"
