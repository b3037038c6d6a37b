"""The guard: what it finds, what it does then, and that a resumed one decides alike."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from training.watch.guard import Guard, GuardConfig, Verdict


def guard(**fields: Any) -> Guard:
    return Guard(GuardConfig(**({"warmup": 0, "window": 4} | fields)))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_loss_that_is_not_finite(loss: float, policy: str) -> None:
    verdict = guard(on_nonfinite=policy).check(12, loss, 1.0)
    assert verdict == Verdict(policy, "nonfinite", f"the loss of step 12 is {loss}")  # type: ignore[arg-type]


def test_a_gradient_norm_that_is_not_finite() -> None:
    verdict = guard().check(3, 0.5, math.inf)
    assert (verdict.action, verdict.kind) == ("stop", "nonfinite")
    assert verdict.reason == "the gradient norm of step 3 is inf (its loss is 0.5)"
    assert guard().check(3, 0.5, None) == guard().check(3, 0.5, 2.0) == Verdict("ok")


def test_spikes_are_ignored_by_default() -> None:
    watched = guard()
    assert [watched.check(step, 10.0**step).action for step in range(8)] == ["ok"] * 8


def test_a_spike_is_far_above_the_median() -> None:
    watched = guard(on_spike="skip", spike_factor=2)
    for step, loss in enumerate([1.0, 3.0, 1.0, 1.0]):
        assert watched.check(step, loss).action == "ok"
    assert watched.check(4, 2.0).action == "ok"
    verdict = watched.check(5, 2.1)  # of 3, 1, 1, 2 the median is 1.5
    assert verdict.action == "ok"
    verdict = watched.check(6, 3.1)  # 1, 1, 2, 2.1
    assert (verdict.action, verdict.kind) == ("skip", "spike")
    assert verdict.reason == ("the loss of step 6 is 3.1, 2.07 times the median 1.5 of the last 4 (spike_factor is 2)")
    # It did not enter the median.
    assert watched.check(7, 3.1).action == "skip"
    assert watched.skipped == 2
    assert guard(on_spike="stop").check(0, 5.0).action == "ok"


def test_no_spike_in_the_warmup_or_without_enough_losses() -> None:
    watched = guard(on_spike="stop", warmup=6)
    assert [watched.check(step, 1.0 if step < 5 else 99.0).action for step in range(7)] == ["ok"] * 6 + ["stop"]
    fresh = guard(on_spike="stop")
    assert [fresh.check(step, loss).action for step, loss in enumerate([1.0, 99.0, 500.0])] == ["ok", "ok", "stop"]


def test_too_many_skips_in_a_row_stop() -> None:
    watched = guard(on_nonfinite="skip", max_consecutive_skips=2)
    losses = [math.nan, math.nan, 1.0, math.nan, math.nan, math.nan]
    verdicts = [watched.check(step, loss) for step, loss in enumerate(losses)]
    assert [verdict.action for verdict in verdicts] == ["skip", "skip", "ok", "skip", "skip", "stop"]
    assert "2 steps before it were skipped in a row (max_consecutive_skips)" in verdicts[-1].reason
    assert guard(on_nonfinite="skip", max_consecutive_skips=0).check(0, math.nan).action == "stop"


LOSSES = st.lists(st.floats(0.1, 10) | st.sampled_from([math.nan, math.inf, 1e9]), max_size=40)


@given(
    losses=LOSSES, cut=st.integers(0, 40), window=st.integers(1, 8), spike=st.sampled_from(["ignore", "skip", "stop"])
)
def test_a_resumed_guard_decides_alike(losses: list[float], cut: int, window: int, spike: str) -> None:
    config = GuardConfig.model_validate(
        {"on_nonfinite": "skip", "on_spike": spike, "window": window, "warmup": 5, "max_consecutive_skips": 3}
    )
    undisturbed, first, resumed = Guard(config), Guard(config), Guard(config)
    expected = [undisturbed.check(step, loss) for step, loss in enumerate(losses)]
    cut = min(cut, len(losses))
    found = [first.check(step, losses[step]) for step in range(cut)]
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    found += [resumed.check(step, losses[step]) for step in range(cut, len(losses))]
    assert found == expected
    assert resumed.state_dict() == undisturbed.state_dict()


@given(losses=st.lists(st.floats(0.01, 100), min_size=1, max_size=30), window=st.integers(1, 6))
def test_spikes_are_those_of_the_definition(losses: list[float], window: int) -> None:
    watched = Guard(GuardConfig(on_spike="skip", spike_factor=1.5, window=window, warmup=3, max_consecutive_skips=99))
    good: list[float] = []
    for step, loss in enumerate(losses):
        recent = good[-window:]
        spike = step >= 3 and len(recent) >= window / 2 and loss > 1.5 * statistics.median(recent)
        assert watched.check(step, loss).action == ("skip" if spike else "ok")
        if not spike:
            good.append(loss)


def test_a_smaller_window_keeps_the_latest_losses() -> None:
    watched = guard(window=4)
    for step in range(4):
        watched.check(step, float(step))
    smaller = guard(window=2)
    smaller.load_state_dict(watched.state_dict())
    assert smaller.state_dict()["losses"] == [2.0, 3.0]


def test_wrong_states_and_settings() -> None:
    for state in ({}, {"losses": None, "consecutive": 0, "skipped": 0}, {"losses": ["x"], "consecutive": 0}):
        with pytest.raises(ValueError, match="not the state of a guard"):
            guard().load_state_dict(state)
    for fields in ({"spike_factor": 1}, {"window": 0}, {"on_nonfinite": "ignore"}, {"patience": 3}):
        with pytest.raises(ValidationError):
            GuardConfig.model_validate(fields)
