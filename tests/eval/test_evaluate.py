"""Figures through `Predictor`: true or detected boxes, other sizes and sets; the commands have the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from eval.evaluate import evaluate
from training.data.labelled import Picture
from training.data.people import PeopleConfig, render
from training.prediction import Boxes, Predictor, PredictorConfig
from training.tasks.keypoint_sets import convert, keypoint_set
from training.tasks.pose import Pose, PoseConfig


class _Pictures(list[Picture]):
    fingerprint = "test"


def people(count: int) -> _Pictures:
    config = PeopleConfig(size=(64, 48), people=(1, 2))
    return _Pictures(render(key, config) for key in range(count))


class _Middle(torch.nn.Module):
    """Every keypoint is in the middle of its box."""

    def __init__(self) -> None:
        super().__init__()
        squares = (torch.arange(16)[:, None] - 7.5) ** 2 + (torch.arange(12)[None] - 5.5) ** 2
        self.spots = torch.nn.Parameter(torch.exp(-squares / 8).expand(17, -1, -1).clone())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.spots.expand(len(images), -1, -1, -1)


def predictor(detector: object = None) -> Predictor:
    config = PredictorConfig(batch_size=3, flip=False)
    return Predictor(_Middle(), Pose(PoseConfig(keypoints="coco17")), (64, 48), config, detector)  # type: ignore[arg-type]


def test_people_in_true_boxes_or_in_those_of_a_detector() -> None:
    pictures, seen = people(4), []
    true = evaluate(predictor(), pictures, progress=seen.append)
    assert seen == [1, 2, 3, 4]
    assert true["pck_box@0.2"] > 0.05
    by_image = {picture.image.tobytes(): picture for picture in pictures}

    def detector(image: np.ndarray) -> Boxes:
        boxes = by_image[image.tobytes()].boxes
        assert boxes is not None
        return Boxes(boxes, np.linspace(0.9, 0.8, len(boxes), dtype=np.float32))

    sure = predictor(detector)
    sure.config = sure.config.model_copy(update={"box_overlap": 1.0})
    found = evaluate(sure, pictures, detected=True)
    assert found.keys() == true.keys()
    # Boxes are the same, but who is who is not said.
    assert found["pck_box@0.2"] == pytest.approx(true["pck_box@0.2"], abs=0.05)
    nobody = evaluate(predictor(lambda image: Boxes(np.zeros((0, 4)), np.zeros(0))), pictures, detected=True, limit=2)
    assert nobody["ar"] == 0
    with pytest.raises(ValueError, match="with a detector"):
        evaluate(predictor(), pictures, detected=True)


def test_keypoints_of_another_set_and_pictures_without_labels_are_refused() -> None:
    (picture,) = people(1)
    assert picture.keypoints is not None
    points: Sequence[str] = ("sapiens308", "wholebody133")
    other = convert(picture.keypoints, *(keypoint_set(name) for name in points))
    with pytest.raises(ValueError, match="133 keypoints, the model 17"):
        evaluate(predictor(), _Pictures([replace(picture, keypoints=other)]))
    bare = replace(picture, keypoints=None, boxes=None, areas=None)
    with pytest.raises(ValueError, match="has no keypoints, boxes, areas: pose cannot be measured"):
        evaluate(predictor(), _Pictures([bare]))
    own = convert(picture.keypoints, *(keypoint_set(name) for name in ("sapiens308", "coco17")))
    assert evaluate(predictor(), _Pictures([replace(picture, keypoints=own)]))["ap"] == pytest.approx(
        evaluate(predictor(), _Pictures([picture]))["ap"], nan_ok=True
    )
