"""How often Ray Data's scheduler looks after its tasks, by how long they take.

The scheduler on the driver asks ten times a second which tasks are done, and each time also talks to actors of its own
(autoscaling, statistics): about a tenth of a core, whether anything happened or not. That is nothing on a cluster and
some percent of two cores. Where a chunk takes seconds, and a second one waits at every worker, looking less often
costs no worker a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray.data._internal.execution import streaming_executor_state as executor

SETTING = "WAIT_FOR_TASK_COMPLETION_TIMEOUT_S"
"""Ray's own name of the longest wait for tasks, seconds; read anew at each look."""

LONGEST = 1.0
"""Seconds between two looks at most."""

SHARE = 8
"""Looks per chunk at least, by the fastest one so far: what waits at a worker then lasts seven looks longer."""


class Pace:
    """Slows the scheduler down as finished chunks tell how long one takes. A version of Ray without the setting is
    left as it is."""

    def __init__(self) -> None:
        self._usual: float | None = getattr(executor, SETTING, None)
        self._fastest: float | None = None

    def seen(self, seconds: float, chunks_left: int) -> None:
        """A chunk took `seconds`.

        Args:
            chunks_left: not finished yet; the last ones are awaited at the usual pace.
        """
        self._fastest = seconds if self._fastest is None else min(self._fastest, seconds)
        if self._usual is not None:
            wait = min(max(self._fastest / SHARE, self._usual), LONGEST) if chunks_left > 4 else self._usual
            setattr(executor, SETTING, wait)

    def restore(self) -> None:
        """As it was."""
        if self._usual is not None:
            setattr(executor, SETTING, self._usual)


@contextmanager
def paced() -> Iterator[Pace]:
    """A pace for one pass over chunks; Ray's own setting is put back afterwards."""
    pace = Pace()
    try:
        yield pace
    finally:
        pace.restore()
