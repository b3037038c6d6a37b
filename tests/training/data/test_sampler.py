"""A step sees the same places however it is cut."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.sampler import BatchPlan, MicroSteps


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**12))
def test_ranks_and_micro_steps_make_the_global_batch(world: int, micro: int, accumulation: int, step: int) -> None:
    plan = BatchPlan(world * micro * accumulation, micro, world)
    assert plan.accumulation == accumulation
    together = [
        place
        for micro_step in range(accumulation)
        for rank in range(world)
        for place in plan.positions(step, micro_step, rank)
    ]
    assert together == list(range(step * plan.global_batch, (step + 1) * plan.global_batch))


def test_batches_that_cannot_be_cut_are_refused_with_what_fits() -> None:
    with pytest.raises(ValueError, match=r"24 is not 2 ranks x micro-batches of 5 .* 1, 2, 3, 4, 6, 12"):
        BatchPlan(24, 5, 2)
    with pytest.raises(ValueError, match="multiple of the 3 ranks"):
        BatchPlan(8, 1, 3)
    with pytest.raises(ValueError, match="at least 1"):
        BatchPlan(8, 0, 1)
    with pytest.raises(ValueError, match="2 micro-steps and 2 ranks"):
        BatchPlan(8, 2, 2).positions(0, 2, 0)


def test_micro_steps_start_anywhere_and_may_end() -> None:
    assert list(islice(MicroSteps(2, 5), 5)) == [(5, 0), (5, 1), (6, 0), (6, 1), (7, 0)]
    assert list(MicroSteps(2, 1, 3)) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert list(MicroSteps(1, 3, 3)) == []
    assert np.dtype(BatchPlan(4, 2).positions(0, 0, 0).dtype) == np.int64
