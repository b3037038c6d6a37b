"""Settings of a probe."""

from __future__ import annotations

import pytest

from eval.probe.config import ProbeConfig


def test_a_warmup_as_long_as_the_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="would never reach its peak"):
        ProbeConfig(method="softmax", steps=100)
    assert ProbeConfig(steps=100).method == "ridge"  # which has no steps
