"""Schedules: end points, the values between, what happens after the end, and lengths that do not fit."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.objectives.schedules import cosine, linear, warmup_cosine

RECIPE: dict[str, Any] = {"peak": 1e-4, "final": 1e-7, "warmup": 1000, "total": 500_000}


def _slow(step: int, peak: float, final: float, warmup: int, total: int, start: float) -> float:
    """The curve by its definition, the fall as the cosine's share of a range."""
    if step < warmup:
        return (1 - step / warmup) * start + step / warmup * peak
    if step >= total:
        return final
    height = (math.cos((step - warmup) / (total - warmup) * math.pi) + 1) * 0.5
    return height * peak + (1 - height) * final


@given(
    step=st.integers(0, 400),
    warmup=st.integers(0, 100),
    fall=st.integers(0, 200),
    values=st.tuples(*[st.floats(0, 10)] * 3),
)
def test_warmup_cosine_equals_its_definition(
    step: int, warmup: int, fall: int, values: tuple[float, float, float]
) -> None:
    peak, final, start = values
    total = max(1, warmup + fall)
    found = warmup_cosine(step, peak=peak, final=final, warmup=warmup, total=total, start=start)
    assert found == pytest.approx(_slow(step, peak, final, warmup, total, start), abs=1e-9)


def test_the_recipe_of_the_paper() -> None:
    assert warmup_cosine(0, **RECIPE) == 0.0
    assert warmup_cosine(500, **RECIPE) == pytest.approx(5e-5)
    assert warmup_cosine(1000, **RECIPE) == 1e-4
    assert warmup_cosine(250_500, **RECIPE) == pytest.approx((1e-4 + 1e-7) / 2)
    assert 1e-7 < warmup_cosine(499_999, **RECIPE) < 1.001e-7
    assert warmup_cosine(500_000, **RECIPE) == warmup_cosine(10**9, **RECIPE) == 1e-7


def test_it_rises_then_falls() -> None:
    values = [warmup_cosine(step, peak=1.0, final=0.1, warmup=10, total=50, start=0.2) for step in range(60)]
    assert values[0] == 0.2
    assert all(a < b for a, b in pairwise(values[:11]))
    assert all(a > b for a, b in pairwise(values[10:51]))
    assert set(values[50:]) == {0.1}


def test_a_run_without_a_warm_up_starts_at_the_peak_and_one_of_only_warm_up_ends_at_the_final_value() -> None:
    assert warmup_cosine(0, peak=3.0, final=1.0, warmup=0, total=4, start=9.0) == 3.0
    assert [warmup_cosine(s, peak=3.0, final=1.0, warmup=3, total=3) for s in range(4)] == [0.0, 1.0, 2.0, 1.0]


@given(st.floats(-5, 5), st.floats(-5, 5), st.integers(1, 50))
def test_linear_and_cosine_go_from_start_to_end_and_stay(start: float, end: float, steps: int) -> None:
    for schedule in (linear, cosine):
        assert schedule(0, start, end, steps) == pytest.approx(start)
        assert schedule(steps, start, end, steps) == pytest.approx(end)
        assert schedule(steps + 7, start, end, steps) == schedule(steps, start, end, steps)
        assert schedule(0, start, end, 0) == pytest.approx(end)
        middle = (schedule(1, start, end, 4) + schedule(3, start, end, 4)) / 2
        assert schedule(2, start, end, 4) == pytest.approx((start + end) / 2) == pytest.approx(middle)


def test_linear_is_straight_and_cosine_is_flat_at_its_ends() -> None:
    assert [linear(step, 0.065, 0.07, 1000) for step in (0, 500, 1000)] == pytest.approx([0.065, 0.0675, 0.07])
    # At a quarter: 1/2 - cos(pi / 4) / 2 of the way.
    assert cosine(1, 0.0, 1.0, 4) == pytest.approx(0.5 - math.sqrt(0.5) / 2)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="step is -1; steps count from 0"):
        warmup_cosine(-1, **RECIPE)
    with pytest.raises(ValueError, match="step is -2"):
        linear(-2, 0, 1, 5)
    with pytest.raises(ValueError, match="a schedule of -1 steps"):
        cosine(0, 0, 1, -1)
    with pytest.raises(ValueError, match="a warm-up of 1000 steps in a run of 500"):
        warmup_cosine(0, peak=1, final=0, warmup=1000, total=500)
    with pytest.raises(ValueError, match="a run of at least 1 step"):
        warmup_cosine(0, peak=1, final=0, warmup=0, total=0)
