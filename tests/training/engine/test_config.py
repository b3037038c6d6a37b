"""Where a run trains: which numbers of workers its batch allows, and settings that exclude one another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from training.data.sampler import BatchPlan
from training.engine.config import CheckpointConfig, EngineConfig


@given(batch=st.integers(1, 64), micro=st.integers(1, 9), fewest=st.integers(1, 4), more=st.integers(0, 3))
def test_a_batch_is_allowed_exactly_if_every_number_of_workers_can_share_it(
    batch: int, micro: int, fewest: int, more: int
) -> None:
    config = EngineConfig(workers=fewest + more, min_workers=fewest)
    fits = True
    for world in range(fewest, fewest + more + 1):
        try:
            BatchPlan(batch, micro, world)
        except ValueError:
            fits = False
    if fits:
        config.check_workers(batch, micro)
    else:
        with pytest.raises(ValueError, match=r"batch\.size|batch\.micro"):
            config.check_workers(batch, micro)


def test_the_error_names_the_numbers_of_workers_that_would_do() -> None:
    with pytest.raises(ValueError, match=r"among 5 workers .* it does among 1, 2, 3, 4, 6, 12\."):
        EngineConfig(workers=5).check_workers(24, 2)


def test_without_min_workers_only_their_number_counts() -> None:
    EngineConfig(workers=4).check_workers(8, 2)
    with pytest.raises(ValueError, match="among 3 workers"):
        EngineConfig(workers=4, min_workers=2).check_workers(8, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "single", "workers": 2}, "one process"),
        ({"min_workers": 2}, "more than workers"),
        ({"offload": "nvme"}, "offload_path"),
        ({"kind": "single", "offload": "cpu"}, "needs engine.kind zero3"),
        ({"precision": "float16"}, "precision"),
        ({"gpus": 1}, "gpus"),
        ({"workers": 0}, "workers"),
    ],
)
def test_settings_that_exclude_one_another(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EngineConfig.model_validate(given)


@pytest.mark.parametrize("given", [{"every": 0}, {"keep_last": 0}, {"keep_every": 0}, {"keep_best": -1}, {"keep": 1}])
def test_a_run_always_keeps_a_checkpoint(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CheckpointConfig.model_validate(given)
