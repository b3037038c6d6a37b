"""`populace predict`: pictures, a video or shards -> a folder of results.

Exit codes: 0 done, pictures that are passed over are counted; 1 no picture could be predicted, or all given boxes were
left out; 2 the command, the
weights or the input is wrong, or memory does not suffice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands import FAILED
from pipeline.predict_arguments import add_weights_arguments, detector_of, run_guarded, weights_options, whole

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.progress import RunProgress
    from training.prediction.boxes import KnownBoxes
    from training.prediction.foreground import Foreground
    from training.prediction.run import Summary

_FOREGROUND_TASKS = ("normal", "pointmap", "albedo")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "predict",
        help="people's keypoints, body parts, normals, points or albedo of pictures; run again to continue",
        description="Example: populace predict pose --weights RUN --input photos/ --output out/",
    )
    add_weights_arguments(parser)
    parser.add_argument(
        "--input", required=True, nargs="+", metavar="PATH",
        help="a folder, pictures and videos, a .txt list of them, exported shards, or a run that curated",
    )  # fmt: skip
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for the results")
    people = parser.add_mutually_exclusive_group()
    people.add_argument("--boxes", metavar="FILE", help="pose: people from a COCO file, or from a list of results")
    people.add_argument(
        "--boxes-from-ledger", action="store_true", help="pose: people that curation found, for shards of `curate`"
    )
    parser.add_argument(
        "--box-category", metavar="NAME|NUMBER",
        help="with --boxes: the category that is people, or all (default: person, where the file names its categories)",
    )  # fmt: skip
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--masks", metavar="FOLDER", help="dense tasks: people's pixels, <name>.png or .npy")
    shown.add_argument(
        "--seg-weights", metavar="W", help="dense tasks: people's pixels by this model of body parts (as --weights)"
    )
    parser.add_argument(
        "--mask-threshold", type=float, metavar="SHARE",
        help="with --masks: greys and alpha above this share of white are people (default: 0.5 in soft masks, else 0)",
    )  # fmt: skip
    parser.add_argument("--step", type=whole, metavar="N", help="every N-th frame of a video")
    parser.add_argument("--max-side", type=whole, metavar="PIXELS", help="predict larger pictures at this long side")
    parser.add_argument("--overwrite", action="store_true", help="predict again what is there")
    parser.add_argument("--no-overlays", action="store_true", help="do not write a picture of each result")
    parser.add_argument("--gallery", type=int, metavar="N", help="pictures on the HTML page (100); 0: no page")
    parser.add_argument("--normals", choices=("npy", "png", "exr"), help="format of normals (npy)")
    parser.add_argument("--depth", choices=("npy", "png", "exr"), help="format of depth (npy)")
    parser.add_argument(
        "--config", metavar="FILE",
        help="YAML with sections predictor, inputs, outputs, detector, pose, seg: every other setting",
    )  # fmt: skip
    parser.set_defaults(run=_predict)


def _predict(options: argparse.Namespace) -> int:
    return run_guarded(lambda console: _run(options, console))


def _run(options: argparse.Namespace, console: Console) -> int:
    from pipeline.predict_config import PredictConfig
    from pipeline.progress import RunProgress
    from pipeline.task_weights import load_task, read_yaml, validated
    from training.prediction.run import predict_to_folder

    _check_task(options)
    settings = validated(PredictConfig, read_yaml(options.config) if options.config else {}, str(options.config))
    settings = validated(PredictConfig, settings.with_options(options), "options")
    source = options.input[0] if len(options.input) == 1 else _files(options.input)
    boxes, about = _boxes(options, source)
    detector = detector_of(options, settings.detector)
    given = weights_options(options, settings.predictor, pose=settings.pose, seg=settings.seg)
    # Beside --seg-weights, --classes are those of the body parts.
    own = replace(given, classes=None) if options.seg_weights is not None else given
    loaded = load_task(options.task, options.weights, own, detector)
    foreground: Foreground | None = None
    if options.masks is not None:
        from training.prediction.foreground import folder_masks

        threshold = options.mask_threshold
        foreground, about["foreground"] = folder_masks(options.masks, threshold), _masks(options.masks, threshold)
    elif options.seg_weights is not None:
        from training.prediction.foreground import predicted_masks

        config = given.config.model_copy(update={"flip": None, "fit": None})
        parts = replace(given, size=None, backbone=None, keypoints=None, checkpoint=None, config=config)
        people = load_task("seg", options.seg_weights, parts).predictor
        foreground, about["foreground"] = predicted_masks(people), people.description()
    progress = RunProgress(console, options.quiet)
    progress.message(f"weights   {loaded.origin}")
    if options.boxes is not None:
        progress.message(f"boxes     {boxes}")
    with _Pictures(progress, options.task) as seen:
        summary = predict_to_folder(
            loaded.predictor, source, options.output, inputs=settings.inputs, outputs=settings.outputs, boxes=boxes,
            foreground=foreground, about=about, begin=seen.begin, progress=seen.step,
        )  # fmt: skip
    return _outcome(options, loaded.origin, summary, boxes, console)


class _Pictures:
    """Shows how many pictures are done of how many."""

    def __init__(self, progress: RunProgress, task: str) -> None:
        self._progress, self._task, self._done, self._stage = progress, task, 0, ExitStack()

    def __enter__(self) -> _Pictures:
        return self

    def __exit__(self, *error: object) -> None:
        self._stage.close()

    def begin(self, total: int) -> None:
        self._stage.enter_context(self._progress.stage(self._task, total, "pictures"))

    def step(self, done: int) -> None:
        self._progress.advance(done - self._done)
        self._done = done


def _check_task(options: argparse.Namespace) -> None:
    from pipeline.config import ConfigError

    for name, given, beside, wanted in (
        ("--box-category", options.box_category, "--boxes", options.boxes),
        ("--mask-threshold", options.mask_threshold, "--masks", options.masks),
    ):
        if given is not None and wanted is None:
            raise ConfigError(f"{name} goes with {beside}: give both, or leave it out")
    if options.task != "pose":
        for name, given in (("--boxes", options.boxes), ("--boxes-from-ledger", options.boxes_from_ledger)):
            if given:
                raise ConfigError(f"{options.task} takes whole pictures: {name} is for pose, leave it out")
    for name, given, task in (("--normals", options.normals, "normal"), ("--depth", options.depth, "pointmap")):
        if given and options.task != task:
            raise ConfigError(f"{options.task} writes no {name.removeprefix('--')}: {name} is for {task}, leave it out")
    if options.task not in _FOREGROUND_TASKS:
        for name, given in (("--masks", options.masks), ("--seg-weights", options.seg_weights)):
            if given:
                raise ConfigError(f"{name} is for {', '.join(_FOREGROUND_TASKS)}: leave it out")


def _files(paths: Sequence[str]) -> list[str]:
    from pipeline.config import ConfigError

    for path in paths:
        if Path(path).is_dir():
            raise ConfigError(
                f"--input has several paths, and {path} is a folder: give one folder, or pictures and videos only"
            )
    return list(paths)


def _boxes(options: argparse.Namespace, source: str | list[str]) -> tuple[KnownBoxes | None, dict[str, Any]]:
    """People as the arguments say, and what run.json has to hold of them."""
    if options.boxes is not None:
        from training.prediction.box_file import BoxFile

        found = BoxFile(options.boxes, options.box_category)
        digest = hashlib.sha256(Path(options.boxes).read_bytes()).hexdigest()
        return found, {"boxes": digest, "box_category": found.category}
    if options.boxes_from_ledger:
        from pipeline.config import ConfigError
        from training.prediction.ledger_boxes import LedgerBoxes

        if not isinstance(source, str):
            raise ConfigError("--boxes-from-ledger is for the output of `populace curate`: give that as --input")
        ledger = LedgerBoxes(source)
        return ledger, {"boxes": ledger.fingerprint}
    return None, {}


def _masks(folder: str, threshold: float | None) -> str:
    return f"masks in {Path(folder).resolve()}{'' if threshold is None else f', above {threshold}'}"


def _warnings(options: argparse.Namespace, summary: Summary) -> Iterator[str]:
    """What was predicted, or not, otherwise than a person expects who gave boxes or masks."""
    if summary.unlisted:
        stood_in = "left to the detector" if options.detector else "taken as one person each"
        yield (
            f"{summary.unlisted:,} of {summary.predicted:,} pictures are not among the given boxes, and were {stood_in}"
            ": compare names"
        )
    if summary.unmasked:
        yield (
            f"{summary.unmasked:,} of {summary.predicted:,} pictures have no mask, and every pixel was taken: "
            "compare names"
        )
    if summary.off_image:
        yield f"given boxes off their images, left out: {summary.off_image:,}"
    if summary.beyond:
        yield (
            f"given boxes that reach far beyond their images: {summary.beyond:,}; boxes are x, y, width, height in "
            "pixels of the image, not two corners"
        )
    if summary.weak:
        yield (
            f"given boxes of a low score, or overlapped by a better one, left out: {summary.weak:,} "
            "(predictor.min_box_score and predictor.box_overlap in --config)"
        )
    from training.prediction.bad import LABELS

    for reason in LABELS:
        if found := summary.bad.counts.get(reason, 0):
            first = next((f", as {bad.name}: {bad.detail}" for bad in summary.bad.first if bad.reason == reason), "")
            yield f"pictures passed over as {reason}: {found:,}{first}"


def _outcome(
    options: argparse.Namespace, origin: str, summary: Summary, boxes: KnownBoxes | None, console: Console
) -> int:
    from pipeline.commands import print_error
    from pipeline.report import results_console
    from training.prediction.box_file import BoxFile

    record: dict[str, Any] = {
        "task": options.task,
        "weights": origin,
        "output": options.output,
        "predicted": summary.predicted,
        "skipped": summary.skipped,
        "people": summary.people,
        "unlisted": summary.unlisted,
        "unmasked": summary.unmasked,
        "off_image": summary.off_image,
        "beyond": summary.beyond,
        "weak": summary.weak,
        "bad": dict(sorted(summary.bad.counts.items())),
        "seconds": round(summary.seconds, 3),
    }
    if isinstance(boxes, BoxFile):
        record["boxes"] = {"category": boxes.category, "taken": boxes.taken, "left_out": boxes.left_out}
    bad = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.bad.counts.items()))
    for text in _warnings(options, summary):
        console.print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if options.json:
        print(json.dumps(record))
    else:
        people = f", {summary.people:,} people" if options.task == "pose" else ""
        text = f"{summary.predicted:,} pictures predicted{people}, {summary.skipped:,} were there"
        shown = results_console()
        shown.print(
            text + (f", {summary.bad.total:,} passed over: {bad}" if bad else ""), markup=False, highlight=False
        )
        shown.print(f"results   {options.output}/", markup=False, highlight=False, soft_wrap=True)
    if summary.predicted and not summary.people and summary.off_image + summary.weak:
        left_out = (
            f"{summary.off_image:,} lie off their images, {summary.weak:,} have low scores or better ones over them"
        )
        print_error(console, f"nobody was predicted: all given boxes were left out ({left_out})")
        return FAILED
    if summary.predicted + summary.skipped:
        return 0
    print_error(console, f"no picture could be predicted{f': {bad}' if bad else ''}")
    return FAILED
