"""The figures of what `populace predict` writes: a task's metric over labelled pictures, through `Predictor`.

Pictures go through the same crops, flip test, batches and decoding as in prediction, and are compared in their own
pixels. Without the flip test these are the figures that fine-tuning takes with its checkpoints, but for a pixel: a
letterbox of another shape is rounded up or down there and cut there, as the released training and inference do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eval.metrics import Metric
from training.data.labelled import Picture, pointmap
from training.finetuning.pictures import Pictures
from training.finetuning.tasks import (
    AlbedoSetup,
    DenseSetup,
    NormalSetup,
    PointmapSetup,
    PoseSetup,
    SegmentationSetup,
    TaskSetup,
)
from training.prediction.boxes import Boxes, as_boxes
from training.prediction.predictor import Given, Predictor
from training.prediction.results import Result
from training.tasks.canonical import canonical_scale

_DENSE: dict[str, type[Any]] = {
    "seg": SegmentationSetup,
    "normal": NormalSetup,
    "pointmap": PointmapSetup,
    "albedo": AlbedoSetup,
}


def setup_of(predictor: Predictor) -> TaskSetup:
    """What measuring needs of a predictor's task; its frames and augmentations are defaults and not used here."""
    task = predictor.task
    if task.name == "pose":
        return PoseSetup(predictor.size, None, task.config)  # type: ignore[arg-type]
    setup: TaskSetup = _DENSE[task.name](predictor.size, None, None, task.config)
    return setup


def evaluate(
    predictor: Predictor,
    pictures: Pictures,
    metric: Metric | None = None,
    *,
    detected: bool = False,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Figures of a predictor, by the names that the task's metric has for them.

    Args:
        predictor: of any task and size.
        pictures: with the task's labels. Keypoints of the 308 are turned into the task's set by name.
        metric: of the task, which the pictures are added to; None: a new one with the task's settings.
        detected: for pose, look for people with the predictor's detector; False: people are in their true boxes.
        limit: the first so many pictures.
        progress: called with the number of pictures that are done.

    Raises:
        ValueError: a picture without the task's labels, or nothing to measure; `detected` without a detector.
        DataError: a picture cannot be read.
    """
    setup = setup_of(predictor)
    metric = setup.new_metric() if metric is None else metric
    if detected and (predictor.detector is None or predictor.task.name != "pose"):
        raise ValueError("people can be detected for pose only, and with a detector: give one, or take the true boxes")
    count = len(pictures) if limit is None else min(limit, len(pictures))

    def shown() -> Iterator[tuple[Picture, Any, Given]]:
        for place in range(count):
            picture = pictures[place]
            _check(setup, picture)
            yield picture, picture.image, None if detected or setup.name != "pose" else _true_boxes(setup, picture)

    for done, (picture, _, result) in enumerate(predictor.stream(shown()), 1):
        _add(metric, setup, predictor, picture, result, detected)
        if progress is not None:
            progress(done)
    figures: dict[str, float] = metric.compute()
    return figures


def _check(setup: TaskSetup, picture: Picture) -> None:
    needs = setup.needs if isinstance(setup, DenseSetup) else ("keypoints", "boxes", "areas")
    missing = [
        name for name in (*needs, *(["intrinsics"] * (setup.name == "pointmap"))) if getattr(picture, name) is None
    ]
    if missing:
        raise ValueError(f"picture {picture.id!r} has no {', '.join(missing)}: {setup.name} cannot be measured on it")


def _true_boxes(setup: TaskSetup, picture: Picture) -> Boxes:
    picture = _in_set(setup, picture)
    people = 0 if picture.keypoints is None else len(picture.keypoints)
    return as_boxes(np.array([setup.task.box(picture, person) for person in range(people)], np.float32).reshape(-1, 4))


def _in_set(setup: TaskSetup, picture: Picture) -> Picture:
    assert isinstance(setup, PoseSetup)
    picture = setup.in_set(picture)
    points = len(setup.task.set)
    if picture.keypoints is not None and picture.keypoints.shape[1] != points:
        raise ValueError(
            f"picture {picture.id!r} has {picture.keypoints.shape[1]} keypoints, the model {points} "
            f"({setup.task.set.name}): give pictures with the same set, or with the 308"
        )
    return picture


def _add(metric: Any, setup: TaskSetup, predictor: Predictor, picture: Picture, result: Result, detected: bool) -> None:
    found: Any = result
    match setup.name:
        case "pose":
            truth = _in_set(setup, picture).keypoints
            if len(found.boxes) or detected:
                metric.update(
                    picture.id, found.keypoints, found.instance_scores, truth, picture.areas, picture.boxes,
                    owners=None if detected else np.arange(len(found.boxes)),
                )  # fmt: skip
        case "seg":
            metric.update(found.labels, picture.parts)
        case "normal":
            metric.update(found.normals, picture.normals, picture.mask)
        case "pointmap":
            assert picture.depth is not None
            assert picture.intrinsics is not None
            seen = predictor.frame(picture.size).intrinsics(picture.intrinsics)
            metric.update(
                found.points, pointmap(picture.depth, picture.intrinsics), picture.mask, scale=found.scale,
                true_scale=canonical_scale(seen, predictor.size[1]),
            )  # fmt: skip
        case _:
            metric.update(found.albedo, picture.albedo, picture.mask)
