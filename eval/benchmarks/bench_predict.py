"""Prediction into a folder, pictures a second, against the bare network on tensors that are ready.

Both sides use one process, the same batches and, for pose, the same two passes of the flip test; random weights. Ours
reads JPEGs, crops, decodes and writes everything, overlays and the HTML page too. Then one profiled pass says where its
time goes: reading, crops, network, decoding of outputs, files, overlays, page. It reads pictures without the thread
that usually does so beside the network.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from eval.benchmarks.common import Figure, Rate, Report, alternate, compare, note, parser, scratch
from training.data.people import PeopleConfig, render
from training.models.heads import TASKS
from training.models.zoo import create, model_spec
from training.prediction import InputConfig, OutputConfig, Predictor, PredictorConfig, predict_to_folder
from training.prediction.tasks import task_of

PICTURE = (1200, 900)
RENDERED = (400, 300)
STAGES: dict[str, Sequence[tuple[str, str, str]]] = {
    "read": [("prediction/inputs.py", "_file", "")],
    "crop": [("prediction/predictor.py", "_frames", ""), ("tasks/warp.py", "warp", "stream")],
    "network": [("prediction/predictor.py", "_forward", "")],
    "decode output": [("tasks/", "decode", "")],
    "write": [("writer", "write", "predict_to_folder"), ("writer", "finish", "predict_to_folder")],
    "overlay": [("writer", "overlay", ""), ("formats.py", "jpeg", "predict_to_folder")],
    "page": [("gallery.py", "add", ""), ("gallery.py", "write", "")],
}
"""Stage -> part of a file's path, function there, and the function that calls it ("": any)."""


def write_pictures(folder: Path, count: int) -> None:
    """People, as JPEGs of `PICTURE`."""
    folder.mkdir()
    config = PeopleConfig(size=RENDERED)
    for key in range(count):
        image = cv2.resize(render(key % 8, config).image, PICTURE[::-1], interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"{key:04d}.jpg"), np.ascontiguousarray(image[..., ::-1]))


def random_predictor(task: str, backbone: str, batch: int) -> Predictor:
    """With the size and the head of the zoo."""
    spec = model_spec(f"{backbone}_{task}")
    assert spec.head is not None
    model = create(f"{backbone}_{task}")
    if task == "pointmap":  # points before the camera, as of a trained model
        head: Any = model.decode_head
        head.scale_final_layer[-1].bias.data.fill_(1.0)
        head.conv_pointmap.bias.data[2] = 3.0
    return Predictor(model, task_of(task, spec.head), spec.config.image_size, PredictorConfig(batch_size=batch))


def timed(pictures: int, work: Callable[[], object]) -> Callable[[], Rate]:
    """A side of a comparison."""

    def run() -> Rate:
        started, cpu = time.perf_counter(), time.process_time()
        work()
        return Rate(pictures, time.perf_counter() - started, time.process_time() - cpu)

    return run


def bare(predictor: Predictor, pictures: int) -> Callable[[], None]:
    """The network on as many ready images, in the same batches and passes."""
    images = torch.randn(min(predictor.config.batch_size, pictures), 3, *predictor.size)

    @torch.inference_mode()
    def work() -> None:
        for first in range(0, pictures, len(images)):
            for _ in range(1 + predictor.flip):
                predictor.model(images[: pictures - first])

    return work


def stages(predictor: Predictor, source: Path, output: Path) -> dict[str, float]:
    """Seconds of each stage in one pass; what is in none of them is "other"."""
    profile = cProfile.Profile()
    summary = profile.runcall(predict_to_folder, predictor, source, output, inputs=InputConfig(ahead=0))
    statistics = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    seconds = dict.fromkeys(STAGES, 0.0)
    for stage, functions in STAGES.items():
        for part, function, caller in functions:
            found = [
                cumulative if not caller else sum(row[3] for (*_, name), row in callers.items() if name == caller)
                for (file, _, name), (_, _, _, cumulative, callers) in statistics.items()
                if name == function and part in file
            ]
            seconds[stage] += max(found, default=0.0)
    seconds["network"] -= seconds["decode output"]
    seconds["other"] = summary.seconds - sum(seconds.values())
    return seconds


def bench(report: Report, folder: Path, backbone: str, task: str, pictures: int, batch: int, rounds: int) -> None:
    """One task of one size."""
    predictor = random_predictor(task, backbone, batch)
    source, again = folder / "pictures", OutputConfig(overwrite=True)
    plain = OutputConfig(overwrite=True, overlays=False, gallery=0)
    bare(predictor, min(pictures, batch))()
    sides = [
        timed(pictures, lambda: predict_to_folder(predictor, source, folder / f"{task}-all", outputs=again)),
        timed(pictures, bare(predictor, pictures)),
        timed(pictures, lambda: predict_to_folder(predictor, source, folder / f"{task}-plain", outputs=plain)),
    ]
    ours, limit, without = alternate(rounds, *sides)
    title = f"predict {task}, {backbone}, {'x'.join(map(str, predictor.size))}"
    report(compare(f"{title}, against the network alone", "pictures/s", ours, limit))
    report(compare(f"{title}, without overlays and page", "pictures/s", without, limit))
    seconds = stages(predictor, source, folder / f"{task}-stages")
    total = sum(seconds.values())
    shares = {f"{name} %": 100 * value / total for name, value in seconds.items()}
    report(Figure(f"{title}, profiled", 1000 * total / pictures, "ms a picture", detail=shares))


def main() -> None:
    """Run the benchmark."""
    arguments = parser(__doc__)
    arguments.add_argument("--backbone", default="tiny", help="of the zoo, for example sapiens2_0.4b")
    arguments.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    arguments.add_argument("--pictures", type=int, default=32)
    arguments.add_argument("--batch", type=int, default=8, help="crops in one pass")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=1, help="of torch, on either side")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    report = Report(options.json)
    with scratch(options.data) as folder:
        write_pictures(folder / "pictures", options.pictures)
        for task in options.tasks:
            note(f"{task} of {options.backbone}")
            bench(report, folder, options.backbone, task, options.pictures, options.batch, options.rounds)


if __name__ == "__main__":
    main()
