"""Keypoints and classes have to be those of the head."""

from __future__ import annotations

import pytest

from training.models.heads import NormalHeadConfig, PoseHeadConfig, SegmentationHeadConfig
from training.prediction.tasks import task_of
from training.tasks.normal import NormalConfig
from training.tasks.parts import PartClasses
from training.tasks.pose import PoseConfig
from training.tasks.segmentation import SegmentationConfig


@pytest.mark.parametrize(("count", "name"), [(308, "sapiens308"), (133, "wholebody133"), (17, "coco17")])
def test_the_number_of_keypoints_names_a_built_in_set(count: int, name: str) -> None:
    task = task_of("pose", PoseHeadConfig(8, (8,), (), count))
    assert task.set.name == name


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="17 keypoints, sapiens308 has 308"):
        task_of("pose", PoseHeadConfig(8, (8,), (), 17), PoseConfig())
    with pytest.raises(ValueError, match="4 classes, the configuration 29"):
        task_of("seg", SegmentationHeadConfig(8, (8,), (), 4))
    with pytest.raises(TypeError, match="seg has a SegmentationConfig"):
        task_of("seg", SegmentationHeadConfig(8, (8,), ()), NormalConfig())
    with pytest.raises(ValueError, match="normal has 3"):
        task_of("normal", NormalHeadConfig(8, (8,), (), 4))
    own = SegmentationConfig(classes=PartClasses(names=("background", "hat")))
    assert task_of("seg", SegmentationHeadConfig(8, (8,), (), 2), own).config is own
