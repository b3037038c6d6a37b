"""What was used last is kept, what is dropped is told."""

from __future__ import annotations

import pickle

import pytest

from training.data.lru import Recent


def test_the_values_used_last_are_kept() -> None:
    dropped: list[str] = []
    recent: Recent[int, str] = Recent(2, dropped.append)
    made: list[int] = []

    def get(key: int) -> str:
        return recent.get(key, lambda: made.append(key) or str(key))

    assert [get(key) for key in (1, 2, 1, 3, 1, 2)] == ["1", "2", "1", "3", "1", "2"]
    assert made == [1, 2, 3, 2]
    assert dropped == ["2", "3"]
    recent.clear(keep=frozenset([2]))
    assert (len(recent), dropped) == (1, ["2", "3", "1"])


def test_it_pickles_empty() -> None:
    recent: Recent[int, int] = Recent(3)
    recent.get(1, lambda: 1)
    copy = pickle.loads(pickle.dumps(recent))
    assert (len(recent), len(copy), copy.capacity) == (1, 0, 3)


def test_a_failed_value_is_not_kept() -> None:
    recent: Recent[int, float] = Recent(1)
    with pytest.raises(ZeroDivisionError):
        recent.get(1, lambda: 1 / 0)
    assert recent.get(1, lambda: 2.0) == 2.0
    with pytest.raises(ValueError, match="at least 1"):
        Recent(0)
