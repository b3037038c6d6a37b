"""`populace evaluate`: the figures of a task on labelled pictures, for weights of any origin and size.

It measures what `populace predict` writes, flip test and all. Exit codes as of `predict`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.predict_arguments import add_weights_arguments, detector_of, run_guarded, weights_options, whole

if TYPE_CHECKING:
    from rich.console import Console

    from training.finetuning.pictures import PictureSource


MEAN_PICTURES = 256


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "evaluate",
        help="the figures of a task model on held-out pictures: AP, mean IoU, degrees, metres, ...",
        description="Example: populace evaluate pose --weights W.safetensors --data configs/finetune-tiny-pose.yaml",
    )
    add_weights_arguments(parser)
    parser.add_argument(
        "--data", metavar="CONFIG|RUN",
        help="a configuration whose finetune.data says which pictures, or a run (default: the run of --weights)",
    )  # fmt: skip
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that replace CONFIG's")
    parser.add_argument("--split", choices=("held_out", "train"), default="held_out", help="(default: held_out)")
    parser.add_argument(
        "--detected", action="store_true", help="pose: people in the boxes of --detector, not in their true ones"
    )
    parser.add_argument(
        "--mean", type=whole, metavar="N", const=MEAN_PICTURES, nargs="?",
        help="also measure the mean of N training pictures, place by place: what a predictor is worth that does not "
        f"look at the picture (N: {MEAN_PICTURES})",
    )  # fmt: skip
    parser.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    return run_guarded(lambda console: _run(options, console))


def _run(options: argparse.Namespace, console: Console) -> int:
    from eval.evaluate import evaluate, setup_of
    from pipeline.config import ConfigError
    from pipeline.progress import RunProgress
    from pipeline.report import results_console
    from pipeline.task_weights import load_task
    from training.prediction.config import PredictorConfig

    if options.detected and options.detector is None:
        raise ConfigError("--detected needs a detector: give --detector yolo or a file")
    if options.detector is not None and not options.detected:
        raise ConfigError("people are measured in their true boxes: give --detected to use the detector's")
    train, held_out = _pictures(options)
    pictures = train if options.split == "train" else held_out
    loaded = load_task(options.task, options.weights, weights_options(options, PredictorConfig()), detector_of(options))
    predictor = loaded.predictor
    count = min(len(pictures), options.limit or len(pictures))
    progress = RunProgress(console, options.quiet)
    progress.message(f"weights   {loaded.origin}")
    done = 0

    def step(now: int) -> None:
        nonlocal done
        progress.advance(now - done)
        done = now

    with progress.stage(options.task, count, "pictures"):
        figures = evaluate(predictor, pictures, detected=options.detected, limit=options.limit, progress=step)
    setup = setup_of(predictor)
    metric = setup.metric
    record = {
        "task": options.task,
        "weights": loaded.origin,
        "size": list(predictor.size),
        "flip": predictor.flip,
        "boxes": ("detected" if options.detected else "true") if options.task == "pose" else None,
        "pictures": count,
        "data": pictures.fingerprint,
        "metric": metric.primary,
        "figures": figures,
    }
    if options.mean is not None:
        from eval.baselines import mean_predictor_figures
        from training.data.labelled_sets.opening import Subset

        measured = Subset(pictures, range(count))
        record["mean_predictor"] = mean_predictor_figures(setup, train, measured, options.mean)
    if options.json:
        from training.watch.json_values import plain

        print(json.dumps(plain(record)))
    else:
        results_console().print(_table(record))
    return 0


def _pictures(options: argparse.Namespace) -> tuple[PictureSource, PictureSource]:
    """The labelled pictures to train on, and those that are held out.

    Raises:
        ConfigError: there are none.
        DataError: they cannot be used.
    """
    from pipeline.config import ConfigError, load_config
    from pipeline.task_weights import run_section
    from training.finetuning.pictures import open_pictures

    given = options.data or options.weights
    if Path(given).is_file() and options.data is not None:
        section = load_config(given, options.overrides, writes=False).finetune
        if section is None:
            raise ConfigError(f"--data {given} has no section finetune, whose data says which pictures")
    else:
        if options.overrides:
            raise ConfigError("key.path=value replaces values of a configuration: give one as --data")
        section = run_section(options.task, given)
        if section is None:
            what = "is neither a configuration nor a run that has fine-tuned" if options.data else "is no run of"
            raise ConfigError(
                f"{given} {what} {options.task}: give --data, a configuration with finetune.data, or a run"
            )
    return open_pictures(section.data)


def _table(record: dict[str, Any]) -> Any:
    """The figures, the one that counts first."""
    from rich.table import Table

    size = "x".join(map(str, record["size"]))
    flip = "with" if record["flip"] else "without"
    table = Table(
        title=f"{record['task']} on {record['pictures']:,} pictures, {size}, {flip} flip test", title_justify="left"
    )
    table.add_column("figure", no_wrap=True)
    columns = [record["figures"], *filter(None, [record.get("mean_predictor")])]
    for name in ("value", "mean predictor")[: len(columns)]:
        table.add_column(name, justify="right")
    first = record["metric"]
    # Of a part of the body its average precision and recall; --json has all that was measured.
    shown = [name for name in record["figures"] if "/" not in name or name.endswith(("/ap", "/ar"))]
    for name in [first, *(name for name in shown if name != first)]:
        values = (f"{column[name]:.4f}" if name in column else "" for column in columns)
        table.add_row(name, *values, style="bold" if name == first else None, end_section=name == first)
    return table
