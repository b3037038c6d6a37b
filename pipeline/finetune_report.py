"""What a person sees of a finished fine-tuning run: its metric, and where the best checkpoint is."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from eval.metrics import METRICS
from pipeline.finetune_figures import best_checkpoint, best_of, measured_records
from pipeline.pretrain_report import newest_picture, training_numbers
from pipeline.storage import Storage
from pipeline.training_run import TrainingResult
from training.engine.checkpoint import folder_of
from training.watch import names
from training.watch.events import METRICS_FILE


def finetune_numbers(folder: str) -> dict[str, Any]:
    """Losses as `training_numbers` has them, and the task's figures.

    Returns:
        also "metric" (of several tasks, of the first), "metrics" (the figure that counts of each task), "measured":
        {"first": record, "best": ..., "last": ...} with records as `probe.json` has them; "best_checkpoint", a path.
    """
    storage = Storage(folder)
    records = measured_records(storage)
    numbers = training_numbers(folder)
    if not records:
        return numbers
    best = best_of(records) or records[-1]
    kept = best_checkpoint(storage)
    return {
        **numbers,
        "metric": records[0]["metric"],
        "metrics": records[0].get("metrics", [records[0]["metric"]]),
        "measured": {"first": records[0], "best": best, "last": records[-1]},
        "best_checkpoint": None if kept is None else storage.path(kept.name),
    }


def print_finetune_outcome(console: Console, result: TrainingResult) -> None:
    """The end of a fine-tuning run."""
    numbers = finetune_numbers(result.folder)
    already = "" if result.trained else " (already finished)"
    measured = numbers.get("measured", {})
    task = measured["first"]["task"] if measured else ""
    table = Table(title=f"Fine-tuning {task}, {result.steps:,} steps{already}", title_justify="left")
    for column in ("", "first", "best", "last"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    if measured:
        table.add_row("step", *(f"{record['step']:,}" for record in measured.values()))
        for name in _figures(numbers):
            table.add_row(name, *(_number(record["figures"].get(name)) for record in measured.values()))
    loss = names.LOSS
    if loss in numbers["last"]:
        table.add_row("training loss", _number(numbers["first"].get(loss)), "", _number(numbers["last"][loss]))
    console.print(table)
    best = numbers.get("best_checkpoint")
    lines = []
    if best is not None:
        note = "" if best.endswith(folder_of(measured["best"]["step"])) else "   (of those that are kept)"
        # Of several tasks, figures are "<task>/<figure>", and one head is exported at a time.
        head = f" --task {numbers['metric'].partition('/')[0]}" if len(numbers["metrics"]) > 1 else ""
        lines.append(f"best      {best}/{note}; populace export-weights {result.folder}{head}")
    lines += [
        f"last      {result.folder}/{result.checkpoint}/",
        f"metrics   {result.folder}/{METRICS_FILE}   and measured/",
    ]
    picture = newest_picture(result.folder)
    if picture is not None:
        lines.append(f"pictures  {picture}   input, then prediction and truth")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _figures(numbers: dict[str, Any]) -> list[str]:
    """The figures that count first, then those that a short table has of each task."""
    counts, found = numbers["metrics"], numbers["measured"]["last"]["figures"]
    named = {metric.primary: metric.shown for metric in METRICS.values()}
    # Of several tasks figures are "<task>/<figure>".
    parts = [figure.rpartition("/") for figure in counts]
    others = [f"{task}{slash}{name}" for task, slash, primary in parts for name in named[primary]]
    return [*counts, *(name for name in others if name in found)]


def _number(value: Any) -> str:
    return "" if value is None else f"{float(value):.4f}"
