"""The five tasks behind one face: a sample of a picture, the loss's terms, and the metric over pictures.

`Setup` is what a run is of: one task, or several (`multi.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eval.metrics import METRICS, Metric, PoseMetricConfig, SegmentationMetricConfig, TaskMetric
from training.data.labelled import IGNORE_PART, Picture, pointmap
from training.models.heads import HeadConfig
from training.tasks.albedo import Albedo, AlbedoConfig
from training.tasks.augment import RECIPES, AugmentConfig, augment
from training.tasks.backgrounds import Backgrounds, composite
from training.tasks.canonical import canonical_scale
from training.tasks.dense_task import required
from training.tasks.frames import Frame, Size, letterbox, stretch
from training.tasks.keypoint_sets import convert, keypoint_set
from training.tasks.normal import Normal, NormalConfig
from training.tasks.pointmap import Pointmap, PointmapConfig
from training.tasks.pose import Pose, PoseConfig
from training.tasks.random_frames import PARTS_FRAMES, DenseFrameConfig, draw_dense_frame
from training.tasks.segmentation import Segmentation, SegmentationConfig
from training.tasks.warp import move, warp, warp_labels

Image = npt.NDArray[np.uint8]
Targets = dict[str, Tensor]


class Setup(ABC):
    """What training needs of one task, or of several on one backbone.

    Attributes:
        name: of the task in `training.models`, or "multi".
        size: (height, width) of what the model sees.
    """

    name: str
    size: Size

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, TaskSetup]:
        """The tasks by name, in the order of the heads."""

    @abstractmethod
    def label(self, task: str, name: str) -> str:
        """The name of a figure or a term of a task where those of all tasks are side by side."""

    @abstractmethod
    def sample(self, picture: Picture, rng: np.random.Generator) -> tuple[Image, Targets] | None:
        """An augmented training image of the frame's size and its targets; None where the picture is no use.

        Of several tasks: an image for each, uint8 [T, h, w, 3].
        """

    @abstractmethod
    def loss(self, output: Any, targets: Targets, progress: float = 0.0) -> dict[str, Tensor]:
        """The weighted terms, named loss_*.

        Args:
            output: of the model.
            targets: of its images, batched.
            progress: the share of the run's steps that are done, 0..1.
        """


class TaskSetup(Setup):
    """What training and measuring need of a task.

    Args:
        augmentation: of training images; None: the released recipe of the task.
    """

    metric: TaskMetric
    task: Any
    """Targets, loss, decoding."""

    def __init__(self, size: Size, augmentation: AugmentConfig | None) -> None:
        self.size = size
        self.augmentation = RECIPES[self.name] if augmentation is None else augmentation

    @property
    def parts(self) -> Mapping[str, TaskSetup]:
        return {self.name: self}

    def label(self, task: str, name: str) -> str:
        return name

    @abstractmethod
    def crops(self, picture: Picture) -> list[tuple[Frame, Image]]:
        """What the model is to see of a picture to predict it, without augmentation: frames and their images."""

    @abstractmethod
    def add(self, metric: Any, picture: Picture, frames: list[Frame], output: Any) -> None:
        """Add a picture to the metric, from the model's output for all its crops, on the CPU."""

    def check(self) -> None:
        """See that what training needs besides pictures is there; ValueError with the fix where not."""
        return

    def new_metric(self) -> Metric:
        """Empty."""
        return self.metric.metric(self.metric.config())

    def head(self, config: HeadConfig) -> HeadConfig:
        """The head's configuration for this task's number of outputs."""
        return config


