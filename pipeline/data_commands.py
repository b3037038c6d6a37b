"""The commands about labelled pictures: `populace check-data` and `populace pack`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.commands import FAILED, config_arguments, guarded, print_error

if TYPE_CHECKING:  # torch takes seconds to import, and `populace --help` must not
    from training.data.labelled_sets import Problem
    from training.finetuning.config import FinetuneConfig

SAMPLE, LIMIT, SHARD_SAMPLES = 200, 50, 256


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    check = commands.add_parser(
        "check-data",
        help="what is wrong with the labelled pictures of a finetune section, with the file and the fix",
        description="Names of all files are looked at, and a sample of pictures is read. Exit code 1 where fine-tuning "
        "would fail. Example: populace check-data configs/finetune-tiny-seg.yaml "
        "'finetune.data={kind: labelled, train: {kind: parts, root: DIR}}'",
    )
    config_arguments(check)
    check.add_argument(
        "--sample", type=_at_least(1), default=SAMPLE, metavar="N",
        help=f"pictures of each source that are read (default: {SAMPLE}, evenly over the source)",
    )  # fmt: skip
    check.add_argument(
        "--limit", type=_at_least(0), default=LIMIT, metavar="N",
        help=f"problems that are printed (default: {LIMIT}); 0: all",
    )  # fmt: skip
    check.add_argument("--json", action="store_true", help="all problems and counts as JSON on stdout")
    check.set_defaults(run=_check_data)

    pack = commands.add_parser(
        "pack",
        help="labelled pictures of a finetune section -> WebDataset shards that train as they do, and read faster",
        description="Packs finetune.data.train; people that are rendered are rendered once. Example: populace pack "
        "configs/finetune-tiny-seg.yaml SHARDS",
    )
    pack.add_argument("config", metavar="CONFIG", help="YAML file with a finetune section")
    pack.add_argument("folder", metavar="OUTPUT", help="new or empty folder for the shards")
    pack.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that replace the file's")
    pack.add_argument(
        "--shard-samples", type=_at_least(1), default=SHARD_SAMPLES, metavar="N",
        help=f"pictures in a shard (default: {SHARD_SAMPLES})",
    )  # fmt: skip
    pack.add_argument("--held-out", action="store_true", help="pack the pictures that are measured on instead")
    pack.add_argument("--quiet", action="store_true", help="no progress")
    pack.set_defaults(run=_pack)


def _at_least(least: int) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return parsed


def _settings(options: argparse.Namespace) -> FinetuneConfig:
    from pipeline.config import load_config
    from pipeline.finetune import finetune_settings

    return finetune_settings(load_config(options.config, options.overrides, writes=False))


def _check_data(options: argparse.Namespace) -> int:
    def action() -> int:
        settings = _settings(options)
        from training.finetuning.fit import check_data, misfits, summary
        from training.finetuning.pictures import SyntheticConfig

        setup, data = settings.setup(), settings.data
        rendered = isinstance(data, SyntheticConfig)
        problems = (
            misfits(setup, data) if isinstance(data, SyntheticConfig) else check_data(setup, data, options.sample)
        )
        fatal = sum(problem.fatal for problem in problems)
        record: dict[str, Any] = {"problems": [asdict(problem) for problem in problems], "fatal": fatal}
        if not fatal:
            record |= summary(data)
        if options.json:
            print(json.dumps(record, indent=2))
        else:
            _print_problems(problems, options.limit)
            if not fatal:
                if rendered:
                    print("people are rendered: there are no files to check")
                print(f"{record['train']:,} pictures to train on, {record['held_out']:,} held out")
                print(f"labels: {record['labels']}")
        return FAILED if fatal else 0

    return guarded(Console(stderr=True), action)


def _print_problems(problems: list[Problem], limit: int) -> None:
    shown = problems if limit == 0 else problems[:limit]
    for problem in shown:
        print(f"{'problem' if problem.fatal else 'unlikely'}  {problem}")
    if len(shown) < len(problems):
        print(f"and {len(problems) - len(shown):,} more; --limit 0 prints all")
    if problems:
        fatal = sum(problem.fatal for problem in problems)
        print(f"{fatal:,} problems have to be mended, {len(problems) - fatal:,} are unlikely to be meant so")


def _pack(options: argparse.Namespace) -> int:
    console = Console(stderr=True)

    def action() -> int:
        settings = _settings(options)
        from pipeline.config import ConfigError
        from pipeline.progress import RunProgress
        from training.data.errors import DataError
        from training.data.labelled_sets.pack import free_folder, pack
        from training.finetuning.pictures import unsplit

        try:
            target = free_folder(options.folder)
            source = unsplit(settings.data, options.held_out)
        except DataError as error:
            raise ConfigError(str(error)) from None
        except ValueError as error:  # of a keypoint set
            raise ConfigError(f"finetune.data: {error}") from None
        done = 0
        try:
            with RunProgress(console, options.quiet).stage("pack", len(source), "pictures") as stage:

                def packed(count: int, _: int) -> None:
                    nonlocal done
                    stage.advance(count - done)
                    done = count

                pack(source, target, options.shard_samples, packed)
        except (DataError, OSError) as error:
            print_error(console, error)
            return FAILED
        side = "held_out" if options.held_out else "train"
        print("finetune:\n  data:\n    kind: labelled")
        print(f"    {side}: {json.dumps({'kind': 'shards', 'folder': str(target.absolute())})}")
        return 0

    return guarded(console, action)
