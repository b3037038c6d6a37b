"""What the commands share: exit codes, how a configuration is given, errors as messages."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from pipeline.last_words import CONTINUES, TERMINATED, was_interrupted

__all__ = [
    "FAILED", "TERMINATED", "UNFINISHED", "USAGE", "config_arguments", "guarded", "logged",
    "print_error", "print_failure", "set_up_errors",
]  # fmt: skip

USAGE, FAILED, UNFINISHED = 2, 1, 3


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
    from pipeline.storage import StorageError

    of_runs = RunConflictError, StorageError, RayAddressError, UnknownIdError
    return ConfigError, SourceError, MissingWeightsError, *of_runs


def guarded(console: Console, action: Callable[[], int]) -> int:
    """Turn errors that a user can mend into one message and a useful exit code."""
    try:
        return action()
    except Exception as error:
        if was_interrupted():
            raise KeyboardInterrupt from None
        if not isinstance(error, set_up_errors()):
            raise
        print_error(console, error)
        return USAGE


def print_error(console: Console, error: object) -> None:
    """One line, red on a terminal, without credentials."""
    from curation.sources.redact import redact_text

    console.print(redact_text(f"error: {error}"), style="red", markup=False, highlight=False, soft_wrap=True)


def print_failure(console: Console, error: BaseException, what: str = "the run failed: ") -> None:
    """The innermost cause in one line, with the place of the log that has the whole traceback."""
    from pipeline.causes import cause_line, write_traceback
    from pipeline.logs import log_of
    from pipeline.storage import RemovedError

    place = log_of(error) or write_traceback(error)
    print_error(console, f"{what}{cause_line(error)}{f' (log: {place})' if place else ''}")
    if not isinstance(error, RemovedError):
        console.print(f"{CONTINUES[0].upper()}{CONTINUES[1:]}.", markup=False, soft_wrap=True)


def logged(console: Console, action: Callable[[], int]) -> int:
    """Errors of the run itself: a short message here; the traceback is in the log (`pipeline/logs.py`)."""
    try:
        return action()
    except Exception as error:
        if was_interrupted():
            raise KeyboardInterrupt from None
        from ray.exceptions import RayError

        # What a worker raised is a RayError as well, also where its class is one of these.
        if isinstance(error, set_up_errors()) and not isinstance(error, RayError):
            raise
        print_failure(console, error)
        return FAILED
