from __future__ import annotations

from collections import Counter

import pytest

from curation.reasons import Reason
from pipeline.demo.plan import CONTAINER_ROWS, KINDS, MIN_INPUTS, counts, plan
from pipeline.demo.truth import KEPT


@pytest.mark.parametrize("inputs", [100, 120, 777, 2000, 5000])
def test_the_plan_has_exactly_the_inputs_asked_for_and_every_kind(inputs: int) -> None:
    orders = plan(inputs)
    assert len(orders) == inputs - CONTAINER_ROWS
    assert [order.index for order in orders] == list(range(len(orders)))
    assert Counter(order.kind for order in orders) == counts(inputs)
    assert set(counts(inputs)) == set(KINDS)
    for order in orders:
        assert (order.origin is not None) is KINDS[order.kind].derived
        if order.origin is not None:
            assert orders[order.origin].kind == "person"


def test_families_of_the_demo_do_not_mix_exact_and_near_duplicates() -> None:
    families: dict[str, set[str]] = {}
    for order in plan(2000):
        families.setdefault(order.group, set()).add(KINDS[order.kind].expected)
    assert not any({Reason.EXACT_DUPLICATE, Reason.NEAR_DUPLICATE} <= labels for labels in families.values())
    assert all(
        KEPT in labels for labels in families.values() if labels & {Reason.EXACT_DUPLICATE, Reason.NEAR_DUPLICATE}
    )


def test_too_few_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match=str(MIN_INPUTS)):
        plan(MIN_INPUTS - 1)
