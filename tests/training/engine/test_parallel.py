"""What all ways of training share: clipping, and what one rank answers for many."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.pretraining import pretrain_config
from training.engine.parallel import clip_factor
from training.engine.single import SingleProcess


@given(norm=st.floats(0, 1e6), limit=st.floats(1e-3, 1e3))
def test_clipping_brings_the_norm_to_the_limit_and_never_raises_it(norm: float, limit: float) -> None:
    factor = clip_factor(norm, limit)
    assert 0 < factor <= 1
    assert norm * factor <= limit
    if norm < limit - 1e-5:
        assert factor == 1
    else:
        assert norm * factor == pytest.approx(min(norm, limit), abs=1e-5)


def test_without_a_limit_nothing_is_clipped() -> None:
    assert clip_factor(math.inf, None) == clip_factor(1e9, None) == 1


def test_one_rank_is_all_ranks() -> None:
    single = SingleProcess(pretrain_config())
    rows = torch.arange(4.0)
    assert torch.equal(single.all_reduce(rows), torch.arange(4.0))
    assert torch.equal(single.gather_rows(rows), rows)
    assert (single.gather_objects({"a": 1}), single.rank, single.world) == ([{"a": 1}], 0, 1)
