"""The configuration of balancing says what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from curation.balance import BalanceConfig


def test_a_budget_or_a_share() -> None:
    assert BalanceConfig(budget=10).rows(100) == 10
    assert BalanceConfig(budget=1000).rows(100) == 100
    assert BalanceConfig(share=0.29).rows(100) == 29  # 0.29 * 100 is 28.999... in binary
    assert BalanceConfig(share=1.0).rows(7) == 7
    assert BalanceConfig(share=0.5).rows(0) == 0
    assert BalanceConfig(share=1e-05).rows(10**9) == 10_000


def test_yaml_values_are_taken() -> None:
    config = BalanceConfig.model_validate(
        {
            "share": 0.25,
            "levels": [64, 8],
            "strata": [{"column": "head_yaw", "edges": [-15, 15]}],
            "strata_order": "inside",
        }
    )
    assert config.levels == (64, 8)
    assert config.strata[0].edges == (-15.0, 15.0)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({}, "got neither"),
        ({"budget": 5, "share": 0.5}, "got both"),
        ({"budget": 0}, "greater than or equal to 1"),
        ({"share": 1.5}, "less than or equal to 1"),
        ({"share": 0}, "greater than 0"),
        ({"budget": 5, "levels": []}, "at least 1 item"),
        ({"budget": 5, "levels": [4, 4]}, "strictly decreasing"),
        ({"budget": 5, "levels": [4, 8]}, "got 8 above 4"),
        ({"budget": 5, "levels": [4, 0]}, "1 or more"),
        ({"budget": 5, "pick": "best"}, "'random', 'nearest' or 'farthest'"),
        ({"budget": 5, "seed": -1}, "seed"),
        ({"budget": 5, "clusters": 5}, "clusters"),
        ({"budget": 5, "strata": [{"column": "a", "edges": [1]}, {"column": "a", "edges": [2]}]}, "comes twice"),
    ],
)
def test_bad_values_are_errors(values: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        BalanceConfig(**values)
