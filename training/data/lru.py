"""A small cache of what was used last, by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the values of the keys that were asked for last. Not for several threads. Pickles empty.

    Args:
        capacity: values kept, at least 1.
        drop: called with a value that is dropped.
    """

    def __init__(self, capacity: int, drop: Callable[[V], None] | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"a cache of {capacity} values holds nothing: give at least 1")
        self.capacity = capacity
        self._drop = drop
        self._values: OrderedDict[K, V] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_values": OrderedDict()}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made when it is not there."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        self._values[key] = value
        while len(self._values) > self.capacity:
            self._release(self._values.popitem(last=False)[1])
        return value

    def clear(self, keep: frozenset[K] = frozenset()) -> None:
        """Drop all values but those of some keys."""
        for key in [key for key in self._values if key not in keep]:
            self._release(self._values.pop(key))

    def _release(self, value: V) -> None:
        if self._drop is not None:
            self._drop(value)