class PoseSetup(TaskSetup):
    """Top-down: a sample is one person; every person of a picture is measured, in the true box."""

    name = "pose"
    metric = METRICS["pose"]

    def __init__(self, size: Size, augmentation: AugmentConfig | None, config: PoseConfig) -> None:
        super().__init__(size, augmentation)
        self.task = Pose(config)

    def in_set(self, picture: Picture) -> Picture:
        """With the keypoints of this set, where the picture has those of the 308 and the set is another."""
        own, whole = self.task.set, keypoint_set("sapiens308")
        if picture.keypoints is None or not picture.keypoints.shape[1] == len(whole) != len(own):
            return picture
        return replace(picture, keypoints=convert(picture.keypoints, whole, own))

    def sample(self, picture: Picture, rng: np.random.Generator) -> tuple[Image, Targets] | None:
        picture = self.in_set(picture)
        people = 0 if picture.keypoints is None else len(picture.keypoints)
        if not people:
            return None
        person = int(rng.integers(people))
        image, targets = self.task.sample(picture, person, self.task.draw_frame(rng, picture, person, self.size))
        if self.task.rejection(targets) is not None:
            return None
        return augment(image, rng, self.augmentation), targets

    def loss(self, output: Any, targets: Targets, progress: float = 0.0) -> dict[str, Tensor]:
        return self.task.loss(output, targets, progress)

    def crops(self, picture: Picture) -> list[tuple[Frame, Image]]:
        picture = self.in_set(picture)
        people = 0 if picture.keypoints is None else len(picture.keypoints)
        frames = [self.task.frame(picture, person, self.size) for person in range(people)]
        return [(frame, self.task.sample(picture, person, frame)[0]) for person, frame in enumerate(frames)]

    def add(self, metric: Any, picture: Picture, frames: list[Frame], output: Any) -> None:
        found = self.task.decode(output, frames)
        metric.update(
            picture.id,
            found.keypoints,
            found.instance_scores(),
            self.in_set(picture).keypoints,
            picture.areas,
            picture.boxes,
            owners=np.arange(len(frames)),
        )

    def new_metric(self) -> Metric:
        points = self.task.set
        # The parts of the set are measured on their own, as released; one that is the whole set adds nothing.
        groups = {name: tuple(part.tolist()) for name, part in points.parts.items() if 0 < len(part) < len(points)}
        return METRICS["pose"].metric(PoseMetricConfig(sigmas=tuple(points.sigmas.tolist()), groups=groups))

    def head(self, config: HeadConfig) -> HeadConfig:
        return replace(config, out_channels=len(self.task.set))


class DenseSetup(TaskSetup):
    """A label for every pixel: a sample is a picture in a drawn frame."""

    needs: tuple[str, ...]
    """Labels of a `Picture`."""

    def __init__(self, size: Size, augmentation: AugmentConfig | None, frames: DenseFrameConfig | None) -> None:
        super().__init__(size, augmentation)
        self.frames = frames or DenseFrameConfig()

    def moved(self, picture: Picture, frame: Frame) -> Picture:
        """The picture's image and the labels that the task needs, in the frame."""
        unused: dict[str, Any] = {
            name: None for name in ("parts", "normals", "depth", "albedo", "keypoints") if name not in self.needs
        }
        return move(replace(picture, **unused), frame)

    def drawn(self, picture: Picture, rng: np.random.Generator) -> Picture:
        """The picture in a frame that is drawn for training."""
        return self.moved(picture, draw_dense_frame(rng, picture.size, self.size, self.frames).frame)

    def sample(self, picture: Picture, rng: np.random.Generator) -> tuple[Image, Targets] | None:
        moved = self.drawn(picture, rng)
        if self.task.rejection(moved) is not None:
            return None
        return augment(moved.image, rng, self.augmentation), self.task.targets(moved)

    def loss(self, output: Any, targets: Targets, progress: float = 0.0) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self.task.loss(output, targets)
        return losses

    def fit(self, picture: Picture) -> Frame:
        """The whole picture."""
        return (
            stretch(picture.size, self.size)
            if self.frames.fit == "stretch"
            else letterbox(picture.size, self.size, "truncate")
        )

    def crops(self, picture: Picture) -> list[tuple[Frame, Image]]:
        frame = self.fit(picture)
        plain = replace(picture, parts=None, normals=None, depth=None, albedo=None, keypoints=None)
        return [(frame, move(plain, frame).image)]


