"""Where a run's messages go: a file of the run, so that the terminal stays for its progress."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_FILE = "populace.log"


@contextmanager
def run_log(folder: Path | None) -> Iterator[None]:
    """Send messages of this process, and the traceback of a failure, to the run's log.

    Args:
        folder: the run's log folder; None (a run on an object store) leaves logging as it is.
    """
    logger = logging.getLogger("pipeline")
    loggers = [logger, logging.getLogger("curation")]
    handler = logging.FileHandler(folder / LOG_FILE, encoding="utf-8", delay=True) if folder is not None else None
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        for item in loggers:
            item.addHandler(handler)
    try:
        yield
    except Exception:
        logger.exception("the run failed")
        raise
    finally:
        if handler is not None:
            for item in loggers:
                item.removeHandler(handler)
            handler.close()
