"""Under DeepSpeed's zero.Init two processes hold half of the encoder each, and it trains like a whole one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.zero_worker import SEED, config, inputs
from training.models.backbone import Backbone
from training.models.rope import rope_periods

ROOT = Path(__file__).resolve().parents[3]
WORLD = 2


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What either process saw."""
    folder = tmp_path_factory.mktemp("zero")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "tests.fixtures.zero_worker", str(WORLD), str(port), str(folder)]
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


def whole(dtype: torch.dtype) -> Backbone:
    torch.manual_seed(SEED)
    return Backbone(config(), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_process_holds_its_share(reports: list[dict[str, Any]], dtype: str) -> None:
    for report in reports:
        seen = report[dtype]
        assert seen["left whole"] == []
        assert seen["all"] == sum(parameter.numel() for parameter in whole(torch.float32).parameters())
        # Shares are padded to whole elements of every parameter.
        assert seen["all"] / WORLD <= seen["here"] < seen["all"] / WORLD + len(seen["weights"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_initial_weights_are_drawn_before_they_are_taken_apart(reports: list[dict[str, Any]], dtype: str) -> None:
    """Process 0 draws them, in the order of the constructor, so they are those of a whole encoder."""
    expected = dict(whole(getattr(torch, dtype)).named_parameters())
    for report in reports:
        assert report[dtype]["weights"].keys() == expected.keys()
        for name, value in report[dtype]["weights"].items():
            assert value.dtype == getattr(torch, dtype), name
            if dtype == "float32":
                assert torch.equal(value, expected[name]), name
            else:
                assert value.ndim == 1 or 0.01 < float(value.float().std()) < 0.03, name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_periods_are_neither_taken_apart_nor_cast(reports: list[dict[str, Any]], dtype: str) -> None:
    for report in reports:
        assert report[dtype]["periods"].dtype == torch.bfloat16
        assert torch.equal(report[dtype]["periods"], rope_periods(config()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_features_and_one_step_equal_those_of_the_whole_encoder(reports: list[dict[str, Any]], dtype: str) -> None:
    backbone = whole(getattr(torch, dtype))
    backbone.load_state_dict(reports[0][dtype]["weights"], strict=False)
    images, keep = inputs()
    (features,) = backbone(images.to(getattr(torch, dtype)), keep)
    features.float().square().mean().backward()
    torch.optim.SGD(backbone.parameters(), lr=0.1).step()
    tolerance = {"atol": 1e-6, "rtol": 1e-5} if dtype == "float32" else {"atol": 2e-3, "rtol": 2e-2}
    for report in reports:
        torch.testing.assert_close(report[dtype]["features"], features.detach(), **tolerance)
        moved = 0
        for name, parameter in backbone.named_parameters():
            before, after = report[dtype]["weights"][name], report[dtype]["stepped"][name]
            torch.testing.assert_close(after, parameter.detach(), **tolerance)
            moved += int(not torch.equal(before, after))
        assert moved > 0.6 * len(report[dtype]["weights"])
