"""Keypoints as COCO results, one picture at a time.

    results.jsonl    a line for each picture, appended as it is predicted: what a run that was stopped goes on from
    results.json     COCO results, a list: {image_id, category_id: 1, keypoints: [x, y, score, ...], score, bbox: [x, y,
                     width, height], box_score, file_name, image_size: [height, width]}
    images.json      COCO images and the category with names and skeleton: COCO("images.json").loadRes("results.json")

Keypoints are in pixels, (0, 0) the centre of the first one. Both JSON files are made from the lines at the end, one
line at a time, so that memory does not grow with the number of pictures but for their names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.prediction.config import OutputConfig
from training.prediction.files import landing
from training.prediction.inputs import InputPicture
from training.prediction.results import PoseResult
from training.prediction.writers import Mask, Pixels, Writer
from training.tasks.pose import Pose
from training.tasks.pose_pictures import draw_skeletons

_DECIMALS = 4


class PoseWriter(Writer):
    """See the module.

    Args:
        image_id: the id that a COCO file has for a picture, by file name; None where it has none: then the next free.
        first_id: ids below are not given.
    """

    task: Pose

    def __init__(
        self,
        folder: Path,
        config: OutputConfig,
        task: Pose,
        image_id: Callable[[str], int | str | None] = lambda file_name: None,
        first_id: int = 1,
    ) -> None:
        super().__init__(folder, config, task)
        self._image_id, self._next = image_id, first_id
        self._path = folder / "results.jsonl"
        self._places: dict[str, int] = {}
        self._ids: dict[str, int | str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if config.overwrite:
            self._path.unlink(missing_ok=True)
        self._resume()
        self._file = open(self._path, "ab")  # noqa: SIM115 - closed by close()

    def _resume(self) -> None:
        """Find the lines that are there; a last one that was cut off goes, and a damaged one counts as not there."""
        if not self._path.exists():
            return
        end = 0
        with open(self._path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                record = _record(line)
                if record is not None:
                    self._places[record["name"]] = end
                    self._ids[record["name"]] = record["image_id"]
                    if isinstance(record["image_id"], int):
                        self._next = max(self._next, record["image_id"] + 1)
                end += len(line)
        os.truncate(self._path, end)

    def done(self, name: str) -> bool:
        return name in self._places

    def write(self, picture: InputPicture, result: Any, mask: Mask | None) -> None:
        known = self._ids.get(picture.name, self._image_id(picture.file_name))
        if known is None:
            known, self._next = self._next, self._next + 1
        height, width = picture.image.shape[:2]
        record = {
            "name": picture.name,
            "file_name": picture.file_name,
            "image_id": known,
            "height": height,
            "width": width,
        }
        self._ids[picture.name] = known
        self._places[picture.name] = self._file.tell()
        # Person by person: a crowd as one JSON text would take many times the memory of its arrays.
        self._file.write(json.dumps(record).removesuffix("}").encode() + b', "people": [')
        for number, person in enumerate(_people(result)):
            self._file.write((", " if number else "").encode() + json.dumps(person, allow_nan=False).encode())
        self._file.write(b"]}\n")
        self._file.flush()

    def overlay(self, picture: InputPicture, result: Any, mask: Mask | None) -> Pixels:
        return draw_skeletons(
            picture.image, result.keypoints, result.scores, self.task.set, threshold=self.config.keypoint_threshold
        )

    def close(self) -> None:
        self._file.close()

    def finish(self) -> None:
        """Write both JSON files."""
        self.close()
        points = self.task.set
        category = {
            "id": 1,
            "name": "person",
            "supercategory": "person",
            "keypoints": list(points.names),
            "skeleton": [[int(first) + 1, int(second) + 1] for first, second in points.links],  # COCO counts from 1
        }
        _write_list(self.folder / "results.json", self._results(), "[", "]")
        head = f'{{"categories": {json.dumps([category])}, "annotations": [], "images": ['
        _write_list(self.folder / "images.json", self._images(), head, "]}")

    def _records(self) -> Iterator[dict[str, Any]]:
        with open(self._path, "rb") as file:
            for place in self._places.values():
                file.seek(place)
                yield json.loads(file.readline())

    def _results(self) -> Iterator[dict[str, Any]]:
        for record in self._records():
            for person in record["people"]:
                yield {
                    "image_id": record["image_id"],
                    "category_id": 1,
                    **person,
                    "file_name": record["file_name"],
                    "image_size": [record["height"], record["width"]],
                }

    def _images(self) -> Iterator[dict[str, Any]]:
        for record in self._records():
            names = {name: record[name] for name in ("file_name", "height", "width")}
            yield {"id": record["image_id"], **names}


def _record(line: bytes) -> dict[str, Any] | None:
    """A line of the journal; None where it is damaged, so that its picture is predicted again."""
    try:
        record: dict[str, Any] = json.loads(line)
        whole = isinstance(record["name"], str) and isinstance(record["image_id"], int | str)
        return record if whole and isinstance(record["people"], list) else None
    except (ValueError, KeyError, TypeError):
        return None


def _people(result: PoseResult) -> Iterator[dict[str, Any]]:
    for index, (x0, y0, x1, y1) in enumerate(result.boxes.astype(np.float64).tolist()):
        triples = np.concatenate((result.keypoints[index], result.scores[index][:, None]), axis=1)
        yield {
            "keypoints": _rounded(triples),
            "score": float(np.nan_to_num(result.instance_scores[index])),
            "bbox": _rounded(np.array((x0, y0, x1 - x0, y1 - y0))),
            "box_score": float(result.box_scores[index]),
        }


def _rounded(values: npt.NDArray[np.floating]) -> list[float]:
    return [float(value) for value in np.round(np.nan_to_num(values.astype(np.float64)), _DECIMALS).ravel()]


def _write_list(path: Path, entries: Iterator[dict[str, Any]], head: str, tail: str) -> None:
    with landing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(head)
        for number, entry in enumerate(entries):
            file.write((",\n" if number else "\n") + json.dumps(entry))
        file.write("\n" + tail + "\n")
