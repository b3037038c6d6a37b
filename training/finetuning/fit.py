"""Do pictures have the labels that a task needs? Found before a run is, with the way out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from training.data.errors import DataError
from training.data.labelled_sets.check import check_labelled, check_pictures, open_despite, place_of, sampled
from training.data.labelled_sets.config import CocoConfig, LabelledConfig, PartFoldersConfig, ShardsConfig, Source
from training.data.labelled_sets.problem import Problem, refuse
from training.data.labelled_sets.record import PictureSource, Record
from training.finetuning.pictures import SyntheticConfig, open_pictures
from training.finetuning.tasks import DenseSetup, PoseSetup, SegmentationSetup, Setup, TaskSetup
from training.tasks.keypoint_sets import BUILT_IN, correspondence, keypoint_set
from training.tasks.parts import RELEASED_NAMES

BEFORE_A_RUN = 8
"""Pictures of each side that are read before a run starts (ours)."""
WHOLE_SET = "sapiens308"
"""Keypoints of this set become those of any other by name (`PoseSetup.in_set`)."""
DENSE = ("mask", "parts", "normals", "depth", "albedo")


@dataclass(frozen=True)
class Labels:
    """What a picture is labelled with.

    Attributes:
        names: of the labels: mask, parts, normals, depth, albedo, intrinsics, keypoints.
        keypoints: their number; 0 without.
        keypoint_set: name of their set, where it is known.
        classes: of parts, where the number is known.
    """

    names: frozenset[str]
    keypoints: int = 0
    keypoint_set: str | None = None
    classes: int | None = None

    def __str__(self) -> str:
        """For people, e.g. "mask, parts (29 classes), keypoints (17, coco17)"."""
        more = {
            "parts": f" ({self.classes} classes)" if self.classes else "",
            "keypoints": f" ({self.keypoints}, {self.keypoint_set})" if self.keypoint_set else f" ({self.keypoints})",
        }
        order = (*DENSE, "intrinsics", "keypoints")
        return ", ".join(f"{name}{more.get(name, '')}" for name in order if name in self.names)


RENDERED = Labels(frozenset((*DENSE, "intrinsics", "keypoints")), 308, WHOLE_SET, len(RELEASED_NAMES))
"""Of people that are rendered."""


def labels_of(record: Record) -> Labels:
    """The labels of a picture, without decoding them."""
    info = record.info
    names = {name for name in DENSE if name in record.members}
    if info.get("mask_from") in ("mask", "person", "parts"):  # boxes round people are no mask
        names.add("mask")
    names |= {name for name in ("intrinsics", "keypoints") if info.get(name) is not None}
    classes = int(info["classes"]) if "parts" in names and info.get("classes") else None
    return Labels(frozenset(names), int(info.get("keypoint_count") or 0), info.get("keypoint_set"), classes)


def checked_pictures(
    setup: Setup, data: SyntheticConfig | LabelledConfig, sample: int = BEFORE_A_RUN
) -> tuple[PictureSource, PictureSource]:
    """Open the pictures of a run: all names are looked at, and a few pictures are read.

    Args:
        setup: what is trained.
        data: where pictures are.
        sample: how many are read, of those to train on and of those that are held out.

    Returns:
        The pictures to train on, and those that are held out.

    Raises:
        DataError: they cannot be used, or lack what a task needs; the message lists the first problems and the fixes.
    """
    try:
        for part in setup.parts.values():
            part.check()
        train, held_out = open_pictures(data)
    except ValueError as error:  # of a keypoint set, or of a folder of backgrounds
        raise DataError(str(error)) from None
    if isinstance(data, SyntheticConfig):
        refuse(misfits(setup, data))
        return train, held_out
    found = []
    for side, source in ((train, data.train), (held_out, data.held_out or data.train)):
        found += [*_of_source(setup, side, source, sample), *check_pictures(side, sample, parts=_parts(setup))]
    refuse(list(dict.fromkeys(found)))
    return train, held_out


def check_data(setup: Setup, data: LabelledConfig, sample: int) -> list[Problem]:
    """All that is found wrong with labelled pictures, fatal problems first: of files, and of labels for the tasks."""
    found = list(dict.fromkeys([*misfits(setup, data, sample), *check_labelled(data, sample, _parts(setup))]))
    return sorted(found, key=lambda problem: not problem.fatal)


def _parts(setup: Setup) -> bool:
    """Whether a task learns from parts."""
    return any(isinstance(task, SegmentationSetup) for task in setup.parts.values())


def misfits(setup: Setup, data: SyntheticConfig | LabelledConfig, sample: int = BEFORE_A_RUN) -> list[Problem]:
    """Labels that the tasks need and pictures lack; one problem for all pictures of a source that lack the same."""
    if isinstance(data, SyntheticConfig):
        return [
            Problem("finetune.data", f"people that are rendered have {what}", fix)
            for task in setup.parts.values()
            for what, fix in _lacking(task, RENDERED, None)
        ]
    problems: list[Problem] = []
    for config in (data.train, data.held_out):
        if config is not None:
            try:
                source, _ = open_despite(config)
            except (DataError, ValueError):
                continue  # `check_labelled` says why
            problems += _of_source(setup, source, config, sample)
    return problems


def _of_source(setup: Setup, source: PictureSource, config: Source, sample: int) -> Iterator[Problem]:
    lacking: dict[tuple[str, str], list[str]] = {}
    read = 0
    for index in sampled(source, sample):
        try:
            labels = labels_of(source.record(index))
        except DataError:
            continue
        read += 1
        for task in setup.parts.values():
            for found in _lacking(task, labels, config):
                lacking.setdefault(found, []).append(source.id(index))
    for (what, fix), ids in lacking.items():
        which = "pictures have" if len(ids) == read else f"{len(ids)} of {read} pictures (as {ids[0]!r}) have"
        yield Problem(place_of(config), f"{which} {what}", fix)


def _lacking(task: TaskSetup, labels: Labels, source: Source | None) -> Iterator[tuple[str, str]]:
    """What does not fit, as the end of "pictures have ...", and the fix."""
    if isinstance(task, PoseSetup):
        yield from _keypoints(task, labels, source)
        return
    assert isinstance(task, DenseSetup)
    missing = [name for name in (*task.needs, "mask") if name not in labels.names]
    if missing:
        yield f"no {' and no '.join(missing)}, which task {task.name} needs", _fix(missing, source)
    elif isinstance(task, SegmentationSetup):
        yield from _classes(task, labels, source)


def _keypoints(task: PoseSetup, labels: Labels, source: Source | None) -> Iterator[tuple[str, str]]:
    own = task.task.set
    if "keypoints" not in labels.names:
        yield "no keypoints, which task pose needs", _fix(["keypoints"], source)
        return
    name = labels.keypoint_set or f"a set of {labels.keypoints}"
    if labels.keypoints == len(keypoint_set(WHOLE_SET)) != len(own):
        if not (correspondence(keypoint_set(WHOLE_SET), own) >= 0).any():
            yield f"keypoints of {WHOLE_SET}, and none of {own.name} is among them", "Name the same points (same_as)"
        return
    if labels.keypoints == len(own) and labels.keypoint_set in (None, own.name):
        return
    given = task.task.config.keypoints
    known = f"{labels.keypoint_set}" if labels.keypoint_set in BUILT_IN else "their set"
    fix = f"Set task.pose.keypoints to {known}"
    if isinstance(source, CocoConfig):
        fix += f", or wanted_set of the data to {given}"
    if isinstance(source, ShardsConfig):
        fix += f", or pack the source again with wanted_set {given}"
    yield f"{labels.keypoints} keypoints ({name}), but task pose is of {len(own)} ({own.name})", fix


def _classes(task: SegmentationSetup, labels: Labels, source: Source | None) -> Iterator[tuple[str, str]]:
    wanted = len(task.task.config.classes)
    if labels.classes is None or labels.classes == wanted:
        return
    fix = "Name all classes of the data in task.seg.classes.names"
    if source is not None and not isinstance(source, ShardsConfig):
        fix += f", or set `classes` of the data to {wanted} where its ids fit"
    yield f"{labels.classes} part classes, but task seg has {wanted}", fix


def _fix(missing: Sequence[str], source: Source | None) -> str:
    if isinstance(source, CocoConfig):
        return "COCO files give keypoints only: train task pose, or give a source of kind dense or parts"
    if isinstance(source, PartFoldersConfig):
        return "Folders of parts give parts only: train task seg, or give a source of another kind"
    if isinstance(source, ShardsConfig):
        return "Pack a source that has them, or train another task"
    if "keypoints" in missing:
        return "Give a source of kind coco, or train another task"
    folders = {"mask": "masks", "intrinsics": "intrinsics"}
    return f"Add {' and '.join(f'{folders.get(name, name)}/' for name in missing)}, or train another task"


def summary(data: SyntheticConfig | LabelledConfig) -> dict[str, Any]:
    """{"train": pictures, "held_out": pictures, "labels": of the first to train on, for people}.

    Raises:
        DataError: pictures cannot be opened.
    """
    train, held_out = open_pictures(data)
    labels = RENDERED if isinstance(data, SyntheticConfig) else _first_labels(train)
    return {"train": len(train), "held_out": len(held_out), "labels": str(labels)}


def _first_labels(source: PictureSource) -> Labels:
    """Of the first picture that can be read: one that cannot need not have been among those that were."""
    for index in range(len(source)):
        try:
            return labels_of(source.record(index))
        except DataError:
            continue
    return Labels(frozenset())
