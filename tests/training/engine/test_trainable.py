"""Learning rates of groups."""

from __future__ import annotations

from training.engine.trainable import set_rates


def test_heads_have_a_rate_of_their_own_and_layers_a_scale() -> None:
    groups = [{"head": True}, {"head": False}, {}, {"scale": 0.5}, {"scale": 0.5, "head": True}]
    set_rates(groups, 0.1, 0.04)
    assert [group["lr"] for group in groups] == [0.04, 0.1, 0.1, 0.05, 0.02]
