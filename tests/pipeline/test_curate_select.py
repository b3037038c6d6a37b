"""A whole run that selects: grows from an earlier corpus, keeps clear of an evaluation set, and spreads a budget."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from curation.manifest import read_index, read_manifest, verify_shards
from pipeline.config import ConfigError, parse_config
from pipeline.curate import CurateResult, curate
from pipeline.progress import RunProgress
from tests.fixtures import pool

pytestmark = pytest.mark.usefixtures("ray_cluster")

FIRST, ALL = 40, 100
BALANCE = {"share": 0.5, "levels": [4, 2], "strata": [{"column": "brightness", "edges": [0.5]}]}


def run(source: Path, output: Path, **select: Any) -> CurateResult:
    data = pool.config(source, output, select=select)
    if "balance" in select:
        data["scorers"] = {"embedding": {"kind": "efficientnet_lite0"}}
    return curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True))


def ledger(output: Path) -> list[dict[str, Any]]:
    return pa.concat_tables([pq.read_table(path) for path in sorted((output / "ledger").glob("*"))
                             if path.suffix == ".parquet"]).to_pylist()  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of one pool, an evaluation set of re-encoded pictures of the second, and the first day's corpus."""
    root = tmp_path_factory.mktemp("days")
    pool.write_folder(root / "day1", FIRST)
    pool.write_folder(root / "both", ALL)
    (root / "eval").mkdir()
    for number in (50, 61):
        (root / "eval" / f"{number}.webp").write_bytes(pool.encode(pool.picture(number), kind="WEBP"))
    (root / "eval" / "broken.jpg").write_bytes(b"\xff\xd8 broken")
    run(root / "day1", root / "run1")
    return root


def test_a_corpus_grows_by_what_is_new(folder: Path) -> None:
    manifest = str(folder / "run1/shards/manifest.json")
    result = run(folder / "both", folder / "run2", against=[manifest], references=[
        {"name": "eval", "source": {"kind": "folder", "path": str(folder / "eval")}, "radius": 4, "threshold": None}
    ])  # fmt: skip
    first, rows = ledger(folder / "run1"), ledger(folder / "run2")
    kept_before = {row["id"]: row for row in first if row["verdict"] == "kept"}
    old = [row for row in rows if row["reason"] == "in_corpus"]
    # Everything that passed the policy on the first day is there already, kept then or a duplicate of what was.
    passed = {row["uri"] for row in first if row["verdict"] == "kept" or row["duplicate_of"] is not None}
    assert {row["uri"] for row in old} == passed
    for row in old:
        assert row["reference"] == "run1"
        keeper = kept_before[row["duplicate_of"]]
        assert row["distance"] == (row["phash"] ^ keeper["phash"]).bit_count() <= 4
    # The evaluation set's pictures are gone with all their copies.
    gone = {row["uri"]: row for row in rows if row["reason"] == "contamination"}
    assert set(gone) == {"01/00050.jpg", "01/00053.jpg", "01/00055.jpg", "01/00061.jpg"}
    assert {row["reference"] for row in gone.values()} == {"eval"}
    assert result.kept + sum(result.dropped.values()) == ALL

    # Together they are what one run over everything keeps, less the evaluation set.
    run(folder / "both", folder / "whole")
    whole = {row["uri"] for row in ledger(folder / "whole") if row["verdict"] == "kept"}
    grown = {row["uri"] for row in [*first, *rows] if row["verdict"] == "kept"}
    families = {uri: row["phash"] for uri, row in ((row["uri"], row) for row in rows)}
    assert {families[uri] for uri in grown} == {families[uri] for uri in whole - set(gone)}

    merged = folder / "run2/shards/merged.json"
    assert read_manifest(merged)["samples"] == len(kept_before) + result.kept
    assert len(read_index(merged)) == len(kept_before) + result.kept
    assert verify_shards(merged) == []
    # A third day sees both through the merged manifest, and finds nothing new.
    third = run(folder / "both", folder / "run3", against=[str(merged)])
    assert third.kept == 2  # one of each family of the evaluation set, which no corpus has
    # Moved together they stay whole.
    shutil.copytree(folder / "run1/shards", folder / "moved/run1/shards")
    shutil.copytree(folder / "run2/shards", folder / "moved/run2/shards")
    assert verify_shards(folder / "moved/run2/shards/merged.json") == []


def test_a_budget_is_spread_and_every_row_says_where_it_was_counted(folder: Path) -> None:
    result = run(folder / "day1", folder / "balanced", balance=BALANCE)
    rows = ledger(folder / "balanced")
    counted = [row for row in rows if row["cluster"] is not None]
    over = [row for row in rows if row["reason"] == "over_represented"]
    assert {row["verdict"] for row in counted} == {"kept", "dropped"}
    assert result.kept == len(counted) // 2 == len(counted) - len(over)
    assert all("rows of its cell stay" in row["detail"] for row in over)
    summary = json.loads((folder / "balanced/selection/summary.json").read_text())["balance"]
    assert summary["rows"] == {"before": len(counted), "after": result.kept}
    named = {item["name"]: item["rows"]["before"] for item in summary["strata"]["each"]}
    assert named == dict(Counter(row["stratum"] for row in counted))
    for row in counted:
        assert row["stratum"] == ("brightness < 0.5" if row["brightness"] < 0.5 else "brightness >= 0.5")


def test_what_cannot_be_selected_is_said_before_the_run(folder: Path, tmp_path: Path) -> None:
    def refused(match: str, **select: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            curate(
                parse_config(pool.config(folder / "day1", tmp_path / "run", select=select)),
                RunProgress(Console(quiet=True), quiet=True),
            )
        assert not (tmp_path / "run").exists()

    empty = tmp_path / "empty"
    empty.mkdir()
    refused("no scorer gives embeddings", balance=BALANCE)
    refused("no scorer gives embeddings", semantic_duplicates={})
    refused("cannot be read", against=[str(tmp_path / "manifest.json")])
    refused("select.references: empty: .*holds no", references=[
        {"name": "empty", "source": {"kind": "folder", "path": str(empty)}, "threshold": None}
    ])  # fmt: skip
    pq.write_table(pa.table({"sha256": pa.array([], pa.string())}), tmp_path / "none.parquet")
    refused("none.* has no usable row", references=[
        {"name": "none", "table": str(tmp_path / "none.parquet"), "threshold": None}
    ])  # fmt: skip
    refused("is set.*no scorer|threshold", references=[{"name": "x", "table": str(tmp_path / "x.parquet")}])
