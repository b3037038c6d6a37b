"""Verdicts: the first limit that fails, in stage order, with the score and the threshold behind it."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curation.policy import STAGES, Limit, Policy, PolicyConfig


def scored_table(count: int, stages: list[str], **columns: pa.Array) -> pa.Table:
    values = {
        "problem": pa.nulls(count, pa.string()),
        "problem_stage": pa.nulls(count, pa.string()),
        **{f"scored_{stage}": pa.array([True] * count) for stage in stages},
        **columns,
    }
    return pa.table(values)


def test_first_failing_stage_decides_and_numbers_are_kept() -> None:
    policy = Policy(
        PolicyConfig(too_small=Limit(min=384), no_person=Limit(min=1), low_entropy=None), ["header", "person"]
    )
    table = scored_table(
        3,
        ["header", "person"],
        short_side=pa.array([100, 500, 500], pa.int32()),
        aspect=pa.array([1.0, 1.0, 1.0], pa.float32()),
        person_count=pa.array([0, 0, 2], pa.int32()),
        person_short_side=pa.array([None, None, 400.0], pa.float32()),
        person_score=pa.array([None, None, 0.9], pa.float32()),
    )
    verdicts = policy.decide(table)
    assert verdicts.reason.tolist() == ["too_small", "no_person", None]
    assert verdicts.column.tolist() == ["short_side", "person_count", None]
    assert verdicts.score[:2].tolist() == [100, 0]
    assert verdicts.threshold[:2].tolist() == [384, 1]
    assert math.isnan(verdicts.score[2])
    assert verdicts.passed.tolist() == [False, False, True]


def test_a_missing_value_passes_and_an_unscored_row_is_not_judged() -> None:
    policy = Policy(PolicyConfig(too_small=None, aspect_ratio=None, head_pose=Limit(max=45)), ["head_pose"])
    table = scored_table(3, ["head_pose"], head_yaw=pa.array([None, 50.0, 50.0], pa.float32()))
    table = table.set_column(2, "scored_head_pose", pa.array([True, True, False]))
    assert policy.decide(table).reason.tolist() == [None, "head_pose", None]


def test_head_pose_limits_the_absolute_yaw() -> None:
    policy = Policy(PolicyConfig(head_pose=Limit(max=45)), ["head_pose"])
    table = scored_table(2, ["head_pose"], head_yaw=pa.array([-60.0, -30.0], pa.float32()))
    verdicts = policy.decide(table)
    assert verdicts.reason.tolist() == ["head_pose", None]
    assert verdicts.score[0] == 60


def test_a_problem_comes_before_the_limits_of_its_stage_and_after_earlier_ones() -> None:
    policy = Policy(PolicyConfig(too_small=Limit(min=384)), ["read", "header", "text_overlay"])
    table = scored_table(
        3,
        ["read", "header", "text_overlay"],
        short_side=pa.array([100, 500, None], pa.int32()),
        aspect=pa.array([1, 1, None], pa.float32()),
    )
    table = table.set_column(0, "problem", pa.array(["scorer_failed", "scorer_failed", "missing"]))
    table = table.set_column(1, "problem_stage", pa.array(["text_overlay", "text_overlay", "read"]))
    assert policy.decide(table).reason.tolist() == ["too_small", "scorer_failed", "missing"]
    # Without the scorer its problems do not count any more.
    without = Policy(PolicyConfig(too_small=Limit(min=384)), ["read", "header"])
    assert without.decide(table).reason.tolist() == ["too_small", None, "missing"]


def test_both_limits_name_the_one_that_was_broken() -> None:
    policy = Policy(PolicyConfig(too_small=Limit(min=10, max=20)), ["header"])
    table = scored_table(
        3, ["header"], short_side=pa.array([5, 15, 25], pa.int32()), aspect=pa.array([1, 1, 1], pa.float32())
    )
    verdicts = policy.decide(table)
    assert verdicts.reason.tolist() == ["too_small", None, "too_small"]
    assert verdicts.threshold[[0, 2]].tolist() == [10, 20]


def test_block_lists_opt_outs_and_licences() -> None:
    config = PolicyConfig(licence={"allowed": ["cc0-1.0"], "unknown": False})
    policy = Policy(config, ["safety"])
    table = scored_table(
        5,
        ["safety"],
        blocked_by=pa.array(["list", None, None, None, None], pa.string()),
        opt_out=pa.array([False, True, None, False, False]),
        licence=pa.array(["cc0-1.0", "cc0-1.0", "cc0-1.0", "cc-by-4.0", None], pa.string()),
    )
    assert policy.decide(table).reason.tolist() == ["blocked", "opted_out", None, "licence", "licence"]
    relaxed = Policy(PolicyConfig(blocked=False, opted_out=False), ["safety"])
    assert relaxed.decide(table).passed.all()


@pytest.mark.parametrize(
    "bad", [{"min": 2, "max": 1}, {}, {"minimum": 3}, {"min": float("nan")}, {"max": float("inf")}]
)
def test_limits_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Limit(**bad)


def test_a_rule_whose_scorer_is_not_configured_is_reported() -> None:
    policy = Policy(PolicyConfig(nsfw=Limit(max=0.5)), ["header", "screen"])
    assert policy.unmeasured_rules(["header", "screen"]) == ["nsfw"]
    # A default that has nothing to look at is no mistake of the user's.
    assert Policy(PolicyConfig(), ["header"]).unmeasured_rules(["header"]) == []


@given(
    value=st.one_of(st.none(), st.floats(0, 10, width=64)),
    low=st.one_of(st.none(), st.floats(0, 10)),
    high=st.one_of(st.none(), st.floats(0, 10)),
)
def test_row_and_table_agree_also_where_rounding_matters(
    value: float | None, low: float | None, high: float | None
) -> None:
    """The loop over bytes judges one row at a time, the ledger judges stored float32: they must never differ."""
    if (low is None and high is None) or (low is not None and high is not None and low > high):
        return
    policy = Policy(PolicyConfig(too_small=None, aspect_ratio=Limit(min=low, max=high)), ["header"])
    types = {"aspect": pa.float32()}
    column = pa.array([value], pa.float64()).cast(pa.float32(), safe=False)
    expected = bool(policy.failed("header", {"aspect": column})[0])
    assert policy.row_fails("header", {"aspect": value}, types) == expected


def test_stage_order_is_cheap_before_dear() -> None:
    assert list(STAGES[:3]) == ["read", "header", "screen"]
    assert STAGES.index("person") < STAGES.index("embedding") < STAGES.index("text_overlay")
    assert np.unique(STAGES).size == len(STAGES)


def test_a_bare_number_for_a_limit_says_how_to_give_it() -> None:
    with pytest.raises(ValidationError, match=r"give \.min=384 or \.max=384"):
        PolicyConfig(too_small=384)  # type: ignore[arg-type]
