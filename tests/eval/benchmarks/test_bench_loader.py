"""The benchmark of the loader lets both sides do the same work, and prints every figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.benchmarks import bench_loader
from eval.benchmarks.common import Report
from tests.fixtures.exports import export
from training.data.views import ViewsConfig

VIEWS = ViewsConfig(global_size=(32, 32), local_size=(16, 16), colour={"blur_kernel": 3})


def test_both_sides_make_the_same_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(tmp_path / "a", [8, 8], size=(300, 240))
    work = bench_loader.Work(tmp_path / "a", VIEWS, 16)
    assert [place for place, *_ in work.places()] == list(range(16))
    ours = bench_loader.ours(work, 0)
    bare = bench_loader.bare(bench_loader.Bare(work), work.places())
    views = 3 * (2 * 32 * 32 + 4 * 16 * 16) + 2 * 8 * (4 - 3)
    assert ours.rows == bare.rows == 16
    assert ours.counts == bare.counts == {"bytes": 16 * views}
    bench_loader.loading(Report(as_json=True), work, workers=0, rounds=1)
    figures = {figure["name"]: figure for figure in map(json.loads, capsys.readouterr().out.splitlines())}
    assert figures["loader in the training process, against read + decode + views"]["goal"] == "at least 0.9"
    assert len(figures) == 3
    assert all(figure["ratio"] > 0 for figure in figures.values())


def test_pictures_are_exported_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    for number in range(9):
        (tmp_path / "pool" / f"{number}.jpg").write_bytes(bytes([number]) * (1000 + number))
    shards = bench_loader.export(tmp_path / "shards", sorted((tmp_path / "pool").glob("*.jpg")))
    places = bench_loader.Work(shards, VIEWS, 18).places()
    assert len({tar for _, tar, _, _ in places}) == 2
    contents = [Path(tar).read_bytes()[offset : offset + size] for _, tar, offset, size in places]
    assert sorted(contents[:9]) == [bytes([number]) * (1000 + number) for number in range(9)]


def test_growth_of_lookups(capsys: pytest.CaptureFixture[str]) -> None:
    bench_loader.growth(Report(as_json=False), 200_000)
    assert "finding a place among 2,000,000 samples, against 200,000: ours" in capsys.readouterr().out
