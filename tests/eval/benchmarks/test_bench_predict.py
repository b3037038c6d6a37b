"""The profile accounts for the whole pass, stage by stage."""

from __future__ import annotations

from pathlib import Path

from eval.benchmarks.bench_predict import random_predictor, stages, write_pictures


def test_every_stage_is_found_and_little_is_left(tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures", 2)
    seconds = stages(random_predictor("albedo", "tiny", 2), tmp_path / "pictures", tmp_path / "out")
    assert all(seconds[name] > 0 for name in ("read", "crop", "network", "decode output", "write", "overlay", "page"))
    assert seconds["other"] < 0.3 * sum(seconds.values())
    assert (tmp_path / "out/overlays/0001.jpg").is_file()
