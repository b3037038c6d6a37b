"""The five tasks behind one face: the truth, put through a crop and back, has nearly the best figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from tests.fixtures.finetuning import TASKS, finetune_config
from training.data.labelled import Picture
from training.finetuning.pictures import open_pictures
from training.finetuning.tasks import DenseSetup, PoseSetup, SegmentationSetup, TaskSetup, stacked
from training.tasks import pose_codec
from training.tasks.augment import RECIPES, AugmentConfig
from training.tasks.random_frames import DenseFrameConfig
from training.tasks.segmentation import SegmentationConfig


def made(name: str, **changes: Any) -> tuple[TaskSetup, Any]:
    people = {"size": [128, 96], "people": [1, 2], "portraits": 0.0}
    config = finetune_config(name, size=[192, 144], data={"people": people}, **changes)
    return config.setup(), open_pictures(config.data)[0]


def perfect(setup: TaskSetup, picture: Any, number: int, frame: Any) -> Any:
    """The output that a perfect model would give for a crop."""
    if isinstance(setup, PoseSetup):
        targets = setup.task.sample(setup.in_set(picture), number, frame)[1]
        size = (frame.size[0] // 4, frame.size[1] // 4)
        points = targets["points"][None] * torch.tensor([size[1] - 1.0, size[0] - 1.0])
        return pose_codec.encode(points, targets["visible"][None], size)[0]
    assert isinstance(setup, DenseSetup)
    targets = setup.task.targets(setup.moved(picture, frame))
    if setup.name == "seg":
        return torch.nn.functional.one_hot(targets["labels"].long(), 29).permute(2, 0, 1)[None].float()
    if setup.name == "pointmap":
        return targets["points"][None], targets["scale"][None, None]
    return targets["normals" if setup.name == "normal" else "albedo"][None]


@pytest.mark.parametrize(
    ("name", "figure", "least", "most"),
    [
        ("pose", "ap", 0.95, 1.0),
        ("seg", "miou", 0.85, 1.0),
        ("normal", "median_deg", 0.0, 3.0),
        ("pointmap", "l2", 0.0, 0.1),
        ("albedo", "mae", 0.0, 0.03),
    ],
)
def test_the_truth_has_nearly_the_best_figures(name: str, figure: str, least: float, most: float) -> None:
    """A crop, a scale or a unit that is wrong on one of both ways shows here."""
    setup, pictures = made(name)
    metric = setup.new_metric()
    for index in range(3):
        picture = pictures[index]
        frames = [frame for frame, _ in setup.crops(picture)]
        outputs = [perfect(setup, picture, number, frame) for number, frame in enumerate(frames)]
        setup.add(metric, picture, frames, stacked(outputs))
    found = metric.compute()[figure]
    assert least <= found <= most


@pytest.mark.parametrize("name", TASKS)
def test_a_sample_has_the_size_of_the_frame_and_is_a_function_of_its_key(name: str) -> None:
    setup, pictures = made(name, task={"augmentation": None})

    def sample(key: int) -> Any:
        return setup.sample(pictures[0], np.random.Generator(np.random.Philox(key=key)))

    one, same, other = sample(1), sample(1), sample(2)
    assert one is not None
    assert one[0].shape == (192, 144, 3)
    assert np.array_equal(one[0], same[0])
    assert all(torch.equal(value, same[1][key]) for key, value in one[1].items())
    assert other is None or not np.array_equal(one[0], other[0])


@pytest.mark.parametrize("name", TASKS)
def test_augmentation_is_the_released_recipe_unless_another_is_given(name: str) -> None:
    assert made(name, task={"augmentation": None})[0].augmentation == RECIPES[name]
    assert made(name)[0].augmentation.photometric_probability == 0


def test_keypoints_of_308_serve_a_smaller_set() -> None:
    setup, pictures = made("pose")
    assert isinstance(setup, PoseSetup)
    picture = pictures[0]
    smaller = setup.in_set(picture)
    assert picture.keypoints.shape[1:] == (308, 3)
    assert smaller.keypoints is not None
    assert smaller.keypoints.shape[1:] == (17, 3)
    assert np.array_equal(smaller.keypoints[:, 0], picture.keypoints[:, 0])  # the nose is first in both
    assert setup.in_set(smaller) is smaller


def test_pairs_of_outputs_stay_pairs() -> None:
    maps = [torch.full((1, 3, 2, 2), float(number)) for number in range(2)]
    assert stacked(maps).shape == (2, 3, 2, 2)
    points, scales = stacked([(item, torch.ones(1, 1)) for item in maps])
    assert (points.shape, scales.shape) == ((2, 3, 2, 2), (2, 1))


def halves(frames: dict[str, Any], **seg: Any) -> tuple[SegmentationSetup, Picture]:
    """A setup that moves pictures in one way only; and a picture, class 5 but for a border of background."""
    still = {f"{kind}_probability": 0.0 for kind in ("crop", "rotation", "zoom", "flip")}
    setup = SegmentationSetup(
        (96, 72), AugmentConfig(), DenseFrameConfig(**still | {"fit": "stretch"} | frames), SegmentationConfig(**seg)
    )
    parts = np.full((96, 72), 5, np.uint8)
    parts[:2] = 0
    return setup, Picture(
        np.full((96, 72, 3), 200, np.uint8), parts > 0, np.where(parts > 0, 0, -1).astype(np.int16), parts=parts
    )


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


@pytest.mark.parametrize(("border", "expected"), [("background", 0), ("ignore", 255)])
def test_corners_that_a_rotation_brings_in_are_background(border: str, expected: int) -> None:
    setup, picture = halves({"rotation_probability": 1.0, "rotation": 40.0}, rotation_border=border)
    moved = setup.drawn(picture, rng(1))
    assert moved.parts is not None
    corners = moved.parts[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners.tolist() == [expected] * 4
    assert (moved.image[[0, 0, -1, -1], [0, -1, 0, -1]] == 0).all()


def test_the_padding_of_a_zoom_is_ignored_also_after_a_rotation() -> None:
    zoomed = {"zoom_probability": 1.0, "zoom": (0.5, 0.5)}
    setup, picture = halves(zoomed)
    plain = setup.drawn(picture, rng(1)).parts
    assert plain is not None
    assert {5, 255} <= set(np.unique(plain).tolist())
    assert plain[-1, -1] == 255  # the picture is in the upper left quarter
    turned, _ = halves(zoomed | {"rotation_probability": 1.0, "rotation": 40.0})
    labels = turned.drawn(picture, rng(1)).parts
    assert labels is not None
    assert labels[-1, -1] == 0  # from outside of the window
    assert (labels == 255).mean() > 0.3  # its padding


def test_zoomed_windows_are_varied_where_they_can_be() -> None:
    """Half the picture is one class and half another: nine of ten windows of a quarter would show one of them only."""
    parts = np.full((96, 72), 5, np.uint8)
    parts[:48] = 7
    picture = Picture(np.zeros((96, 72, 3), np.uint8), parts > 0, np.zeros((96, 72), np.int16), parts=parts)
    shares = {}
    for limit in (0.75, 1.0):
        setup, _ = halves({"zoom_probability": 1.0, "zoom": (4.0, 4.0)}, max_class_share=limit)
        drawn = [setup.drawn(picture, rng(key)).parts for key in range(60)]
        shares[limit] = np.mean([max((labels == 5).mean(), (labels == 7).mean()) > 0.75 for labels in drawn])
    assert shares[0.75] < 0.35 < 0.75 < shares[1.0]


def test_backgrounds_are_replaced_behind_people_only(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "green.png"), np.full((60, 60, 3), (0, 200, 0), np.uint8))
    setup, picture = halves({}, backgrounds=str(tmp_path), background_probability=1.0)
    setup.check()
    moved = setup.drawn(picture, rng(1))
    assert (moved.image[:2] == (0, 200, 0)).all()
    assert np.array_equal(moved.parts, picture.parts)
    assert (picture.image == 200).all()
    never, _ = halves({}, backgrounds=str(tmp_path), background_probability=0.0)
    assert np.array_equal(never.drawn(picture, rng(1)).image, picture.image)
    missing, _ = halves({}, backgrounds=str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"backgrounds: .*does not exist.*Give a folder of images"):
        missing.check()


def test_pose_is_measured_by_parts_of_the_body_too() -> None:
    setup, pictures = made("pose", task={"pose": {"keypoints": "sapiens308"}})
    metric = setup.new_metric()
    frames = [frame for frame, _ in setup.crops(pictures[0])]
    outputs = [perfect(setup, pictures[0], number, frame) for number, frame in enumerate(frames)]
    setup.add(metric, pictures[0], frames, stacked(outputs))
    assert {"ap", *(f"{part}/ap" for part in ("body", "foot", "face", "left_hand", "right_hand"))} <= set(
        metric.compute()
    )