class SegmentationSetup(DenseSetup):
    """Body parts."""

    name, needs, metric = "seg", ("parts",), METRICS["segmentation"]

    def __init__(
        self,
        size: Size,
        augmentation: AugmentConfig | None,
        frames: DenseFrameConfig | None,
        config: SegmentationConfig,
    ) -> None:
        super().__init__(size, augmentation, frames or PARTS_FRAMES)
        self.task = Segmentation(config)
        self.backgrounds = None if config.backgrounds is None else Backgrounds(config.backgrounds)

    def moved(self, picture: Picture, frame: Frame) -> Picture:
        plain = replace(picture, normals=None, depth=None, albedo=None, keypoints=None)
        return move(plain, frame, flip_parts=self.task.config.classes.flip)

    def check(self) -> None:
        if self.backgrounds is not None:
            len(self.backgrounds)

    def drawn(self, picture: Picture, rng: np.random.Generator) -> Picture:
        parts = required(picture.parts, "parts", picture)
        config, background = self.task.config, self.task.config.classes.background
        if self.backgrounds is not None and rng.random() < config.background_probability:
            other = self.backgrounds.draw(rng, picture.size)
            picture = replace(picture, image=composite(picture.image, parts != background, other))
        frame, window = draw_dense_frame(
            rng, picture.size, self.size, self.frames, lambda found: self.task.accepts(warp_labels(parts, found))
        )
        moved = self.moved(picture, frame)
        if not frame.axis_aligned and config.rotation_border == "background" and background is not None:
            inside = warp(np.ones(window.size, np.bool_), window.inverse().then(frame))
            assert moved.parts is not None
            moved = replace(moved, parts=np.where(inside, moved.parts, np.uint8(background)))
        return moved

    def add(self, metric: Any, picture: Picture, frames: list[Frame], output: Any) -> None:
        metric.update(self.task.decode(output, frames[0]), picture.parts)

    def new_metric(self) -> Metric:
        classes = len(self.task.config.classes)
        return self.metric.metric(SegmentationMetricConfig(classes=classes, ignore=IGNORE_PART))

    def head(self, config: HeadConfig) -> HeadConfig:
        return replace(config, out_channels=len(self.task.config.classes))


class NormalSetup(DenseSetup):
    """Surface normals."""

    name, needs, metric = "normal", ("normals",), METRICS["normal"]

    def __init__(
        self, size: Size, augmentation: AugmentConfig | None, frames: DenseFrameConfig | None, config: NormalConfig
    ) -> None:
        super().__init__(size, augmentation, frames)
        self.task = Normal(config)

    def add(self, metric: Any, picture: Picture, frames: list[Frame], output: Any) -> None:
        metric.update(self.task.decode(output, frames[0]), picture.normals, picture.mask)


class PointmapSetup(DenseSetup):
    """Points in metres."""

    name, needs, metric = "pointmap", ("depth", "intrinsics"), METRICS["pointmap"]

    def __init__(
        self, size: Size, augmentation: AugmentConfig | None, frames: DenseFrameConfig | None, config: PointmapConfig
    ) -> None:
        super().__init__(size, augmentation, frames)
        self.task = Pointmap(config)

    def add(self, metric: Any, picture: Picture, frames: list[Frame], output: Any) -> None:
        if picture.depth is None or picture.intrinsics is None:
            raise ValueError(f"picture {picture.id!r} has no depth or no intrinsics")
        found = self.task.decode(output, frames[0])
        true = frames[0].intrinsics(picture.intrinsics)
        metric.update(
            found.points,
            pointmap(picture.depth, picture.intrinsics),
            picture.mask,
            scale=found.scale,
            true_scale=canonical_scale(true, self.size[1]),
        )


class AlbedoSetup(DenseSetup):
    """Albedo."""

    name, needs, metric = "albedo", ("albedo",), METRICS["albedo"]

    def __init__(
        self, size: Size, augmentation: AugmentConfig | None, frames: DenseFrameConfig | None, config: AlbedoConfig
    ) -> None:
        super().__init__(size, augmentation, frames)
        self.task = Albedo(config)

    def add(self, metric: Any, picture: Picture, frames: list[Frame], output: Any) -> None:
        metric.update(self.task.decode(output, frames[0]), picture.albedo, picture.mask)


def stacked(outputs: list[Any]) -> Any:
    """Outputs of one image each -> of all; a pair stays a pair."""
    if isinstance(outputs[0], tuple):
        return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))
    return torch.cat(outputs)
