"""The `populace` command.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done; 1 the run failed; 2 the command, the
configuration or the set-up is wrong (nothing was started); 3 not there yet (a funnel of an unfinished run); 130
interrupted; 143 terminated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pipeline import last_words
from pipeline.last_words import CONTINUES

if TYPE_CHECKING:  # imported when Ctrl-C is looked after
    from pipeline.storage import Storage

WATCHED = frozenset({"curate", "verify", "pretrain", "finetune", "run", "predict", "evaluate", "demo"})
"""Commands that start what may end them without a word."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with last_words.speaking(watched=bool(given) and given[0] in WATCHED):
            return _main(given)
    except KeyboardInterrupt:
        # While the command was leaving already.
        last_words.say(f"interrupted; {CONTINUES}")
        return last_words.INTERRUPTED


def _main(arguments: list[str]) -> int:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        last_words.say(f"interrupted; {CONTINUES}")
        return last_words.INTERRUPTED
    except SystemExit as error:
        # While Ray starts, its own handler is in place; it exits with the signal's number.
        if error.code != signal.SIGTERM:
            raise
        _terminate()
    except BrokenPipeError:
        # The reader of our output went away (head, less): not an error of ours.
        _drop_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 - a traceback helps nobody at a terminal; it is in a file
        if last_words.was_interrupted():
            last_words.say(f"interrupted; {CONTINUES}")
            return last_words.INTERRUPTED
        from rich.console import Console

        from pipeline.commands import FAILED, print_failure

        _drop_stdout()
        print_failure(Console(stderr=True), error, "")
        return FAILED


