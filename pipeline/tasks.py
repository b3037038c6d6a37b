"""Many small jobs on Ray with a bounded number in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray

from pipeline.resources import limit_native_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_tasks(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    num_cpus: float = 1.0,
    in_flight: int | None = None,
    threads: int = 1,
) -> Iterator[tuple[int, Result]]:
    """Call `function` on every item in Ray tasks; yields (position, result) as they finish, in any order.

    Args:
        function: picklable; sent to the cluster once.
        in_flight: most tasks submitted and unfinished; the default keeps every core busy.
        threads: threads that native libraries may use in a task; ask for as many `num_cpus`.
    """
    if not items:
        return
    limit = in_flight or max(2, int(2 * ray.cluster_resources().get("CPU", 1)))
    shared = ray.put(function)
    running: dict[Any, int] = {}
    queue = iter(enumerate(items))
    exhausted = False
    try:
        while running or not exhausted:
            while not exhausted and len(running) < limit:
                try:
                    position, item = next(queue)
                except StopIteration:
                    exhausted = True
                    break
                running[_call.options(num_cpus=num_cpus).remote(shared, item, threads)] = position
            if not running:
                break
            ready, _ = ray.wait(list(running), num_returns=1)
            for reference in ready:
                yield running.pop(reference), ray.get(reference)
    finally:
        # After an error nothing may go on writing into a run that its owner believes to have stopped.
        for reference in running:
            ray.cancel(reference, force=True)
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=CANCEL_S)


CANCEL_S = 10.0
RETRIES = 4
"""How often a job is tried again after an OSError (a storage hiccup) or the death of its worker."""


@ray.remote(max_retries=RETRIES, retry_exceptions=[OSError])  # type: ignore[call-overload]
def _call(function: Any, item: Any, threads: int) -> Any:
    limit_native_threads(threads)
    return function(item)


def slices(items: Sequence[Item], parts: int) -> list[list[Item]]:
    """Split a sequence into at most `parts` runs of nearly equal length."""
    count = min(parts, len(items))
    return [list(items[len(items) * part // count : len(items) * (part + 1) // count]) for part in range(count)]
