"""What the card says of a configuration: limits that follow from it, and no places or secrets."""

from __future__ import annotations

from typing import Any

from pipeline.card import known_limits, shown_selection
from pipeline.config import PopulaceConfig, parse_config


def config(**sections: Any) -> PopulaceConfig:
    return parse_config({"output": "run", "source": {"kind": "folder", "path": "pool"}, **sections})


def limits(**sections: Any) -> str:
    return "\n".join(known_limits(config(**sections)))


def test_limits_follow_the_selection() -> None:
    assert "mirrored, rotated and strongly cropped copies are not" in limits()
    mirrored = limits(select={"near_duplicates": {"mirrored": True}})
    assert "rotated and strongly cropped" in mirrored
    assert "mirrored" not in mirrored
    assert "were not searched for by perceptual hash" in limits(select={"near_duplicates": None})
    assert "cosine 0.97" in limits(select={"semantic_duplicates": {"threshold": 0.97}})
    assert "may contain pictures of test sets" in limits()
    reference = {"name": "val", "table": "val.parquet", "threshold": None}
    assert "test sets" not in limits(select={"references": [reference]})


def test_limits_follow_the_scorers_and_the_policy() -> None:
    assert "people seen from behind" in limits(scorers={"person": {"kind": "cascade"}})
    assert "No person detector was run" in limits(scorers={"person": None})
    assert "Licences were recorded" in limits()
    assert "Licences were recorded" not in limits(policy={"licence": {"allowed": ["cc0-1.0"]}})


def test_references_are_shown_by_name_and_limit_only() -> None:
    secret = "s3://me:hunter2@bucket/set"
    shown = shown_selection(
        config(
            select={
                "references": [{"name": "val", "source": {"kind": "folder", "path": secret}, "threshold": None}],
                "against": ["day1/shards/manifest.json"],
            }
        )
    )
    assert shown["references"] == {"val": {"reason": "contamination", "exact": True, "radius": 8, "threshold": None}}
    assert shown["against"] == 1
    assert "hunter2" not in str(shown)
