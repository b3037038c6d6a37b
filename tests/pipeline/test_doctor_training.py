"""The doctor on the pretrain section: what it needs of this machine, before anything starts."""

from __future__ import annotations

from pathlib import Path

import yaml

from pipeline.doctor import Finding, diagnose
from pipeline.doctor_training import batch_bytes, checkpoint_bytes
from tests.fixtures.pretraining import make_corpus, pretrain_config, run, settings


def findings(tmp_path: Path, **changes: object) -> dict[str, Finding]:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"output": str(tmp_path / "run"), "pretrain": settings(None, **changes)}))
    return {finding.check: finding for finding in diagnose(str(recipe)) if finding.check.startswith("pretrain")}


def test_shards_that_are_there_are_counted(tmp_path: Path) -> None:
    make_corpus(tmp_path / "run/shards")
    found = findings(tmp_path)
    assert found["pretrain corpus"].found == "this run's own shards: 40 images in 4 shards"
    assert all(finding.ok for finding in found.values())


def test_missing_shards_are_a_problem_with_a_way_out(tmp_path: Path) -> None:
    found = findings(tmp_path)["pretrain corpus"]
    assert not found.ok
    assert "run `populace curate`" in found.found


def test_checkpoints_that_do_not_fit_are_a_problem(tmp_path: Path) -> None:
    make_corpus(tmp_path / "run/shards")
    found = findings(tmp_path, steps=10**9, checkpoint={"keep_every": 1})["pretrain disk"]
    assert not found.ok
    assert "keep fewer" in found.fix


def test_the_size_of_a_checkpoint_is_that_of_the_files(tmp_path: Path) -> None:
    make_corpus(tmp_path / "shards")
    config = pretrain_config(tmp_path / "shards", steps=3)
    outcome = run(config, tmp_path / "run")
    (folder,) = (tmp_path / "run").glob(f"{outcome.checkpoint}")
    whole = sum(path.stat().st_size for path in folder.glob("rank-*.safetensors"))
    assert checkpoint_bytes(config) < whole < checkpoint_bytes(config) + 100_000  # the names, besides


def test_views_wait_in_shared_memory(tmp_path: Path) -> None:
    config = pretrain_config(data={"workers": 3, "prefetch": 2}, batch={"size": 8, "micro": 4})
    one = 3 * (2 * 64 * 48 + 4 * 32 * 32)
    assert batch_bytes(config) == one * 4 * 3 * 3
    assert batch_bytes(pretrain_config()) == 0