def _run(arguments: list[str]) -> int:
    parser = build_parser()
    # argparse takes no positional after a flag; overrides may stand anywhere.
    options, rest = parser.parse_known_args(arguments)
    strays = [item for item in rest if item.startswith("-") or "=" not in item or not hasattr(options, "overrides")]
    if strays:
        parser.error(f"unrecognized arguments: {' '.join(strays)}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    code: int = options.run(options)
    if sys.stdout is not None:  # closed by whoever started this
        sys.stdout.flush()
    return code


def _terminate(*_: object) -> NoReturn:
    """SIGTERM came: a spot machine is taken back, or somebody stops the job. Go at once: a run is made to be killed at
    any moment, and an orderly way out through Ray can take longer than there is."""
    last_words.leave(last_words.TERMINATED, f"terminated; {CONTINUES}")


def _drop_stdout() -> None:
    """What cannot be written to stdout is not tried again when Python ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    from pipeline import (
        data_commands,
        evaluate_command,
        models_command,
        predict_command,
        train_commands,
        verify_command,
    )
    from pipeline.commands import config_arguments

    parser = argparse.ArgumentParser(
        prog="populace",
        description="Curates pools of images into balanced corpora of human images, and trains on them.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    curate = commands.add_parser(
        "curate",
        help="pool of images -> ledger and shards; run again to continue or to decide anew",
        description="Example: populace curate configs/embedded.yaml source.kind=folder source.path=DIR output=RUN",
    )
    config_arguments(curate)
    curate.add_argument(
        "--new", action="store_true", help="set an existing run in the output aside (RUN.old-1) and start afresh"
    )
    curate.add_argument("--retry", action="store_true", help="try rows again that failed to read, download or score")
    curate.add_argument(
        "--verify", action="store_true", help="check every byte of what is there first, and make anew what is damaged"
    )
    curate.add_argument("--json", action="store_true", help="print the funnel as JSON on stdout")
    curate.add_argument("--quiet", action="store_true", help="no progress")
    curate.set_defaults(run=_curate)

    train_commands.add_parsers(commands)
    data_commands.add_parsers(commands)
    predict_command.add_parser(commands)
    evaluate_command.add_parser(commands)
    verify_command.add_parser(commands)
    funnel = commands.add_parser("funnel", help="how many inputs were kept, and dropped for which reason")
    funnel.add_argument("run_directory", metavar="RUN")
    funnel.add_argument("--json", action="store_true", help='{"inputs": n, "kept": k, "dropped": {"reason": n}}')
    funnel.set_defaults(run=_funnel)

    duplicates = commands.add_parser(
        "duplicates", help="a row's group: which row stayed, which were dropped in its favour, at what distances"
    )
    duplicates.add_argument("run_directory", metavar="RUN")
    duplicates.add_argument(
        "--id", required=True, metavar="ID", help="id of a row in the ledger, or the first 6 or more characters of it"
    )
    duplicates.add_argument("--limit", type=_whole, default=50, metavar="N", help="rows to show (default: 50); 0: all")
    duplicates.add_argument("--json", action="store_true", help="the group as one JSON object on stdout")
    duplicates.set_defaults(run=_duplicates)

    config = commands.add_parser("config", help="look at configurations")
    actions = config.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("schema", help="print the JSON schema of the configuration file").set_defaults(run=_schema)
    show = actions.add_parser("show", help="print the resolved configuration, with every default")
    config_arguments(show)
    show.add_argument("--json", action="store_true", help="as JSON")
    show.set_defaults(run=_show)

    doctor = commands.add_parser("doctor", help="check this installation: packages, weights, GPU, disk, shared memory")
    doctor.add_argument("config", nargs="?", metavar="CONFIG", help="also check what this configuration needs")
    doctor.add_argument("overrides", nargs="*", metavar="key.path=value")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.set_defaults(run=_doctor)

    demo = commands.add_parser(
        "demo", help="build a pool with known truth, curate it offline, pretrain and fine-tune a tiny model, check all"
    )
    demo.add_argument("--output", default="demo", help="folder for the pool and the run (default: %(default)s)")
    demo.add_argument("--inputs", type=int, default=2000, help="about how many inputs (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0)
    demo.set_defaults(run=_demo)
    models_command.add_parser(commands)
    return parser


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _curate(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline.commands import guarded, logged

    console = Console(stderr=True)

    def action() -> int:
        from pipeline.config import load_config
        from pipeline.curate import curate
        from pipeline.ledger import funnel
        from pipeline.progress import RunProgress
        from pipeline.report import print_outcome, results_console
        from pipeline.storage import Storage

        config = load_config(options.config, options.overrides)
        result = curate(
            config, RunProgress(console, options.quiet), new=options.new, retry=options.retry, check=options.verify
        )
        counts = funnel(Storage(result.output))
        if options.json:
            print(json.dumps(counts))
        else:
            print_outcome(results_console(), result.output, counts, result.shards)
        return 0

    return guarded(console, lambda: logged(console, action))


def _funnel(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline.commands import guarded

    return guarded(Console(stderr=True), lambda: _count(options))


def _count(options: argparse.Namespace) -> int:
    def show(storage: Storage) -> None:
        from pipeline.ledger import funnel
        from pipeline.report import funnel_table, results_console

        counts = funnel(storage)
        if options.json:
            print(json.dumps(counts))
        else:
            results_console().print(funnel_table(counts))

    return _of_ledger(options.run_directory, show)


def _duplicates(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline.commands import guarded

    def show(storage: Storage) -> None:
        from pipeline.duplicates import find_group, print_group
        from pipeline.report import results_console

        group = find_group(storage, options.id, options.limit)
        if options.json:
            print(json.dumps(group.to_json()))
        else:
            print_group(results_console(), group)

    return guarded(Console(stderr=True), lambda: _of_ledger(options.run_directory, show))


def _of_ledger(run_directory: str, show: Callable[[Storage], None]) -> int:
    """Show something of a finished ledger; says so where there is none."""
    from curation.sources.redact import redact_text, redact_url
    from pipeline.commands import FAILED, UNFINISHED, USAGE
    from pipeline.rundir import RUN_FILE
    from pipeline.storage import DamagedFileError, Storage

    storage, shown = Storage(run_directory), redact_url(run_directory)
    if not storage.exists(RUN_FILE):
        print(f"error: {shown} is not a run directory: it has no {RUN_FILE}", file=sys.stderr)
        return USAGE
    try:
        show(storage)
    except FileNotFoundError:
        print(
            f"error: {shown} has no finished ledger yet: run `populace curate` with its configuration to finish it",
            file=sys.stderr,
        )
        return UNFINISHED
    except DamagedFileError as error:
        print(redact_text(f"error: {error}"), file=sys.stderr)
        return FAILED
    return 0


def _schema(options: argparse.Namespace) -> int:
    from pipeline.config import PopulaceConfig

    print(json.dumps(PopulaceConfig.model_json_schema(), indent=2))
    return 0


def _show(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline.commands import guarded

    def action() -> int:
        from pipeline.config import load_config, resolved, resolved_yaml

        config = load_config(options.config, options.overrides, writes=False)
        print(json.dumps(resolved(config), indent=2) if options.json else resolved_yaml(config), end="")
        return 0

    return guarded(Console(stderr=True), action)


def _doctor(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline.commands import FAILED, guarded

    def action() -> int:
        from pipeline.doctor import diagnose, print_findings

        findings = diagnose(options.config, options.overrides)
        print_findings(findings, options.json)
        return 0 if all(finding.ok for finding in findings) else FAILED

    return guarded(Console(stderr=True), action)


def _demo(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline.commands import guarded, logged

    console = Console(stderr=True)

    def action() -> int:
        from pipeline.demo.run import run_demo

        return run_demo(Path(options.output), options.inputs, options.seed, console)

    return guarded(console, lambda: logged(console, action))


if __name__ == "__main__":
    sys.exit(main())
