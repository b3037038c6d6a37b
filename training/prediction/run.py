"""Pictures in, a folder of results out: what `populace predict` calls.

output/
  run.json        task, model and settings: running again continues only the same
  summary.json    counts, pictures that were passed over with reasons, speed
  index.html      the first pictures
  overlays/       <name>.jpg
  ...             the task's own files: `writers.py`, `pose_writer.py`
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.prediction import formats
from training.prediction.ahead import read_ahead
from training.prediction.bad import BAD_BOXES, BAD_MASK, BOX_SIZE, BadPictures
from training.prediction.boxes import Boxes, KnownBoxes, near_picture, on_picture
from training.prediction.config import InputConfig, OutputConfig
from training.prediction.files import land, output_path
from training.prediction.foreground import Foreground
from training.prediction.gallery import Gallery
from training.prediction.inputs import InputPicture, Inputs
from training.prediction.ledger_boxes import shards_of
from training.prediction.mask_files import MaskError
from training.prediction.pose_writer import PoseWriter
from training.prediction.predictor import Given, Predictor
from training.prediction.results import PoseResult, Result
from training.prediction.writers import AlbedoWriter, NormalWriter, PointmapWriter, SegmentationWriter, Writer
from training.tasks.pose import Pose

_WRITERS: dict[str, type[Writer]] = {
    "seg": SegmentationWriter,
    "normal": NormalWriter,
    "pointmap": PointmapWriter,
    "albedo": AlbedoWriter,
}


BEYOND = 0.1
"""Of the long side: boxes that reach further over an edge are rarely x, y, width, height (as in `check-data`)."""
_FOLDERS = ("overlays", "parts", "normals", "depth", "points", "albedo")
_FILES = ("results.json", "results.jsonl", "images.json", "index.html", "summary.json")
"""All that is written, of any task, besides run.json."""


@dataclass(frozen=True)
class Summary:
    """What a run did.

    Attributes:
        predicted, skipped: pictures predicted now, and those whose files were there.
        people: crops of pose in this run; 0 for other tasks.
        bad: pictures that were passed over: they, their boxes or their masks cannot be used.
        seconds: of the whole run, reading and writing included.
        unlisted: pictures predicted now that the given boxes do not list, so that a detector or the whole picture
            stood in.
        unmasked: pictures predicted now of which the foreground knows nothing, so that every pixel was taken.
        off_image: given boxes that were left out because less than a pixel of them lies on their picture.
        beyond: given boxes that reach beyond their picture by more than `BEYOND` of its long side: they are used, cut.
        weak: given boxes of a detector that were left out for their score, or because a better one overlaps them.
    """

    predicted: int
    skipped: int
    people: int
    bad: BadPictures
    seconds: float
    unlisted: int = 0
    unmasked: int = 0
    off_image: int = 0
    beyond: int = 0
    weak: int = 0


def predict_to_folder(
    predictor: Predictor,
    source: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    inputs: InputConfig | None = None,
    outputs: OutputConfig | None = None,
    boxes: KnownBoxes | None = None,
    foreground: Foreground | None = None,
    about: Mapping[str, Any] | None = None,
    begin: Callable[[int], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Summary:
    """Predict every picture of a source and write the results.

    Pictures whose files are all there are left alone unless `overwrite` is set; a run that was stopped goes on.

    Args:
        predictor: of one task.
        source: see `training.prediction.inputs`.
        output: a folder, made where it is not there.
        boxes: people for pose, a `BoxFile` or `LedgerBoxes`; pictures of which it knows nothing go to the detector,
            else whole.
        foreground: people's pixels for normal, pointmap and albedo.
        about: what else the results depend on, e.g. a fingerprint of the boxes: JSON values for run.json, which have to
            be the same when the run goes on.
        begin: called once, before the first picture, with how many there are, as far as the source says.
        progress: called with the number of pictures that are finished, those passed over included.

    Raises:
        FileNotFoundError, ValueError: see `Inputs`; or the folder holds results of another model or other settings.
    """
    started = time.monotonic()
    outputs, folder = outputs or OutputConfig(), Path(output)
    if boxes is not None and not isinstance(predictor.task, Pose):
        raise ValueError(f"{predictor.task.name} takes whole pictures: give boxes for pose only")
    if boxes is not None and inputs is not None and inputs.max_side is not None:
        raise ValueError("boxes are in pixels of the full pictures: leave max_side out, or let a detector find people")
    if isinstance(source, str | Path) and folder.resolve().is_relative_to(shards_of(source).resolve()):
        raise ValueError(f"output {folder} lies in the input {source}, where it would be read as input: give another")
    gallery = Gallery(outputs.gallery, outputs.thumbnail)
    overlays = folder / "overlays"

    def skip(name: str) -> bool:
        gallery.see(name)
        path = output_path(overlays, name, ".jpg")
        if outputs.overwrite or not writer.done(name) or (outputs.overlays and not path.is_file()):
            return False
        gallery.add_file(name, path)
        return True

    stream = Inputs(source, inputs, skip)
    run = predictor.description() | {"max_side": stream.config.max_side} | dict(about or {})
    _check_run(run, folder, outputs.overwrite)
    if begin is not None:
        begin(stream.planned)
    writer = _writer(predictor, folder, outputs, boxes)
    predicted = people = unmasked = 0
    given = _People(predictor, boxes)
    try:
        for picture, _, result in predictor.stream(given(stream)):
            try:
                mask = None if foreground is None else foreground(picture)
            except MaskError as error:
                stream.bad.add(picture.name, BAD_MASK, str(error))
                continue
            unmasked += foreground is not None and mask is None
            if outputs.overlays or gallery.see(picture.name):
                drawn = writer.overlay(picture, result, mask)
                gallery.add(picture.name, drawn, _caption(picture, result))
                if outputs.overlays:
                    land(output_path(overlays, picture.name, ".jpg"), formats.jpeg(drawn, outputs.jpeg_quality))
            writer.write(picture, result, mask)
            predicted += 1
            people += len(result.boxes) if isinstance(result, PoseResult) else 0
            if progress is not None:
                progress(predicted + stream.skipped + stream.bad.total)
        writer.finish()
        if progress is not None:
            progress(predicted + stream.skipped + stream.bad.total)
    finally:
        writer.close()
    summary = Summary(
        predicted, stream.skipped, people, stream.bad, time.monotonic() - started,
        given.unlisted, unmasked, given.off_image, given.beyond, given.weak,
    )  # fmt: skip
    _write_summary(folder, predictor.task.name, summary)
    if outputs.gallery:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(stream.bad.counts.items()))
        lines = [
            f"{predicted} pictures predicted, {stream.skipped} were there, {stream.bad.total} passed over"
            + (f": {counts}" if counts else ""),
            *(f"{bad.name}: {bad.reason}: {bad.detail}" for bad in stream.bad.first[:20]),
        ]
        gallery.write(folder / "index.html", f"Populace: {predictor.task.name}", lines)
    return summary


class _People:
    """Pictures with the people that are given; counts of pictures that the boxes do not list, and of boxes left out."""

    def __init__(self, predictor: Predictor, boxes: KnownBoxes | None) -> None:
        self._predictor, self._boxes = predictor, boxes
        self.unlisted = self.off_image = self.beyond = self.weak = 0

    def __call__(self, pictures: Inputs) -> Iterator[tuple[InputPicture, formats.Pixels, Given]]:
        for picture in read_ahead(pictures, pictures.config.ahead):
            try:
                found = None if self._boxes is None else self._boxes(picture.file_name)
            except ValueError as error:
                pictures.bad.add(picture.name, BAD_BOXES, str(error))
                continue
            wrong = self._other_size(picture) if found is not None and len(found) else None
            if wrong is not None:
                pictures.bad.add(picture.name, BOX_SIZE, wrong)
                continue
            yield picture, picture.image, self._kept(picture, found)

    def _kept(self, picture: InputPicture, found: Boxes | None) -> Boxes | None:
        if self._boxes is None:
            return None
        if found is None:
            self.unlisted += 1
            return None
        near = on_picture(found, picture.image)
        self.off_image += len(found) - len(near)
        height, width = picture.image.shape[:2]
        over = np.maximum(-near.boxes[:, :2], near.boxes[:, 2:] - (width, height)).max(axis=1, initial=-np.inf)
        self.beyond += int((over > BEYOND * max(height, width)).sum())
        near = near_picture(near, picture.image)
        kept = self._predictor.selected(near) if self._boxes.detections else near
        self.weak += len(near) - len(kept)
        return kept

    def _other_size(self, picture: InputPicture) -> str | None:
        """What is wrong where boxes were made on another size than the picture's; there they would be other places."""
        stated = None if self._boxes is None else self._boxes.size(picture.file_name)
        size = picture.image.shape[0], picture.image.shape[1]
        if stated is None or stated == size:
            return None
        turned = stated == size[::-1]
        return (
            f"is {size[1]} x {size[0]} pixels upright, its boxes were made on {stated[1]} x {stated[0]}"
            + (" without its EXIF orientation: give boxes of the upright image" if turned else "")
            + ("" if turned else ": give boxes in pixels of this image, or the images that they were made on")
        )


