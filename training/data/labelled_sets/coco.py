"""People with keypoints from a COCO keypoints file.

What is read of the JSON: `images` (id, file_name, width, height), `categories` (id, name) and `annotations` (image_id,
category_id, bbox, area, iscrowd and keypoints). Ids may be numbers or text (`coco_categories.py`).

Keypoints are flat lists x, y, v, ...; v is 0 (not labelled), 1 (hidden) or 2 (visible), and another positive number (a
confidence, as some sets have) counts as visible. An empty list is a person without labels. For `wholebody133`,
`keypoints` has COCO's 17 and is joined by `foot_kpts`, `face_kpts`, `lefthand_kpts`, `righthand_kpts` (absent lists,
and those of which `foot_valid`, ... is false, are not labelled), or it has all 133. For `sapiens308`,
`goliath_wholebody_kpts` or `keypoints` has all 308.

What becomes of it:

- Keypoints: COCO's are pixel indices, which are our pixel centres, so they are taken as they are; `pixel_origin:
  corner` subtracts 0.5. Those outside of the picture count as not labelled. They are moved to `wanted_set` by name.
- Boxes: x, y, width, height from the picture's corner -> left, top, right, bottom: edges of pixels, as ours. People
  without a box or with an empty one are left out (released).
- Areas: `area`, else 0.53 times the box (as MMPose does for sets without outlines).
- Categories: people are those of `category`; without one, of the category `person`, else of the only one. Others are
  left out and counted, whatever their keypoints are.
- Crowds and people with too few labelled keypoints: by the configuration.
- Mask and person: the boxes. Outlines (`segmentation`) are not read: poses need none.
- A picture's id is its image's id, as COCO results want it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.config import fingerprint
from training.data.labelled import Picture
from training.data.labelled_sets import members
from training.data.labelled_sets.coco_annotations import check_images, people_of, stated_size
from training.data.labelled_sets.coco_categories import category_names, identifier
from training.data.labelled_sets.coco_numbers import inside
from training.data.labelled_sets.config import CocoConfig
from training.data.labelled_sets.problem import LabelError, Problem, refuse
from training.data.labelled_sets.record import Member, Record, picture
from training.tasks.keypoint_sets import correspondence, keypoint_set


@dataclass(frozen=True)
class CocoPeople:
    """The content of a file.

    Attributes:
        ids: of N images, in the order of the file.
        files: their names below the folder.
        sizes: int64 [N, 2], height and width.
        starts: int64 [N + 1]: image i has the people [starts[i], starts[i + 1]).
        keypoints: float32 [P, K, 3] of the wanted set, at pixel centres; not yet cut to the picture.
        boxes: float32 [P, 4], corners, edges of pixels.
        areas: float32 [P].
        annotations: ids of the P annotations.
        categories: ids of those that are people, where annotations of others are left out; else empty.
        left_out: annotations that are not kept, with counts, for people.
        problems: fatal ones make the file unusable.
        sha256: of the file.
    """

    ids: tuple[str, ...]
    files: tuple[str, ...]
    sizes: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    keypoints: npt.NDArray[np.float32]
    boxes: npt.NDArray[np.float32]
    areas: npt.NDArray[np.float32]
    annotations: tuple[str, ...]
    categories: tuple[str, ...]
    left_out: str
    problems: tuple[Problem, ...]
    sha256: str


def read_coco(config: CocoConfig) -> CocoPeople:
    """Parse a file.

    Raises:
        DataError: it cannot be read, or is not a COCO file.
        ValueError: no such keypoint set.
    """
    file = config.annotations
    source = keypoint_set(config.source_set)
    wanted = keypoint_set(config.wanted_set or config.source_set)
    try:
        data = Path(file).read_bytes()
        content = json.loads(data)
    except OSError as error:
        raise LabelError(file, f"cannot be read: {error.strerror}", "Correct `annotations`") from None
    except ValueError as error:
        raise LabelError(file, f"is not JSON: {error}", "Write it anew") from None
    images, annotations = (_objects(content, name, file) for name in ("images", "annotations"))
    problems: list[Problem] = []
    if not (correspondence(source, wanted) >= 0).any():
        problems.append(
            Problem(file, f"{source.name} has no keypoint of {wanted.name}", "Correct source_set or wanted_set")
        )
    keys = [identifier(image.get("id")) for image in images]
    if None in keys:
        raise LabelError(file, "has an image whose id is no number or text", "Give each image its own id")
    check_images(images, file, problems)
    names = category_names(content.get("categories"))
    people, left_out = people_of(annotations, names, {str(key) for key in keys}, config, (source, wanted), problems)
    kept = [(str(key), image) for key, image in zip(keys, images, strict=True) if config.empty_images or key in people]
    if not people and not any(problem.fatal for problem in problems):
        why = f"of {len(annotations):,} annotations, {left_out}" if annotations else "it has no annotations"
        problems.append(
            Problem(
                file,
                f"has nobody that is kept on any of its {len(images):,} images: {why}",
                "Correct the annotations; or set category, min_keypoints, crowds or field so that some are people",
            )
        )
    listed = [people.get(key, []) for key, _ in kept]
    flat = [person for group in listed for person in group]
    return CocoPeople(
        ids=tuple(key for key, _ in kept),
        files=tuple(str(image.get("file_name")) for _, image in kept),
        sizes=np.array([stated_size(image) for _, image in kept], np.int64).reshape(-1, 2),
        starts=np.cumsum([0, *map(len, listed)], dtype=np.int64),
        keypoints=np.array([person.keypoints for person in flat], np.float32).reshape(-1, len(wanted), 3),
        boxes=np.array([person.box for person in flat], np.float32).reshape(-1, 4),
        areas=np.array([person.area for person in flat], np.float32),
        annotations=tuple(person.annotation for person in flat),
        categories=left_out.people,
        left_out=str(left_out) if left_out.counts else "",
        problems=tuple(problems),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _objects(content: Any, name: str, file: str) -> list[dict[str, Any]]:
    value = content.get(name) if isinstance(content, dict) else None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise LabelError(file, f"has no list `{name}` of objects", "Give a COCO keypoints file")
    return value


def missing_images(config: CocoConfig, people: CocoPeople) -> Iterator[Problem]:
    """Image files that are not there; none is opened."""
    folder = Path(config.images)
    if not folder.is_dir():
        yield Problem(str(folder), "there is no such folder", "Correct `images`")
        return
    for name, file in zip(people.ids, people.files, strict=True):
        if not (folder / file).is_file():
            yield Problem(
                str(folder / file),
                f"image {name} is not there",
                f"Put it there, or remove it from {config.annotations}",
            )


class CocoKeypoints:
    """The pictures of a COCO keypoints file.

    Attributes:
        left_out: annotations that are not kept, with counts, for people; empty where all are.

    Args:
        config: of the source.
        people: its content, where that was read before; images may be missing then.

    Raises:
        DataError: the file has an error, or images are missing; the message lists the first.
    """

    def __init__(self, config: CocoConfig, people: CocoPeople | None = None) -> None:
        if people is None:
            people = read_coco(config)
            refuse([*people.problems, *missing_images(config, people)])
        refuse(people.problems)
        self._config, self._people, self.left_out = config, people, people.left_out
        wanted = keypoint_set(config.wanted_set or config.source_set)
        self._set = wanted
        how = config.model_dump(mode="json", exclude={"annotations", "images", "category"})
        if people.categories:  # a file of people only is what it was before there were categories
            how["categories"] = list(people.categories)
        self.fingerprint = fingerprint("coco", how, people.sha256, list(wanted.names))

    def __len__(self) -> int:
        return len(self._people.ids)

    def __getitem__(self, index: int) -> Picture:
        return picture(self.record(index))

    def id(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"picture {index} of {len(self)}")
        return self._people.ids[index]

    def record(self, index: int) -> Record:
        people, name = self._people, self.id(index)
        file = Path(self._config.images, people.files[index])
        try:
            data = file.read_bytes()
        except OSError as error:
            raise LabelError(
                str(file),
                f"image {name} of {self._config.annotations} cannot be read: {error.strerror}",
                "Put it there, or correct `images`",
            ) from None
        height, width = people.sizes[index].tolist()
        found = members.upright_size(data, str(file))
        if found != (height, width):
            turned = " without its EXIF orientation" if found == (width, height) else ""
            raise LabelError(
                str(file),
                f"is {found[1]} x {found[0]} pixels upright, {width} x {height} in {self._config.annotations}{turned}",
                "Give the labels of the upright picture, or the image without an orientation"
                if turned
                else "Give the images that were labelled",
            )
        mine = slice(*people.starts[index : index + 2].tolist())
        info = {
            "mask_from": "boxes",
            "keypoints": inside(people.keypoints[mine], (height, width)).tolist(),
            "keypoint_count": len(self._set),
            "keypoint_set": self._set.name,
            "boxes": people.boxes[mine].tolist(),
            "areas": people.areas[mine].tolist(),
        }
        return Record(name, {"image": Member(data, file.suffix[1:].lower() or "img", str(file))}, info)
