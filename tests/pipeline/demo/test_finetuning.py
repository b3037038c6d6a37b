"""The demo's last stage fails where the task was not learnt."""

from __future__ import annotations

import math

import pytest

from pipeline.demo.finetuning import FIGURE, failures, mean_predictor
from tests.fixtures.finetuning import finetune_config


def numbers(first: float, last: float) -> dict[str, object]:
    return {"measured": {"first": {"figures": {FIGURE: first}}, "last": {"figures": {FIGURE: last}}}}


def test_what_learns_passes() -> None:
    assert failures(numbers(0.01, 0.25), {FIGURE: 0.07}) == []


@pytest.mark.parametrize(
    ("first", "last", "mean", "expected"),
    [
        (0.1, 0.25, 0.07, "less than 3 times the untrained 0.100"),
        (0.01, 0.10, 0.07, "less than 1.5 times the mean predictor's 0.070"),
        (0.0, math.nan, 0.0, "ends at nan"),
    ],
)
def test_what_does_not_is_named(first: float, last: float, mean: float, expected: str) -> None:
    assert any(expected in message for message in failures(numbers(first, last), {FIGURE: mean}))


def test_the_mean_predictor_is_measured_on_the_runs_held_out_people() -> None:
    config = finetune_config("pose", data={"train": 6, "held_out": 3})
    figures = mean_predictor(config)
    assert 0 <= figures[FIGURE] <= 1
    assert mean_predictor(config) == pytest.approx(figures, rel=1e-12, nan_ok=True)
