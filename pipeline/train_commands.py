"""The commands that train: `populace pretrain`, `populace run`, `populace export-weights`."""

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
    from pipeline.pretrain import PretrainResult


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    pretrain = commands.add_parser(
        "pretrain",
        help="train a backbone on shards; run again to continue",
        description="Example: populace pretrain configs/pretrain-tiny.yaml output=RUN (RUN as populace curate left it)",
    )
    whole = commands.add_parser(
        "run",
        help="all that a configuration has, one after the other: curate, pretrain; run again to continue",
        description="Example: populace run configs/pretrain-tiny.yaml source.kind=folder source.path=DIR output=RUN",
    )
    for parser, what in ((pretrain, "training run"), (whole, "run")):
        config_arguments(parser)
        parser.add_argument(
            "--new", action="store_true", help=f"set an existing {what} aside (....old-1) and start afresh"
        )
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON on stdout")
        parser.add_argument("--quiet", action="store_true", help="no progress")
    pretrain.set_defaults(run=_pretrain)
    whole.set_defaults(run=_run)

    export = commands.add_parser(
        "export-weights",
        help="weights of a training run as safetensors, in the released names, timm's or transformers'",
    )
    export.add_argument("run_directory", metavar="RUN", help="output of a configuration, or its pretrain folder")
    export.add_argument(
        "--which", choices=("teacher", "student"), default="teacher",
        help="teacher: the average over the last steps, which DINOv3 evaluates and releases (default); student: what "
        "was trained last",
    )  # fmt: skip
    export.add_argument(
        "--format", choices=("sapiens2", "timm", "transformers"), default="sapiens2",
        help="names of the tensors (default: sapiens2, the released ones)",
    )  # fmt: skip
    export.add_argument("--step", type=int, metavar="N", help="of the checkpoint (default: the newest)")
    export.add_argument(
        "--output", metavar="PATH", help="a .safetensors file, or a folder; transformers takes a folder only"
    )
    export.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    export.set_defaults(run=_export_weights)


def _pretrain(options: argparse.Namespace) -> int:
    def work(console: Console, config: PopulaceConfig) -> int:
        from pipeline.pretrain import pretrain

        return _outcome(options, console, pretrain(config, console, options.quiet, options.new))

    return _with_config(options, work)


def _run(options: argparse.Namespace) -> int:
    def work(console: Console, config: PopulaceConfig) -> int:
        from pipeline.curate import curate
        from pipeline.ledger import funnel
        from pipeline.progress import RunProgress
        from pipeline.report import print_outcome, results_console
        from pipeline.storage import Storage

        counts: dict[str, Any] | None = None
        if config.source is not None:
            result = curate(config, RunProgress(console, options.quiet), new=options.new)
            counts = funnel(Storage(result.output))
            if not options.json:
                print_outcome(results_console(), result.output, counts, result.shards)
        if config.pretrain is None:
            if options.json:
                print(json.dumps({"curate": counts}))
            return 0
        from pipeline.pretrain import pretrain

        # Where something was curated, it has set everything aside already.
        new = options.new and config.source is None
        return _outcome(options, console, pretrain(config, console, options.quiet, new), {"curate": counts})

    return _with_config(options, work)


def _with_config(options: argparse.Namespace, work: Callable[[Console, PopulaceConfig], int]) -> int:
    console = Console(stderr=True)

    def action() -> int:
        from pipeline.config import load_config

        config = load_config(options.config, options.overrides)
        if config.pretrain is None:
            return work(console, config)
        from training.engine.checkpoint import CheckpointError
        from training.engine.launch import TrainingFailedError
        from training.watch.guard import GuardStopError

        try:
            return work(console, config)
        except (GuardStopError, TrainingFailedError, CheckpointError) as error:
            print_error(console, error)
            return FAILED

    return guarded(console, lambda: logged(console, action))


def _outcome(
    options: argparse.Namespace, console: Console, result: PretrainResult, before: dict[str, Any] | None = None
) -> int:
    """Print what training came to; the exit code."""
    from pipeline.pretrain_report import print_pretrain_outcome, training_numbers
    from pipeline.report import results_console

    if options.json:
        record = {**asdict(result), **training_numbers(result.folder)}
        print(json.dumps(record if before is None else {**before, "pretrain": record}))
    elif result.ended == "finished":
        print_pretrain_outcome(results_console(), result)
    if result.ended == "finished":
        return 0
    console.print(
        f"stopped ({result.reason}) after step {result.steps:,} of {result.total:,}, which is saved; the same command "
        "continues there",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    return TERMINATED if result.reason == "SIGTERM" else FAILED


def _export_weights(options: argparse.Namespace) -> int:
    console = Console(stderr=True)

    def action() -> int:
        from pipeline.export_weights import ExportError, export_weights
        from training.engine.checkpoint import CheckpointError
        from training.models.tensor_files import WeightsError

        try:
            exported = export_weights(
                options.run_directory, options.which, options.format, options.step, options.output, options.dtype
            )
        except (ExportError, WeightsError) as error:
            raise _usage(error) from None
        except CheckpointError as error:
            print_error(console, error)
            return FAILED
        console.print(
            f"{options.which} of {exported.checkpoint}, {exported.parameters:,} parameters in {options.dtype}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
        print(exported.path)
        return 0

    return guarded(console, action)


def _usage(error: Exception) -> Exception:
    from pipeline.config import ConfigError

    return ConfigError(str(error))
