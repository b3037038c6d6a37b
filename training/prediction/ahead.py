"""Reading ahead: the next pictures are decoded on another thread while the model is busy."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_POLL = 0.1  # seconds after which a reader that waits for room looks whether anybody still wants it


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Iterable[Item], depth: int) -> Iterator[Item]:
    """The same items in the same order, at most `depth` of them read before they are asked for.

    An error of `items` is raised after the items before it. Closing this iterator ends the thread, which
    closes `items`.

    Args:
        items: used by one thread only, started here.
        depth: 0 = no thread.
    """
    if depth < 1:
        yield from items
        return
    room: queue.Queue[Item | _End] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: Item | _End) -> bool:
        while not stop.is_set():
            try:
                room.put(item, timeout=_POLL)
            except queue.Full:
                continue
            return True
        return False

    def read() -> None:
        source = iter(items)
        try:
            for item in source:
                if not put(item):
                    return
            put(_End(None))
        except BaseException as error:  # noqa: BLE001 - raised again where the items are used
            put(_End(error))
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=read, name="picture read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = room.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stop.set()
        thread.join()
