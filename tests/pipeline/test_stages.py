"""Stages: their order, who shares a worker, and what a changed model or setting makes stale."""

from __future__ import annotations

import pytest

from curation.decode import DecodeConfig
from curation.scorers.base import ResourceConfig, Scorer
from pipeline.stages import StageSet
from tests.fixtures.counting import (
    BlueScorer,
    BrightnessScorer,
    CaptionScorer,
    MeanScorer,
    ScoreReader,
    VectorScorer,
    stage_set,
)

GPU = ResourceConfig(num_cpus=2, num_gpus=0.5)
CPU = ResourceConfig()


def scorers(resources: ResourceConfig = CPU, **models: str) -> list[Scorer]:
    return [
        kind(model=models.get(kind.name, "one"), resources=resources)
        for kind in (BlueScorer, ScoreReader, BrightnessScorer, VectorScorer, MeanScorer, CaptionScorer)
    ]


def group_names(stages: StageSet) -> list[list[str]]:
    return [[stage.name for stage in group] for group in stages.groups()]


def test_stages_are_ordered_from_cheap_to_dear_whatever_the_order_given() -> None:
    order = ["read", "header", "screen", "safety", "person", "embedding", "aesthetic", "realism", "text_overlay"]
    assert stage_set(*scorers()).names == order
    assert stage_set(*reversed(scorers())).names == order
    assert stage_set(*scorers()).fingerprints == stage_set(*reversed(scorers())).fingerprints


def test_columns_and_weights_are_those_of_the_scorers() -> None:
    stages = stage_set(MeanScorer())
    assert list(stages.columns["person"]) == ["person_count", "person_score", "person_short_side"]
    assert "sha256" in stages.columns["header"]
    assert "phash" in stages.columns["screen"]
    assert stages.columns["read"] == {}
    assert [stage.name for stage in stages.after("screen")] == ["person"]
    assert stages.after("person") == []


def test_equal_resources_share_a_worker() -> None:
    assert group_names(stage_set(*scorers())) == [
        ["read", "header", "screen", "safety", "person", "embedding", "aesthetic", "realism", "text_overlay"]
    ]


def test_other_resources_split_and_scorers_of_columns_join_what_is_before_them() -> None:
    mixed = [
        CaptionScorer(resources=GPU), MeanScorer(resources=GPU), VectorScorer(resources=GPU), BrightnessScorer(),
        ScoreReader(), BlueScorer(),
    ]  # fmt: skip
    groups = stage_set(*mixed).groups()
    assert group_names(stage_set(*mixed)) == [
        ["read", "header", "screen", "safety"], ["person", "embedding", "aesthetic", "realism"], ["text_overlay"],
    ]  # fmt: skip
    assert [group[0].resources for group in groups] == [CPU, GPU, CPU]


def test_bytes_only() -> None:
    assert group_names(stage_set()) == [["read", "header", "screen"]]


def test_a_missing_column_is_an_error_that_says_who_needs_what() -> None:
    with pytest.raises(
        ValueError, match=r"scorers\.realism \(counting\) needs the column 'person_score'.*Configure"
    ) as caught:
        stage_set(ScoreReader(), VectorScorer())
    assert "configured stages: read, header, screen, embedding" in str(caught.value)


def test_a_later_stage_does_not_count_as_a_provider() -> None:
    class NeedsText(BrightnessScorer):
        needs = ("text_share",)

    with pytest.raises(ValueError, match="needs the column 'text_share', which no stage before it gives"):
        stage_set(NeedsText(), BlueScorer())


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("person", {"person", "realism"}),
        ("embedding", {"embedding"}),
        ("safety", {"safety"}),
        ("aesthetic", {"aesthetic"}),
        ("realism", {"realism"}),
        ("text_overlay", {"text_overlay"}),
    ],
)
def test_a_changed_model_makes_itself_and_its_dependants_stale_and_nothing_else(changed: str, stale: set[str]) -> None:
    before = stage_set(*scorers()).fingerprints
    after = stage_set(*scorers(**{changed: "two"})).fingerprints
    assert {name for name in before if before[name] != after[name]} == stale


def test_a_changed_code_version_counts_as_a_changed_model() -> None:
    class Newer(MeanScorer):
        version = 2

    before, after = stage_set(MeanScorer(), BlueScorer()), stage_set(Newer(), BlueScorer())
    assert [stage.name for stage in before if before.fingerprints[stage.name] != after.fingerprints[stage.name]] == [
        "person"
    ]


def test_batch_size_and_resources_change_no_score() -> None:
    before = stage_set(*scorers())
    after = stage_set(*scorers(GPU))
    assert before.fingerprints == after.fingerprints
    assert stage_set(MeanScorer(batch_size=1)).fingerprints == stage_set(MeanScorer()).fingerprints


def test_the_decode_policy_is_behind_pixels_and_not_behind_the_listing() -> None:
    before = stage_set(*scorers()).fingerprints
    after = stage_set(*scorers(), decode=DecodeConfig(work_side=333)).fingerprints
    stale = {name for name in before if before[name] != after[name]}
    # aesthetic reads the screen's columns, realism those of person; safety reads the listing only.
    assert stale == {"header", "screen", "person", "embedding", "aesthetic", "realism", "text_overlay"}


def test_another_scorer_beside_it_changes_nothing() -> None:
    alone, together = stage_set(MeanScorer()).fingerprints, stage_set(*scorers()).fingerprints
    assert {name: together[name] for name in alone} == alone
