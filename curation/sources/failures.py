"""What may be tried again, and what a failed read means for a row."""

from __future__ import annotations

import errno
import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from curation.reasons import Reason
from curation.records import Payload
from curation.sources.redact import describe

log = logging.getLogger(__name__)
T = TypeVar("T")


class TooManyBytesError(OSError):
    """A file is above the cap of bytes and was not read."""


def with_retries(call: Callable[[], T], attempts: int = 4, delay_s: float = 0.25) -> T:
    """Call until it succeeds; waits delay_s, 2 delay_s, ... with jitter after a transient error.

    Transient is an I/O error that is not an answer: not-found, no-permission and wrong-type errors are raised at once.
    """
    for attempt in range(attempts):
        try:
            return call()
        except Exception as error:
            if attempt == attempts - 1 or not _is_transient(error):
                raise
            log.debug("attempt %d failed, trying again: %s", attempt + 1, describe(error))
            time.sleep(delay_s * 2**attempt * (0.5 + random.random()))
    raise AssertionError("unreachable")


def _is_transient(error: BaseException) -> bool:
    permanent = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, TooManyBytesError)
    if isinstance(error, permanent) or getattr(error, "errno", None) in (errno.ELOOP, errno.ENAMETOOLONG):
        return False
    if type(error) is OSError and error.errno is None:
        return False  # Arrow's, for broken content
    module = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError | TimeoutError) or module in ("aiohttp", "botocore", "google", "gcsfs")


def failure(error: BaseException) -> Payload:
    """The payload for an input whose bytes could not be had."""
    if isinstance(error, TooManyBytesError):
        return Payload(None, Reason.TOO_MANY_BYTES, str(error))
    gone = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
    return Payload(None, Reason.MISSING if gone or is_link_loop(error) else Reason.READ_ERROR, describe(error))


def is_link_loop(error: BaseException) -> bool:
    """True when a path runs in a circle of symbolic links."""
    return getattr(error, "errno", None) == errno.ELOOP
