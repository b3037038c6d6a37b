"""The benchmark of the encoder compares models that compute the same thing, and ends with every figure."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from eval.benchmarks import bench_backbone
from tests.fixtures.slow_encoder import randomise
from training.models.backbone import Backbone


def test_both_sides_compute_the_same_features() -> None:
    config = bench_backbone.cut("sapiens2_0.4b", 3, (32, 48)).replace(rope_dtype="float32")
    assert [config.kv_heads(block) for block in range(3)] == [16, 8, 16]
    backbone = Backbone(config)
    randomise(backbone)
    images = torch.randn(1, 3, 32, 48, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = bench_backbone.timm_twin("sapiens2_0.4b", backbone).eval().forward_features(images)  # type: ignore[operator]
        torch.testing.assert_close(backbone(images)[0], expected, atol=1e-4, rtol=0)


def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--json --depth 1 --image 128 64 --rounds 1 --grouped-model sapiens2_0.4b"
    monkeypatch.setattr(sys, "argv", ["bench_backbone", *arguments.split()])
    bench_backbone.main()
    figures = {figure["name"]: figure for figure in map(json.loads, capsys.readouterr().out.splitlines())}
    for dtype in ("float32", "bfloat16"):
        for what in ("forward", "forward + backward"):
            assert figures[f"sapiens2_0.1b, 1 blocks, {what}, {dtype}, against timm"]["ratio"] > 0
    assert figures["sapiens2_0.1b, 1 blocks, forward of 8 of 32 tokens, against all"]["goal"] == "at least 3.3"
    for what in ("forward", "forward + backward"):
        repeats = figures[f"sapiens2_0.4b, attention of 16 heads over 8, 41 tokens, {what}, against repeats"]
        assert repeats["detail"]["MB of repeats"] == pytest.approx(2 * 41 * 1024 * 4 / 1e6)
