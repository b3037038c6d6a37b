"""The object of `training.tasks` that fits a head: its keypoints or classes are as many as the head has outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.models.heads import HeadConfig
from training.tasks.albedo import Albedo, AlbedoConfig
from training.tasks.keypoint_sets import BUILT_IN, keypoint_set
from training.tasks.normal import Normal, NormalConfig
from training.tasks.pointmap import Pointmap, PointmapConfig
from training.tasks.pose import Pose, PoseConfig
from training.tasks.segmentation import Segmentation, SegmentationConfig

Task = Pose | Segmentation | Normal | Pointmap | Albedo
TaskConfig = PoseConfig | SegmentationConfig | NormalConfig | PointmapConfig | AlbedoConfig

_TASKS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "pose": (Pose, PoseConfig),
    "seg": (Segmentation, SegmentationConfig),
    "normal": (Normal, NormalConfig),
    "pointmap": (Pointmap, PointmapConfig),
    "albedo": (Albedo, AlbedoConfig),
}


def task_of(task: str, head: HeadConfig, config: TaskConfig | None = None) -> Task:
    """The task with its configuration.

    Args:
        task: one of `heads.TASKS`.
        head: of the model.
        config: of the task; None: the defaults, for pose with the built-in keypoint set of this many.

    Raises:
        TypeError: the configuration of another task.
        ValueError: other keypoints or classes than the head has.
    """
    kind, config_type = _TASKS[task]
    if config is not None and not isinstance(config, config_type):
        raise TypeError(f"task_config is a {type(config).__name__}; {task} has a {config_type.__name__}")
    outputs = head.out_channels
    if config is None and task == "pose":
        names = {len(keypoint_set(name)): name for name in BUILT_IN}
        if outputs not in names:
            raise ValueError(
                f"the head has {outputs} keypoints, which is none of the sets "
                f"{', '.join(f'{name} ({count})' for count, name in names.items())}: give "
                "task_config=PoseConfig(keypoints=...), the YAML file of your own set (--keypoints)"
            )
        config = PoseConfig(keypoints=names[outputs])
    made: Task = kind(config)
    if isinstance(made, Pose) and len(made.set) != outputs:
        raise ValueError(f"the head has {outputs} keypoints, {made.set.name} has {len(made.set)}: give their set")
    if isinstance(made, Segmentation) and len(made.config.classes) != outputs:
        raise ValueError(
            f"the head has {outputs} classes, the configuration {len(made.config.classes)}: give "
            "task_config=SegmentationConfig(classes=PartClasses(names=..., flip_pairs=...)) of its training (--classes)"
        )
    if not isinstance(made, Pose | Segmentation) and outputs != 3:
        raise ValueError(f"the head has {outputs} outputs a pixel, {task} has 3: these weights are of another kind")
    return made
