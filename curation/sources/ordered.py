"""Many downloads at once, handed over in order, with a bound on the bytes held."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from typing import Any

from curation.records import Payload
from curation.sources.download import Downloader, OverBudgetError


class ByteBudget:
    """Bytes held per download, on the event loop.

    Over the limit a transfer is given up and starts again when there is room, or when it is the next one in order. To
    pause it instead could end in a standstill: paused transfers would keep the slots that the next one in order needs.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.head = 0
        self.held: dict[int, int] = {}
        self.total = 0
        self.peak = 0
        self._changed = asyncio.Event()

    def grow(self, index: int, size: int) -> None:
        """Download `index` is about to hold `size` bytes.

        Raises:
            OverBudgetError: it must let go of everything.
        """
        before = self.held.get(index, 0)
        if size > before and index != self.head and self.total - before + size > self.limit:
            raise OverBudgetError
        self.held[index] = size
        self.total += size - before
        self.peak = max(self.peak, self.total)
        if size < before:
            self._changed.set()

    def release(self, index: int) -> None:
        """Download `index` holds nothing any more."""
        self.total -= self.held.pop(index, 0)
        self._changed.set()

    def advance(self, head: int) -> None:
        """All before `head` were handed over and are gone; `head` is waited for and may always go on."""
        for index in [index for index in self.held if index < head]:
            self.release(index)
        self.head = head
        self._changed.set()

    async def room(self, index: int) -> None:
        """Wait until half of the budget is free or `index` is next."""
        while index != self.head and self.total > self.limit // 2:
            self._changed.clear()
            await self._changed.wait()


def download_in_order(
    urls: Sequence[str | None], make: Callable[[], Downloader], budget_bytes: int, concurrency: int
) -> Generator[Payload, None, None]:
    """Yield the payload of each URL, in order.

    Downloads run on an event loop of a thread of its own, so that they go on (and their clocks mean something) while
    the caller works on what it got. At most 2 x concurrency downloads are started and not handed over.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="downloads", daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, loop)

    async def start() -> tuple[Downloader, ByteBudget]:
        return await make().__aenter__(), ByteBudget(budget_bytes)

    async def fetch(index: int, url: str | None) -> Payload:
        while True:
            await budget.room(index)
            try:
                payload = await downloader.fetch(url, lambda size: budget.grow(index, size))
            except OverBudgetError:
                budget.release(index)
                continue
            if payload.data is None:
                budget.release(index)
            return payload

    async def stop() -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await downloader.__aexit__()

    downloader, budget = run(start()).result()
    waiting: deque[Future[Payload]] = deque()
    try:
        started = 0
        for index in range(len(urls)):
            while started < len(urls) and started < index + 2 * concurrency:
                waiting.append(run(fetch(started, urls[started])))
                started += 1
            loop.call_soon_threadsafe(budget.advance, index)
            yield waiting.popleft().result()
    finally:
        with contextlib.suppress(Exception):
            run(stop()).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        if not thread.is_alive():
            loop.close()
