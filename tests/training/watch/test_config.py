"""The `watch` section."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from training.watch.config import WatchConfig


def test_the_guard_is_a_section_of_it() -> None:
    config = WatchConfig.model_validate({"every": 5, "guard": {"on_nonfinite": "skip"}})
    assert (config.every, config.guard.on_nonfinite, config.guard.on_spike) == (5, "skip", "ignore")
    assert WatchConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    "fields", [{"every": 0}, {"pictures_every": -1}, {"peak_flops": 0}, {"guard": {"on_nan": "stop"}}, {"log": 1}]
)
def test_wrong_values_are_errors(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WatchConfig.model_validate(fields)


def test_every_field_says_what_it_is() -> None:
    assert all(field.description for field in WatchConfig.model_fields.values())
