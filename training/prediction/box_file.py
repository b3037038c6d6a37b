"""People's boxes from a COCO JSON file: a ground truth, or the results of a detector.

What is read: `images` (id, file_name, width, height), `annotations` (image_id, category_id, bbox, score, iscrowd) and
`categories` (id, name); or a list of results alone, whose entries say their image by `file_name`, else by `image_id`:
the file's name, its name without extension, or the number that this is ("000000000139.jpg" is image 139).

What becomes of it:

- People are the category `person`, or the one that is chosen (`training.data.labelled_sets.coco_categories`).
- Crowds, entries without four finite numbers or of no area, and entries of images that are not listed are left out. All
  that is left out is counted, and a file of which nothing is left is an error.
- Boxes that all lie in 0..1 are shares of the image, and an error: pixels are wanted.
- `width` and `height` are those of the UPRIGHT image, which prediction compares.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from training.data.labelled_sets.coco_categories import (
    category_counts,
    category_names,
    chosen_categories,
    described,
    identifier,
)
from training.prediction.boxes import Boxes

OTHER, CROWD, EMPTY, UNLISTED = "of other categories", "crowds", "without a box of some area", "of images not listed"
"""Why entries are left out."""

_SHARES = 1.01  # boxes that reach no further are not in pixels
_MOST = 1e30  # of a coordinate
_CHOOSE = "give category=, a name, a number or 'all' (--box-category)"
_FORM = (
    "give a COCO file with images (id, file_name) and annotations (image_id, bbox as x, y, width, height), or a list "
    "of results with file_name or image_id, and bbox"
)


@dataclass(frozen=True)
class _Image:
    name: str
    value: int | str  # its id, as the file has it
    size: tuple[int, int] | None  # height, width


class BoxFile:
    """Boxes of a file, by the names of images.

    Images are found by `file_name`, else by its last part where no two images share it. `score` is 1 where there is
    none.

    Attributes:
        ids: file name -> the file's id of the image.
        detections: there are scores, so that the boxes are a detector's.
        taken: number of boxes of people.
        left_out: reason (`OTHER`, `CROWD`, `EMPTY`, `UNLISTED`) -> number of entries, where there are any.
        category: that was taken, for people: "1 person", "all".

    Args:
        path: see the module.
        category: of people, by name or number, or "all"; None: `person` where the file names it, see
            `coco_categories`.

    Raises:
        ValueError: not such a file, no such category, or no box of it; the message says what is there.
    """

    def __init__(self, path: str | Path, category: str | int | None = None) -> None:
        try:
            value = json.loads(Path(path).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"boxes {path}: not readable as JSON: {error}") from None
        try:
            self._read(value, category)
        except ValueError as error:
            raise ValueError(f"boxes {path}: {error}") from None

    def _read(self, value: Any, category: str | int | None) -> None:
        alone = isinstance(value, list)
        rows = _objects(value if alone else value.get("annotations") if isinstance(value, Mapping) else None)
        self._by_id = False
        images = self._of_results(rows) if alone else _listed(_objects(value.get("images")))
        names = {} if alone else category_names(value.get("categories"))
        counts = category_counts(rows)
        try:
            people = chosen_categories(names, counts, category, only_one=False)
        except ValueError as error:
            raise ValueError(f"{error}: {_CHOOSE}") from None
        self.category = (
            "all" if people is None else ", ".join(f"{key} {names.get(key, '')}".strip() for key in sorted(people))
        )
        self.detections = any("score" in row for row in rows)
        self.ids: dict[str, int | str] = {image.name: image.value for image in images.values()}
        self._sizes = {image.name: image.size for image in images.values() if image.size is not None}
        left_out: Counter[str] = Counter()
        lists: dict[str, list[tuple[list[float], float]]] = {image.name: [] for image in images.values()}
        for row in rows:
            kind = None if people is None else identifier(row.get("category_id"))
            if people is not None and kind is not None and kind not in people:
                left_out[OTHER] += 1
            elif row.get("iscrowd"):
                left_out[CROWD] += 1
            elif (box := _box(row.get("bbox"))) is None:
                left_out[EMPTY] += 1
            elif (key := _image_key(row, alone)) not in images:
                left_out[UNLISTED] += 1
            else:
                lists[images[key].name].append((box, _score(row.get("score", 1.0))))
        self.left_out = {reason: left_out[reason] for reason in (OTHER, CROWD, EMPTY, UNLISTED) if left_out[reason]}
        self._others = {key: count for key, count in counts.items() if people is not None and key not in people}
        self._names = names
        self.taken = sum(map(len, lists.values()))
        if rows and not self.taken:
            fix = _CHOOSE if OTHER in self.left_out else _FORM
            raise ValueError(f"none of {len(rows):,} entries is a person's box ({self._described()}): {fix}")
        reach = [max(box) for found in lists.values() for box, _ in found]
        if reach and max(reach) <= _SHARES:
            raise ValueError(
                f"all {self.taken:,} boxes lie in 0..1, as shares of the image: give pixels (x and width times the "
                "image's width, y and height times its height)"
            )
        self._boxes = {
            name: Boxes(
                np.array([box for box, _ in found], np.float32), np.array([score for _, score in found], np.float32)
            )
            for name, found in lists.items()
        }
        last: dict[str, list[str]] = {}
        for name in self._boxes:
            last.setdefault(PurePosixPath(name).name, []).append(name)
        self._last = {short: full[0] for short, full in last.items() if len(full) == 1}

    def _of_results(self, rows: list[Mapping[str, Any]]) -> dict[str, _Image]:
        """The images of a list without any, by `_image_key`."""
        images: dict[str, _Image] = {}
        for row in rows:
            key = _image_key(row, alone=True)
            if key is None:
                raise ValueError(f"an entry has neither file_name nor image_id: {_FORM}")
            name = row.get("file_name")
            self._by_id = self._by_id or not isinstance(name, str)
            given = row.get("image_id")
            value = _value(given) if identifier(given) is not None else key
            images.setdefault(key, _Image(name if isinstance(name, str) and name else key, value, None))
        return images

    def _described(self) -> str:
        """What was left out, for people."""
        parts = []
        for reason, count in self.left_out.items():
            more = f": {described(self._names, self._others)}" if reason == OTHER else ""
            parts.append(f"{count:,} {reason}{more}")
        return "; ".join(parts)

    def __str__(self) -> str:
        """What was taken and what was left out, with counts, for people."""
        left_out = f"; left out: {self._described()}" if self.left_out else ""
        return f"{self.taken:,} on {len(self._boxes):,} images, category {self.category}{left_out}"

    def _full(self, name: str) -> str:
        if name in self._boxes:
            return name
        path = PurePosixPath(name)
        if path.name in self._last or not self._by_id:
            return self._last.get(path.name, name)
        if path.stem in self._boxes:
            return path.stem
        return str(int(path.stem)) if path.stem.isdecimal() else name

    def __call__(self, name: str) -> Boxes | None:
        """Boxes of an image; none of them where the file lists it without people, None where it is not listed."""
        return self._boxes.get(self._full(name))

    def image_id(self, name: str) -> int | str | None:
        """The file's id of an image, None where it is not listed."""
        return self.ids.get(self._full(name))

    def size(self, name: str) -> tuple[int, int] | None:
        """Height and width that the file states of an image; None where it does not."""
        return self._sizes.get(self._full(name))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError(f"has no lists of objects where they are wanted: {_FORM}")
    return value


