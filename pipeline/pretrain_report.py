"""What a person sees of a finished training run: how its numbers moved, and where things are."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.storage import Storage
from pipeline.training_run import TrainingResult
from training.engine.checkpoint import FOLDER as CHECKPOINTS
from training.watch import names
from training.watch.events import METRICS_FILE, read_metrics
from training.watch.pictures import FOLDER as PICTURES

ENTROPY = "collapse/teacher_entropy"


def training_numbers(folder: str) -> dict[str, Any]:
    """First and last values of loss terms and of the teacher's entropy, and the images seen.

    Returns:
        {"images": n, "replaced": n, "first": {name: value}, "last": {...}}; without metrics, zero and empty.
    """
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for record in read_metrics(Storage(folder)):
        first = first or record
        last = record
    wanted = [name for name in last if name.startswith("loss/")] + [ENTROPY]
    return {
        "images": last.get("images", 0),
        "replaced": last.get("data/replaced", 0),
        "first": {name: first[name] for name in wanted if name in first},
        "last": {name: last[name] for name in wanted if name in last},
    }


def newest_picture(folder: str) -> str | None:
    """Path of the last picture of a training run."""
    storage = Storage(folder)
    found = storage.names(PICTURES)
    return storage.path(f"{PICTURES}/{found[-1]}") if found else None


def print_pretrain_outcome(console: Console, result: TrainingResult) -> None:
    """The end of a training run."""
    numbers = training_numbers(result.folder)
    already = "" if result.trained else " (already finished)"
    table = Table(title=f"Pretraining, {result.steps:,} steps{already}", title_justify="left")
    for column in ("", "first", "last"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, value in numbers["last"].items():
        label = {names.LOSS: "loss", ENTROPY: "teacher entropy (nats)"}.get(name, name.removeprefix("loss/"))
        begin = numbers["first"].get(name)
        table.add_row(label, "" if begin is None else f"{begin:.4f}", f"{value:.4f}")
    table.add_row("images", "", f"{numbers['images']:,}")
    if numbers["replaced"]:
        table.add_row("unreadable, replaced", "", f"{numbers['replaced']:,}")
    console.print(table)
    lines = [
        f"weights   {result.folder}/{result.checkpoint}/   newest of {CHECKPOINTS}/; populace export-weights "
        f"{result.folder}",
        f"metrics   {result.folder}/{METRICS_FILE}   and tensorboard/",
    ]
    picture = newest_picture(result.folder)
    if picture is not None:
        lines.append(f"pictures  {picture}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
