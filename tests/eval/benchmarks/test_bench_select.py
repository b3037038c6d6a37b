"""The benchmark of selection ends with figures that are there, and with a plan, on real Ray."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eval.benchmarks import bench_select
from eval.benchmarks.bench_select import main
from eval.benchmarks.select_once import Cost, Task, select_here


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str) -> None:
    monkeypatch.setattr(
        sys, "argv", ["bench_select", "--json", "--data", str(tmp_path), "--chunk-rows", "200", *options]
    )
    main(select_here)


def test_figures_of_every_step_and_a_plan(
    ray_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        monkeypatch, tmp_path, "--sizes", "100", "1000", "--embedded", "500", "--dimensions", "64", "--levels", "20",
        "3", "--plan", "--calibrate", "32768", "512",
    )  # fmt: skip
    shown = capsys.readouterr()
    figures = {figure["name"]: figure for figure in map(json.loads, shown.out.splitlines())}
    for name in ("candidates", "keys", "links-bytes", "links-bands", "resolved", "stars", "all"):
        figure = figures[f"hashes, 1,000 rows, {name}"]
        # Against ten times fewer rows.
        assert figure["limit"] == figures[f"hashes, 100 rows, {name}"]["ours"]
        assert figure["detail"]["bytes a row"] > 0
    assert figures["hashes, 1,000 rows, all"]["goal"] == "at most 20"
    for name in ("sample", "train", "vectors", "links-vectors", "assigned", "cells"):
        assert f"embeddings, 500 rows, {name}" in figures
    assert figures["hashes, 1,000 rows, resolved in parallel, components"]["detail"]["bins"] == 5
    for name in (
        "hashes, 1,000 rows, copies dropped for their origin", "hashes, 1,000 rows, same as in memory",
        "hashes, 1,000 rows, resolved in parallel, same as in memory", "embeddings, 500 x 64, same as in memory",
        "embeddings, 500 x 64, rows after balancing",
    ):  # fmt: skip
        assert figures[name]["ratio"] == 1, name
    assert figures["hashes, memory of driver, 1,000 rows against 100"]["unit"] == "MiB"
    assert "4,000,000,000 rows, radius 8, 768 dimensions" in shown.err
    assert not list(tmp_path.iterdir())


def test_a_selection_that_differs_from_the_kernels_fails(
    ray_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrower(task: Task) -> Cost:
        return select_here(replace(task, config={"near_duplicates": {"radius": 1}}))

    monkeypatch.setattr(sys, "argv", ["bench_select", "--data", str(tmp_path), "--sizes", "100", "--embedded"])
    with pytest.raises(SystemExit, match="do not agree"):
        main(narrower)


def test_a_plan_needs_both_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path, "--sizes", "--plan")
    assert bench_select.SEARCH > 10**1.5
