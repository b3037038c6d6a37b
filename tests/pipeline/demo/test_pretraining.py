"""The demo's pretraining fails where nothing was learnt, and passes where something was."""

from __future__ import annotations

import math

import pytest

from pipeline.demo.pretraining import failures

UNIFORM = math.log(256)
FIRST = {"loss/reconstruction": 1.05, "loss/distillation": UNIFORM + 0.02, "collapse/teacher_entropy": UNIFORM}
LAST = {"loss/reconstruction": 0.83, "loss/distillation": 5.0, "collapse/teacher_entropy": 4.5}


def wrong(first: dict[str, float] | None = None, last: dict[str, float] | None = None) -> list[str]:
    return failures({"first": FIRST | (first or {}), "last": LAST | (last or {})}, 256)


def test_what_learns_passes() -> None:
    assert wrong() == []


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({"loss/reconstruction": 2.0}, {}, "reconstruction starts at 2.000"),
        ({"loss/distillation": 4.0}, {}, "cross-entropy starts at 4.000, not near ln K = 5.545"),
        ({}, {"loss/reconstruction": 1.0}, "reconstruction ends at 1.000"),
        ({}, {"loss/reconstruction": math.nan}, "reconstruction ends at nan"),
        ({}, {"loss/distillation": UNIFORM}, "cross-entropy ends at 5.545"),
        ({}, {"collapse/teacher_entropy": UNIFORM}, "entropy is 5.545 nats"),
        ({}, {"collapse/teacher_entropy": 0.1}, "entropy is 0.100 nats"),
    ],
)
def test_what_does_not_is_named(first: dict[str, float], last: dict[str, float], expected: str) -> None:
    (message,) = wrong(first, last)
    assert expected in message
