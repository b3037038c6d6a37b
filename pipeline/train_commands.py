"""The commands that train: `populace pretrain`, `finetune`, `run`, and `export-weights`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.commands import FAILED, TERMINATED, config_arguments, guarded, logged, print_error

if TYPE_CHECKING:  # torch takes seconds to import, and `populace --help` must not
    from pipeline.config import PopulaceConfig
    from pipeline.training_run import TrainingResult


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    pretrain = commands.add_parser(
        "pretrain",
        help="train a backbone on shards; run again to continue",
        description="Example: populace pretrain configs/pretrain-tiny.yaml output=RUN (RUN as populace curate left it)",
    )
    finetune = commands.add_parser(
        "finetune",
        help="train a human task on a backbone, with its metric; run again to continue",
        description="Example: populace finetune configs/finetune-tiny-seg.yaml output=RUN",
    )
    whole = commands.add_parser(
        "run",
        help="all that a configuration has, one after the other: curate, pretrain, finetune; run again to continue",
        description="Example: populace run configs/pretrain-tiny.yaml source.kind=folder source.path=DIR output=RUN",
    )
    for parser, what in ((pretrain, "training run"), (finetune, "training run of the task"), (whole, "run")):
        config_arguments(parser)
        parser.add_argument(
            "--new", action="store_true", help=f"set an existing {what} aside (....old-1) and start afresh"
        )
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON on stdout")
        parser.add_argument("--quiet", action="store_true", help="no progress")
    pretrain.set_defaults(run=_pretrain)
    finetune.set_defaults(run=_finetune)
    whole.set_defaults(run=_run)

    export = commands.add_parser(
        "export-weights",
        help="weights of a training run as safetensors, in the released names, timm's or transformers'",
    )
    export.add_argument("run_directory", metavar="RUN", help="output of a configuration, or the folder in it")
    export.add_argument(
        "--task", choices=("pose", "seg", "normal", "pointmap", "albedo"),
        help="the whole model of this task, from the checkpoint with the best metric; not needed where RUN is the "
        "finetune folder of one task. Of a run of several: the backbone with the head of this one",
    )  # fmt: skip
    export.add_argument(
        "--which", choices=("teacher", "student"),
        help="teacher: the average over the last steps, which DINOv3 evaluates and releases (default); student: what "
        "was trained last; task models have no teacher",
    )  # fmt: skip
    export.add_argument(
        "--format", choices=("sapiens2", "timm", "transformers"), default="sapiens2",
        help="names of the tensors (default: sapiens2, the released ones)",
    )  # fmt: skip
    export.add_argument(
        "--step", type=int, metavar="N", help="of the checkpoint (default: the newest; of tasks, the best)"
    )
    export.add_argument(
        "--output", metavar="PATH", help="a .safetensors file, or a folder; transformers takes a folder only"
    )
    export.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    export.set_defaults(run=_export_weights)


def _pretrain(options: argparse.Namespace) -> int:
    def work(console: Console, config: PopulaceConfig) -> int:
        from pipeline.pretrain import pretrain

        return _outcome(options, console, "pretrain", pretrain(config, console, options.quiet, options.new))

    return _with_config(options, work)


def _finetune(options: argparse.Namespace) -> int:
    def work(console: Console, config: PopulaceConfig) -> int:
        from pipeline.finetune import finetune

        return _outcome(options, console, "finetune", finetune(config, console, options.quiet, options.new))

    return _with_config(options, work)


def _run(options: argparse.Namespace) -> int:
    def work(console: Console, config: PopulaceConfig) -> int:
        from pipeline.curate import curate
        from pipeline.ledger import funnel
        from pipeline.progress import RunProgress
        from pipeline.report import print_outcome, results_console
        from pipeline.storage import Storage

        records: dict[str, Any] = {"curate": None}
        if config.finetune is not None:
            from pipeline.finetune import finetune_pictures

            finetune_pictures(config.finetune)  # what is wrong with them is said before hours of other stages
        if config.source is not None:
            result = curate(config, RunProgress(console, options.quiet), new=options.new)
            counts = records["curate"] = funnel(Storage(result.output))
            if not options.json:
                print_outcome(results_console(), result.output, counts, result.shards)
        # Where something was curated, it has set everything aside already.
        new = options.new and config.source is None
        code = 0
        if config.pretrain is not None:
            from pipeline.pretrain import pretrain

            code = _outcome(options, console, "pretrain", pretrain(config, console, options.quiet, new), records)
        if config.finetune is not None and code == 0:
            from pipeline.finetune import finetune

            code = _outcome(options, console, "finetune", finetune(config, console, options.quiet, new), records)
        if options.json:
            _print_json(records)
        return code

    return _with_config(options, work)


def _with_config(options: argparse.Namespace, work: Callable[[Console, PopulaceConfig], int]) -> int:
    console = Console(stderr=True)

    def action() -> int:
        from pipeline.config import load_config

        config = load_config(options.config, options.overrides)
        if config.pretrain is None and config.finetune is None:
            return work(console, config)
        from pipeline.logs import log_of
        from training.engine.checkpoint import CheckpointError
        from training.engine.launch import TrainingFailedError
        from training.watch.guard import GuardStopError

        try:
            return work(console, config)
        except (GuardStopError, TrainingFailedError, CheckpointError) as error:
            print_error(console, f"{error}{f' (log: {place})' if (place := log_of(error)) else ''}")
            return FAILED

    return guarded(console, lambda: logged(console, action))


def _outcome(
    options: argparse.Namespace,
    console: Console,
    stage: str,
    result: TrainingResult,
    records: dict[str, Any] | None = None,
) -> int:
    """Print what training came to, or with --json put it into `records`, which are printed later; the exit code."""
    from curation.sources.redact import redact_url
    from pipeline.finetune_report import finetune_numbers, print_finetune_outcome
    from pipeline.pretrain_report import print_pretrain_outcome, training_numbers
    from pipeline.report import results_console

    if options.json:
        numbers = training_numbers if stage == "pretrain" else finetune_numbers
        record = {**asdict(result), "folder": redact_url(result.folder), **numbers(result.folder)}
        if records is None:
            _print_json(record)
        else:
            records[stage] = record
    elif result.ended == "finished":
        shown = print_pretrain_outcome if stage == "pretrain" else print_finetune_outcome
        shown(results_console(), result)
    if result.ended == "finished":
        return 0
    console.print(
        f"stopped ({result.reason}) after step {result.steps:,} of {result.total:,}, which is saved; the same command "
        "continues there",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    return TERMINATED if result.reason == "SIGTERM" else FAILED


def _print_json(record: dict[str, Any]) -> None:
    from training.watch.json_values import plain

    print(json.dumps(plain(record)))  # strict JSON: no NaN


def _export_weights(options: argparse.Namespace) -> int:
    console = Console(stderr=True)

    def action() -> int:
        from pipeline.export_weights import ExportError, export_weights
        from training.engine.checkpoint import CheckpointError
        from training.models.tensor_files import WeightsError

        try:
            exported = export_weights(
                options.run_directory, options.which, options.format, options.step, options.output, options.dtype,
                options.task,
            )  # fmt: skip
        except (ExportError, WeightsError) as error:
            raise _usage(error) from None
        except CheckpointError as error:
            print_error(console, error)
            return FAILED
        console.print(
            f"{exported.which} of {exported.checkpoint}, {exported.parameters:,} parameters in {options.dtype}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
        print(exported.path)
        return 0

    return guarded(console, action)


def _usage(error: Exception) -> Exception:
    from pipeline.config import ConfigError

    return ConfigError(str(error))