def _listed(images: list[Mapping[str, Any]]) -> dict[str, _Image]:
    """The entries of `images`, by id."""
    found: dict[str, _Image] = {}
    for image in images:
        key, name = identifier(image.get("id")), image.get("file_name")
        if key is None or not isinstance(name, str) or not name:
            raise ValueError(
                f"image {image.get('id')!r} ({name!r}) lacks an id (number or text) or a file_name: {_FORM}"
            )
        if key in found:
            raise ValueError(f"has two images of id {key} ({found[key].name}, {name}): give each image its own id")
        height, width = (_whole(image.get(side)) for side in ("height", "width"))
        found[key] = _Image(name, _value(image["id"]), (height, width) if height and width else None)
    return found


def _image_key(row: Mapping[str, Any], alone: bool) -> str | None:
    """What images are found by: the id; in a list without images, the file's name before it."""
    name = row.get("file_name")
    return name if alone and isinstance(name, str) and name else identifier(row.get("image_id"))


def _value(given: Any) -> int | str:
    return given if isinstance(given, str) else int(given)


def _whole(value: Any) -> int:
    """A length in pixels, 0 where the value is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return max(0, round(value)) if number else 0


def _box(value: Any) -> list[float] | None:
    """x, y, width, height -> corners; None where there are not four finite numbers, or no area."""
    try:
        x, y, width, height = (float(number) for number in value)
    except (TypeError, ValueError):
        return None
    box = [x, y, x + width, y + height]
    # As a chain, nan is in no range; what float32 cannot hold is as good as infinite.
    finite = all(-_MOST < number < _MOST for number in box)
    return box if width > 0 and height > 0 and finite else None


def _score(value: Any) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"an entry has the score {value!r}: give a finite number, or leave `score` out")
    return score
