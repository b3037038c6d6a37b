"""The entries of a COCO keypoints file: which are people that are kept, and how many are not, by why. See `coco.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from training.data.labelled_sets.coco_categories import category_counts, chosen_categories, described, identifier
from training.data.labelled_sets.coco_numbers import annotation_keypoints, finite
from training.data.labelled_sets.config import CocoConfig
from training.data.labelled_sets.problem import LabelError, Problem
from training.tasks.keypoint_sets import KeypointSet, correspondence

AREA_OF_BOX = 0.53


@dataclass(frozen=True, slots=True)
class Person:
    """One annotation that is kept: its id, keypoints float32 [K, 3] of the wanted set, corners, and area in pixels."""

    annotation: str
    keypoints: npt.NDArray[np.float32]
    box: tuple[float, float, float, float]
    area: float


@dataclass
class LeftOut:
    """Annotations that are no people that are kept: why -> number; as text, for people.

    Attributes:
        counts: in the order in which they were found.
        people: ids of the categories that are people, where others are left out.
    """

    counts: Counter[str] = field(default_factory=Counter)
    people: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {why}" for why, count in self.counts.items()) or "none is left out"


def stated_size(image: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width that an entry of `images` states, 0 where it does not."""
    found = []
    for name in ("height", "width"):
        value = image.get(name)
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
        found.append(int(value) if whole and 0 < value < 2**31 else 0)  # type: ignore[arg-type, operator]
    return found[0], found[1]


def check_images(images: list[dict[str, Any]], file: str, problems: list[Problem]) -> None:
    """Add what is wrong with the entries of `images`."""
    for value, count in Counter(identifier(image.get("id")) for image in images).items():
        if count > 1:
            problems.append(Problem(file, f"has {count} images of id {value}", "Give each image its own id"))
    for image in images:
        name = image.get("file_name")
        if not isinstance(name, str) or not name:
            problems.append(Problem(file, f"image {image.get('id')} has no file_name", "Add it"))
        elif PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            problems.append(
                Problem(
                    file, f"names {name!r}, which is not below `images`", "Write file names relative to that folder"
                )
            )
        if min(stated_size(image)) < 1:
            problems.append(
                Problem(file, f"image {image.get('id')} has no width and height", "Add those of the upright picture")
            )


def people_of(
    annotations: list[dict[str, Any]],
    categories: Mapping[str, str],
    known: set[str],
    config: CocoConfig,
    sets: tuple[KeypointSet, KeypointSet],
    problems: list[Problem],
) -> tuple[dict[str, list[Person]], LeftOut]:
    """Image id -> the people that are kept, in the order of the file; and what is not.

    Args:
        annotations: of the file.
        categories: id -> name.
        known: ids of images.
        config: of the source.
        sets: of the file's keypoints, and of those that are wanted.
        problems: is added to.

    Raises:
        LabelError: it cannot be told which category is people.
    """
    source, places = sets[0], correspondence(*sets)
    file, people, left_out = config.annotations, dict[str, list[Person]](), LeftOut()
    counts = category_counts(annotations)
    try:
        chosen = chosen_categories(categories, counts, config.category, only_one=True)
    except ValueError as error:
        raise LabelError(file, str(error), "Set `category` to a name, a number, or all") from None
    others = {key: count for key, count in counts.items() if chosen is not None and key not in chosen}
    if others and chosen is not None:
        left_out.people = tuple(sorted(chosen))
        left_out.counts[f"of other categories: {described(categories, others)}"] = sum(others.values())
        named = " and ".join(f"{key} {categories.get(key, '')}".strip() for key in left_out.people)
        problems.append(
            Problem(
                file,
                f"{sum(others.values()):,} of {len(annotations):,} annotations are not of category {named}, and are "
                f"left out: {described(categories, others)}",
                "Set `category` to a name, a number, or all, if they are people",
                fatal=False,
            )
        )
    for annotation in annotations:
        if chosen is not None and identifier(annotation.get("category_id")) in others:
            continue
        name = str(annotation.get("id"))
        image = identifier(annotation.get("image_id"))
        if image is None or image not in known:
            problems.append(
                Problem(
                    file,
                    f"annotation {name} is of image {annotation.get('image_id')}, which is not listed",
                    "Correct its image_id, or list that image",
                    fatal=False,
                )
            )
            left_out.counts["of images that are not listed"] += 1
            continue
        crowd = bool(annotation.get("iscrowd"))
        if crowd and config.crowds == "drop":
            left_out.counts["crowds"] += 1
            continue
        try:
            keypoints = np.zeros((len(source), 3)) if crowd else annotation_keypoints(annotation, source, config.field)
        except ValueError as error:
            problems.append(Problem(file, f"annotation {name}: {error}", "Correct it, source_set or field"))
            continue
        if config.pixel_origin == "corner":
            keypoints[:, :2] -= 0.5
        moved = np.where((places >= 0)[:, None], keypoints[places], 0).astype(np.float32)  # `convert`, found once
        if not crowd and (moved[:, 2] > 0).sum() < config.min_keypoints:
            left_out.counts[f"with fewer labelled keypoints than min_keypoints ({config.min_keypoints})"] += 1
            continue
        box = annotation.get("bbox")
        if not (isinstance(box, list) and len(box) == 4 and all(map(finite, box)) and box[2] > 0 and box[3] > 0):
            problems.append(
                Problem(file, f"annotation {name} has no box, or an empty one: {box}; it is left out", "Add one", False)
            )
            left_out.counts["without a box, or with an empty one"] += 1
            continue
        x, y, width, height = map(float, box)
        area: Any = annotation.get("area")
        size = float(area) if finite(area) and area > 0 else AREA_OF_BOX * width * height
        people.setdefault(image, []).append(Person(name, moved, (x, y, x + width, y + height), size))
    return people, left_out