def _writer(predictor: Predictor, folder: Path, outputs: OutputConfig, boxes: KnownBoxes | None) -> Writer:
    task = predictor.task
    if not isinstance(task, Pose):
        return _WRITERS[task.name](folder, outputs, task)
    if boxes is None:
        return PoseWriter(folder, outputs, task)
    numbers = (value for value in boxes.ids.values() if isinstance(value, int))
    return PoseWriter(folder, outputs, task, boxes.image_id, max(numbers, default=0) + 1)


def _check_run(run: dict[str, Any], folder: Path, overwrite: bool) -> None:
    """Results of two models in one folder would look like those of one: the other's are refused, or removed."""
    path = folder / "run.json"
    if path.is_file():
        try:
            before = json.loads(path.read_bytes())
        except ValueError:
            before = None
        if not isinstance(before, dict):
            before = {"run.json (damaged)": True}  # of which nothing is known
        changed = sorted(key for key in before.keys() | run.keys() if before.get(key) != run.get(key))
        if changed and not overwrite:
            raise ValueError(
                f"{folder} holds results of another run ({', '.join(changed)} differ): give another folder, or "
                "overwrite, which removes them"
            )
        if changed:
            for name in _FOLDERS:
                if (folder / name).exists():
                    shutil.rmtree(folder / name)  # what cannot be removed must not pass for the new model's
            for name in _FILES:
                (folder / name).unlink(missing_ok=True)
    land(path, (json.dumps(run, indent=1) + "\n").encode())


def _caption(picture: InputPicture, result: Result) -> str:
    height, width = picture.image.shape[:2]
    people = f", {len(result.boxes)} people" if isinstance(result, PoseResult) else ""
    return f"{width} x {height}{people}"


def _write_summary(folder: Path, task: str, summary: Summary) -> None:
    record = {
        "task": task,
        "predicted": summary.predicted,
        "skipped": summary.skipped,
        "people": summary.people,
        "unlisted": summary.unlisted,
        "unmasked": summary.unmasked,
        "off_image": summary.off_image,
        "beyond": summary.beyond,
        "weak": summary.weak,
        "bad": dict(sorted(summary.bad.counts.items())),
        "bad_pictures": [vars(bad) for bad in summary.bad.first],
        "seconds": round(summary.seconds, 3),
        "pictures_per_second": round(summary.predicted / max(summary.seconds, 1e-9), 3),
    }
    land(folder / "summary.json", (json.dumps(record, indent=1) + "\n").encode())
