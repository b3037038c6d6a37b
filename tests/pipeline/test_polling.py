"""The scheduler looks less often where chunks take long, never where they are short, and Ray's setting comes back."""

from __future__ import annotations

import pytest
from ray.data._internal.execution import streaming_executor_state as executor

from pipeline.polling import LONGEST, SETTING, paced


def setting() -> float:
    return float(getattr(executor, SETTING))


def test_this_version_of_ray_has_the_setting() -> None:
    assert setting() == 0.1


def test_the_pace_follows_the_fastest_chunk_and_ends_as_it_began() -> None:
    with paced() as pace:
        assert setting() == 0.1
        pace.seen(4.0, 100)
        assert setting() == 0.5
        pace.seen(60.0, 99)
        assert setting() == 0.5
        pace.seen(0.2, 98)
        assert setting() == 0.1
    with paced() as pace:
        pace.seen(60.0, 100)
        assert setting() == LONGEST
        pace.seen(60.0, 4)
        assert setting() == 0.1
        pace.seen(60.0, 5)
    assert setting() == 0.1


def fail() -> None:
    with paced() as pace:
        pace.seen(60.0, 100)
        raise ZeroDivisionError


def test_it_is_put_back_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        fail()
    assert setting() == 0.1


def test_a_ray_without_the_setting_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(executor, SETTING)
    with paced() as pace:
        pace.seen(60.0, 100)
    assert not hasattr(executor, SETTING)
