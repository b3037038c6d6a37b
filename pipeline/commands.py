"""What the commands share: exit codes, how a configuration is given, errors as messages."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from pipeline.storage import StorageError

USAGE, FAILED, UNFINISHED, INTERRUPTED, TERMINATED = 2, 1, 3, 130, 143


def config_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG and overrides."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file, e.g. configs/embedded.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that replace the file's")


def set_up_errors() -> tuple[type[Exception], ...]:
    """Errors of the command, the configuration or the set-up; imported late, to keep `populace --help` quick."""
    from curation.scorers.base import MissingWeightsError
    from curation.sources.base import SourceError
    from pipeline.config import ConfigError
    from pipeline.duplicates import UnknownIdError
    from pipeline.resources import RayAddressError
    from pipeline.rundir import RunConflictError

    of_runs = RunConflictError, StorageError, RayAddressError, UnknownIdError
    return ConfigError, SourceError, MissingWeightsError, *of_runs


def guarded(console: Console, action: Callable[[], int]) -> int:
    """Turn errors that a user can mend into one message and a useful exit code."""
    try:
        return action()
    except set_up_errors() as error:
        print_error(console, error)
        return USAGE


def print_error(console: Console, error: object) -> None:
    """One line, red on a terminal."""
    console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)


def logged(console: Console, action: Callable[[], int]) -> int:
    """Errors of the run itself: a short message here; the traceback is in the log (`pipeline/logs.py`)."""
    from ray.exceptions import RayError

    try:
        return action()
    except Exception as error:
        # What a worker raised is a RayError as well, also where its class is one of these.
        if isinstance(error, set_up_errors()) and not isinstance(error, RayError):
            raise
        cause = getattr(error, "cause", None) or error
        text = str(cause).strip().splitlines()
        print_error(console, f"the run failed: {text[-1] if text else type(cause).__name__}")
        console.print("The same command continues where it stopped. Details are in the run's logs/.", markup=False)
        return FAILED
