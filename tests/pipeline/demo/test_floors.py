from __future__ import annotations

from dataclasses import replace

import pytest

from curation.reasons import Reason
from pipeline.demo.check import DuplicateLinks, Report, Score
from pipeline.demo.floors import EXACT, FLOORS, MIN_EXPECTED, failures, passes
from pipeline.demo.plan import KINDS
from pipeline.demo.truth import KEPT

LINKS = DuplicateLinks(1, 1, 0, 0, 0, 0)


def report(*scores: Score) -> Report:
    return Report(10, 10, 4, 6, (), (), (), (), scores, LINKS, ())


def test_every_label_of_the_pool_is_exact_or_has_a_floor() -> None:
    assert {kind.expected for kind in KINDS.values()} <= EXACT | set(FLOORS)
    assert not EXACT & set(FLOORS)
    assert set(FLOORS) - {KEPT} <= set(Reason)
    assert all(0 < value <= 1 for floor in FLOORS.values() for value in floor)


@pytest.mark.parametrize("label", sorted(EXACT))
def test_one_mistake_fails_an_exact_label(label: str) -> None:
    assert passes(report(Score(label, 30, 30, 30, 0)))
    assert not passes(report(Score(label, 30, 29, 29, 0)))
    assert not passes(report(Score(label, 30, 31, 30, 0)))
    assert not passes(report(Score(label, 0, 1, 0, 0)))


@pytest.mark.parametrize("label", sorted(FLOORS))
def test_a_model_may_miss_down_to_its_floor(label: str) -> None:
    precision, recall = FLOORS[label]
    assert passes(report(Score(label, 1000, 1000, 1000, 0)))
    low = round(1000 * recall) - 1
    assert f"recall {low / 1000:.3f}" in failures(report(Score(label, 1000, low, low, 0)))[0]
    low = round(1000 * precision) - 1
    assert f"precision {low / 1000:.3f}" in failures(report(Score(label, low, 1000, low, 0)))[0]
    assert passes(report(Score(label, MIN_EXPECTED - 1, 100, 1, 0)))


def test_scorer_failures_and_lost_rows_fail() -> None:
    assert "scorer_failed: 1 inputs" in failures(report(Score("scorer_failed", 0, 1, 0, 0)))[0]
    assert not passes(replace(report(), kept=5))
    assert not passes(replace(report(), extra=("x",)))
    assert "12 duplicates name a row that was not kept" in failures(
        replace(report(), links=replace(LINKS, not_kept=12))
    )
