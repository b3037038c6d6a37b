"""Fine-tuning under ZeRO-3 on two real gloo processes: the losses and the figures of one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.storage import Storage
from tests.conftest import ROOT, free_port
from tests.fixtures.finetuning import finetune_config, losses, run
from training.engine.checkpoint import complete_checkpoints, load_whole
from training.finetuning.trainer import MEASURED
from training.models import create, save_weights

STEPS = 3
TASKS = ("seg+normal",)
"""Together: one run is all that the time allows, and a head of its own needs nothing that this one does not."""


def config(task: str, kind: str, **changes: Any) -> Any:
    engine = {"kind": kind, "workers": 2 if kind == "zero3" else 1, "precision": "float32"}
    return finetune_config(task, steps=STEPS, engine=engine, data={"held_out": 3}, **changes)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks, and of one process; both begin with a backbone, keep it frozen, and train two heads on it."""
    base = tmp_path_factory.mktemp("zero")
    torch.manual_seed(9)
    save_weights(create("tiny", width=48, depth=3, heads=3, ffn_width=64), base / "backbone.safetensors")
    file = base / "specification.json"
    specification = [
        {"world": 2, "folder": str(base / f"{task} two"), "finetune": True,
         "config": config(task, "zero3", **more(base)[task]).model_dump(mode="json")}
        for task in TASKS
    ]  # fmt: skip
    file.write_text(json.dumps(specification))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.zero_pretrain", str(file), str(free_port())],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for task in TASKS:
        run(config(task, "single", **more(base)[task]), base / f"{task} one")
    return base


def more(base: Path) -> dict[str, dict[str, Any]]:
    weights = str(base / "backbone.safetensors")
    frozen = {"initial_weights": weights, "freeze_backbone": True, "head_start": "targets"}
    return {"seg+normal": {"model": frozen}}


def figures(folder: Path) -> list[dict[str, float]]:
    return [json.loads(path.read_bytes())["figures"] for path in sorted((folder / MEASURED).iterdir())]


@pytest.mark.parametrize("task", TASKS)
def test_losses_and_figures_are_those_of_one_process(base: Path, task: str) -> None:
    two, one = (losses(base / f"{task} {name}") for name in ("two", "one"))
    assert len(two) == STEPS
    for line, other in zip(two, one, strict=True):
        assert line["loss/total"] == pytest.approx(other["loss/total"], rel=1e-3)
    theirs, ours = figures(base / f"{task} two"), figures(base / f"{task} one")
    assert len(theirs) == 2  # untrained, and the checkpoint
    assert theirs[0] == pytest.approx(ours[0], rel=1e-4, nan_ok=True)
    assert theirs[-1] == pytest.approx(ours[-1], rel=0.05, abs=0.01, nan_ok=True)


def test_a_frozen_backbone_is_that_of_the_file_under_zero_too(base: Path) -> None:
    torch.manual_seed(9)
    backbone = create("tiny", width=48, depth=3, heads=3, ffn_width=64)
    storage = Storage(base / "seg+normal two")
    saved = load_whole(storage, complete_checkpoints(storage)[-1], "student/backbone.")
    for name, value in backbone.named_parameters():
        assert torch.equal(saved[name], value)
