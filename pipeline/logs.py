"""Where a run's messages go: a file of the run, so that the terminal stays for its progress."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

LOG_FILE = "populace.log"
RAY_FILE = "ray_messages.log"


@contextmanager
def run_log(folder: Path | None) -> Iterator[None]:
    """Send messages of this process, the traceback of a failure, and what is printed to stdout, to the run's log.

    Ray prints every retry and every dead worker to stdout, whatever its settings say; scripts expect a result there.

    Args:
        folder: the run's log folder; None (a run on an object store) leaves logging as it is and drops stdout.
    """
    logger = logging.getLogger("pipeline")
    loggers = [logger, logging.getLogger("curation"), logging.getLogger("training")]
    handler = logging.FileHandler(folder / LOG_FILE, encoding="utf-8", delay=True) if folder is not None else None
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        for item in loggers:
            item.addHandler(handler)
    try:
        with (
            open(folder / RAY_FILE if folder is not None else os.devnull, "a", 1, encoding="utf-8") as printed,
            redirect_stdout(printed),
        ):
            yield
    except Exception:
        logger.exception("the run failed")
        raise
    finally:
        if handler is not None:
            for item in loggers:
                item.removeHandler(handler)
            handler.close()
