"""What selection is asked to do is checked before the run, against what the run measures."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from curation.balance import BalanceConfig, StratumConfig
from curation.dedup import NeighbourConfig
from pipeline.select import SelectConfig, check_quality, check_select
from pipeline.select.references import ReferenceConfig
from tests.fixtures.counting import MeanScorer, VectorScorer, stage_set
from tests.fixtures.selection import PoseScorer

BARE = stage_set(MeanScorer())
FULL = stage_set(MeanScorer(), PoseScorer(), VectorScorer())


def test_quality_columns_are_checked_before_the_run() -> None:
    check_quality(("pixels", "bytes", "person_score", "sharpness"), BARE)
    check_quality((), BARE)
    with pytest.raises(ValueError, match=r"select\.quality: 'persn_score' is no number.*did you mean person_score\?"):
        check_quality(("pixels", "persn_score"), BARE)
    for name in ("format", "phash_degenerate", "phash", "phash_mirrored", "aesthetic", "id"):
        with pytest.raises(ValueError, match=f"'{name}' is no number that this run measures"):
            check_quality((name,), BARE)


def test_what_needs_embeddings_says_so() -> None:
    for name, section in {"semantic_duplicates": NeighbourConfig(), "balance": BalanceConfig(budget=5)}.items():
        config = SelectConfig(**{name: section})
        assert config.needs_embedding
        check_select(config, FULL)
        with pytest.raises(
            ValueError, match=rf"select\.{name} is set, and no scorer gives embeddings: configure .*null"
        ):
            check_select(config, BARE)
    assert not SelectConfig().needs_embedding
    check_select(SelectConfig(), BARE)


def test_strata_references_and_quality_are_looked_at() -> None:
    def balanced(column: str) -> SelectConfig:
        return SelectConfig(balance=BalanceConfig(budget=5, strata=(StratumConfig(column=column, edges=(0.0,)),)))

    check_select(balanced("head_yaw"), FULL)
    with pytest.raises(ValueError, match=r"no column 'head_yav': did you mean head_yaw\?"):
        check_select(balanced("head_yav"), FULL)
    reference = ReferenceConfig(name="eval", table="nowhere.parquet")
    with pytest.raises(ValueError, match=r"eval has threshold 0\.9, and no scorer gives embeddings"):
        check_select(SelectConfig(references=(reference,)), BARE)
    with pytest.raises(ValueError, match="'realism' is no number"):
        check_select(SelectConfig(quality=("realism",)), FULL)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"near_duplicates": {"radius": 9}}, "less than or equal to 8"),
        ({"near_duplicates": {"radius": -1}}, "greater than or equal to 0"),
        ({"near_duplicates": {"raduis": 4}}, "Extra inputs are not permitted"),
        ({"semantic_duplicates": {"threshold": 1.5}}, "less than or equal to 1"),
        ({"balance": {"levels": [4]}}, "budget .* and share"),
        ({"against": ["a", "a"]}, "a manifest is listed twice; list each corpus once"),
        ({"references": [{"name": "eval", "table": "t"}] * 2}, "the name 'eval' is given twice"),
        ({"exact_duplicate": True}, "Extra inputs are not permitted"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SelectConfig.model_validate(values)


def test_null_switches_a_step_off() -> None:
    off = SelectConfig.model_validate({"exact_duplicates": False, "near_duplicates": None, "quality": []})
    assert (off.exact_duplicates, off.near_duplicates, off.semantic_duplicates, off.balance) == (
        False,
        None,
        None,
        None,
    )
    on = SelectConfig()
    assert on.exact_duplicates
    assert on.near_duplicates is not None
    assert (on.near_duplicates.radius, on.near_duplicates.mirrored) == (4, False)
