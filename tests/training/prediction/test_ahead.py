"""A thread reads ahead: nothing is lost, errors arrive, memory is bounded, and it ends with its user."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from training.prediction.ahead import read_ahead


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_items_keep_their_order_and_errors_come_after_them(depth: int) -> None:
    def items() -> Iterator[int]:
        yield from range(20)
        raise OSError("gone")

    found: list[int] = []
    with pytest.raises(OSError, match="gone"):
        found.extend(read_ahead(items(), depth))
    assert found == list(range(20))


def test_no_more_than_the_depth_is_read_and_the_thread_ends() -> None:
    read: list[int] = []
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            for number in range(1000):
                read.append(number)
                yield number
        finally:
            closed.set()

    ahead = read_ahead(items(), 3)
    assert next(ahead) == 0
    time.sleep(0.1)
    assert len(read) <= 1 + 3 + 1, "given, waiting, and the one for which there is no room"
    ahead.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert not any(thread.name == "picture read-ahead" for thread in threading.enumerate())
