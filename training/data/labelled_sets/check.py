"""What is wrong with labelled data, found before a run is: names of all files, and the content of a sample of them.

`populace check-data CONFIG` prints what this returns. A problem that is fatal stops a run, or its picture; the others
are unlikely to be meant. Thresholds are in `plausible.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from curation.manifest import shard_files
from training.data.errors import DataError
from training.data.keys import permutation
from training.data.labelled import IGNORE_PART
from training.data.labelled_sets.coco import CocoKeypoints, CocoPeople, missing_images, read_coco
from training.data.labelled_sets.coco_numbers import inside
from training.data.labelled_sets.config import CocoConfig, LabelledConfig, ShardsConfig, Source
from training.data.labelled_sets.folders import FolderPictures, list_folders
from training.data.labelled_sets.opening import open_labelled, open_source
from training.data.labelled_sets.plausible import NO_PERSON, ONLY_IGNORED, PARTS_IGNORED, SAVE_IDS, check_record
from training.data.labelled_sets.problem import LabelError, Problem
from training.data.labelled_sets.record import PictureSource
from training.data.labelled_sets.shards import PACK_AGAIN, ShardPictures
from training.tasks.keypoint_sets import keypoint_set

_SAMPLE = 0x53414D504C45  # keeps this order apart from others of a seed
BEYOND = 0.1  # of a side: a box may reach this far beyond the picture (ours)
ENOUGH = 50  # pictures without anybody that tell that all are (ours)
FACES, SWAPPED = 10, 0.8  # frontal faces that are enough to tell, and the share of them that must look mirrored (ours)


def check_source(config: Source, sample: int = 200, seed: int = 0, parts: bool = False) -> list[Problem]:
    """Problems of a source, those of the files' names first; empty where all is well.

    Args:
        config: of the source.
        sample: pictures that are read and decoded; names, numbers in JSON and sizes of shards are checked for all.
        seed: which pictures.
        parts: a task learns from the parts, so that pictures whose parts are all to be ignored are of no use.
    """
    try:
        source, problems = open_despite(config)
        problems += check_pictures(source, sample, seed, parts)
        if isinstance(config, ShardsConfig) and isinstance(source, ShardPictures):
            problems = [*_check_shards(config, source), *problems]
    except LabelError as error:
        return [error.problem]
    except (DataError, ValueError) as error:
        return [Problem(place_of(config), str(error).rstrip("."), "Correct the configuration")]
    return list(dict.fromkeys(problems))


def check_pictures(source: PictureSource, sample: int, seed: int = 0, parts: bool = False) -> list[Problem]:
    """Problems of the files of some pictures, which are read and decoded; that none shows a person is fatal."""
    problems: list[Problem] = []
    blank: list[Problem] = []
    ignored = read = 0
    for index in sampled(source, sample, seed):
        found = _check_picture(source, index)
        problems += found
        if any(problem.fatal for problem in found):
            continue
        read += 1
        useless = (NO_PERSON, ONLY_IGNORED, PARTS_IGNORED) if parts else (NO_PERSON, ONLY_IGNORED)
        nobody = [problem for problem in found if problem.what in useless]
        blank += nobody[:1]
        ignored += any(problem.what != NO_PERSON for problem in nobody)
    # A few pictures without people may be a chance draw; as few whose people are all "ignore" are not.
    if read and len(blank) == read and (read == len(source) or read >= ENOUGH or ignored == read):
        why = f"; {ignored:,} have no part but {IGNORE_PART}, which means ignore" if ignored else ""
        problems.append(
            Problem(
                blank[0].file,
                f"is one of {read:,} pictures, all that were read, on which nobody is labelled{why}",
                SAVE_IDS if ignored else "Correct the labels: a pixel of a person is above the background",
            )
        )
    return problems


def sampled(source: PictureSource, sample: int, seed: int = 0) -> list[int]:
    """Places of `sample` pictures, or all, in order; the same for a seed."""
    return sorted(permutation(len(source), _SAMPLE, seed)[:sample].tolist())


def check_labelled(config: LabelledConfig, sample: int = 200, parts: bool = False) -> list[Problem]:
    """Problems of the training and the held-out pictures, and of how they are split; see `check_source`."""
    problems = check_source(config.train, sample, parts=parts)
    if config.held_out is not None:
        problems += check_source(config.held_out, sample, parts=parts)
    if any(problem.fatal for problem in problems):
        return problems
    try:
        train, held_out = open_labelled(config)
    except DataError as error:
        return [*problems, Problem(place_of(config.train), str(error).rstrip("."), "Correct the configuration")]
    both = {train.id(index) for index in range(len(train))} & {held_out.id(index) for index in range(len(held_out))}
    if both and config.held_out is not None:
        named = ", ".join(sorted(both)[:3])
        problems.append(
            Problem(
                place_of(config.held_out),
                f"{len(both)} ids are among the training pictures too ({named})",
                "Hold out other pictures, or rename them where they differ",
                fatal=False,
            )
        )
    return problems


def place_of(config: Source) -> str:
    """The path that a configuration leads to."""
    if isinstance(config, CocoConfig):
        return config.annotations
    return config.folder if isinstance(config, ShardsConfig) else config.root


def open_despite(config: Source) -> tuple[PictureSource, list[Problem]]:
    """The source, even where its files do not match, and what is wrong with those.

    Raises:
        DataError, ValueError: it cannot be opened at all.
    """
    if isinstance(config, CocoConfig):
        people = read_coco(config)
        found = [*people.problems, *missing_images(config, people), *_check_people(config, people)]
        return CocoKeypoints(config, replace(people, problems=())), found
    if isinstance(config, ShardsConfig):
        return open_source(config), []
    listing = list_folders(config)
    return FolderPictures(config, replace(listing, problems=())), list(listing.problems)


def _check_picture(source: PictureSource, index: int) -> list[Problem]:
    try:
        found = check_record(source.record(index))
        if isinstance(source, ShardPictures) and source.damaged_image(index):
            found.append(
                Problem(
                    source.config.folder, f"the image of {source.id(index)} is not the one that was packed", PACK_AGAIN
                )
            )
        return found
    except LabelError as error:
        return [error.problem]


def _check_shards(config: ShardsConfig, source: ShardPictures) -> Iterator[Problem]:
    for shard in source.manifest["shards"]:
        for name, size, _ in shard_files(shard):
            file = Path(config.folder, name)
            if not file.is_file():
                yield Problem(str(file), "is missing", PACK_AGAIN)
            elif file.stat().st_size != size:
                yield Problem(str(file), f"has {file.stat().st_size} bytes instead of {size}", PACK_AGAIN)


def _check_people(config: CocoConfig, people: CocoPeople) -> Iterator[Problem]:
    """Numbers of all people."""
    file = config.annotations
    for image, size in enumerate(people.sizes.tolist()):
        height, width = size
        for person in range(int(people.starts[image]), int(people.starts[image + 1])):
            name, keypoints, box = people.annotations[person], people.keypoints[person], people.boxes[person]
            lost = int((keypoints[:, 2] > 0).sum() - (inside(keypoints, (height, width))[:, 2] > 0).sum())
            if lost:
                yield Problem(
                    file,
                    f"annotation {name} has {lost} labelled keypoints outside of its picture of {width} x {height}",
                    "They count as not labelled; correct them",
                    fatal=False,
                )
            slack = BEYOND * max(width, height)
            if box[:2].min() < -slack or box[2] > width + slack or box[3] > height + slack:
                yield Problem(
                    file,
                    f"annotation {name} has a box far beyond its picture of {width} x {height}",
                    "Boxes are x, y, width, height, not two corners",
                    fatal=False,
                )
    labelled = people.keypoints[people.keypoints[..., 2] > 0][:, :2]
    if len(labelled) and labelled.min() >= -0.5 and labelled.max() <= 1:
        yield Problem(file, "all keypoints are in 0..1", "Write pixels, not shares of the picture", fatal=False)
    share, faces = mirrored_faces(config, people)
    if faces >= FACES and share > SWAPPED:
        yield Problem(
            file,
            f"in {share:.0%} of {faces} faces the left eye is on the left of the picture",
            "Left is the person's own: swap left and right of all keypoints, unless the pictures are mirrored",
            fatal=False,
        )


def mirrored_faces(config: CocoConfig, people: CocoPeople) -> tuple[float, int]:
    """Of people whose nose and eyes are all visible (who face the camera), the share with the left eye on the
    picture's left, and their number. An upright face that is labelled rightly has it on the right."""
    names = keypoint_set(config.wanted_set or config.source_set).names
    if not {"nose", "left_eye", "right_eye"} <= set(names):
        return 0.0, 0
    nose, left, right = (people.keypoints[:, names.index(name)] for name in ("nose", "left_eye", "right_eye"))
    frontal = (np.stack([nose, left, right])[..., 2] == 2).all(axis=0)
    frontal &= (np.minimum(left, right)[:, 0] < nose[:, 0]) & (nose[:, 0] < np.maximum(left, right)[:, 0])
    count = int(frontal.sum())
    return (float((left[frontal, 0] < right[frontal, 0]).mean()) if count else 0.0), count
