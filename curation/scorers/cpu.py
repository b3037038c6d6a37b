"""Running a PyTorch model on CPU cores so that its results do not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


class OnePictureAtATime:
    """Applies a function to every item, in order: several items at once, each on one thread.

    PyTorch's kernels split their sums by batch size and by number of threads, which changes the last bits
    (EfficientNet-Lite0: differences of 2e-5 between one thread and two). One item and one thread a call give the same
    bits on every machine of a kind, whatever the batch and the worker's share of CPUs; cores are used by working on
    several items. PyTorch's number of threads is one during a call, and as it was after it.
    """

    def __init__(self, num_cpus: float) -> None:
        """Make `num_cpus` threads, at least one. Call it in the worker: threads cannot be pickled."""
        self._pool = ThreadPoolExecutor(max(1, int(num_cpus)), "pictures", initializer=_single_thread)

    def __call__(self, function: Callable[[In], Out], items: Iterable[In]) -> list[Out]:
        """`[function(item) for item in items]`; the first error is raised."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return list(self._pool.map(function, items))
        finally:
            torch.set_num_threads(before)


def _single_thread() -> None:
    """A thread that PyTorch has not seen would start with the process's number of threads."""
    import torch

    torch.set_num_threads(1)
