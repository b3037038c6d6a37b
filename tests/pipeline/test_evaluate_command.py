"""`populace evaluate` measures what `populace predict` writes, and agrees with fine-tuning about its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from tests.fixtures import finetuning
from training.watch.json_values import restored

pytestmark = pytest.mark.usefixtures("one_thread")

Captured = pytest.CaptureFixture[str]


def recipe(output: Path, kind: str) -> Path:
    size = [192, 144] if kind == "pointmap" else [64, 48]  # its scale branch needs a grid
    settings = finetuning.settings(
        kind, steps=1, size=size, checkpoint={"every": 1}, optimiser={"warmup": 0},
        data={"held_out": 3, "people": {"size": size}},
    )  # fmt: skip
    path = output.parent / f"{output.name}.yaml"
    path.write_text(yaml.safe_dump({"output": str(output), "finetune": settings}))
    return path


def evaluated(capsys: Captured, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["evaluate", *arguments, "--json", "--quiet"]) == 0
    record: dict[str, Any] = restored(json.loads(capsys.readouterr().out))
    return record


@pytest.mark.parametrize("task", finetuning.TASKS)
def test_figures_are_those_that_fine_tuning_measured(task: str, tmp_path: Path, capsys: Captured) -> None:
    run = tmp_path / "run"
    path = recipe(run, task)
    assert main(["finetune", str(path), "--quiet"]) == 0
    measured = restored(json.loads((run / f"finetune-{task}/measured/step-000000001.json").read_bytes()))
    record = evaluated(capsys, task, "--weights", str(run), "--no-flip", "--batch-size", "2")
    assert record["metric"] == measured["metric"]
    assert record["pictures"] == measured["pictures"] == 3
    assert record["figures"] == pytest.approx(measured["figures"], rel=1e-3, abs=2e-4, nan_ok=True)
    # The exported file, with the configuration's pictures, says the same; the flip test does not.
    if task in ("pose", "normal"):
        weights = str(tmp_path / "w.safetensors")
        assert main(["export-weights", str(run), "--task", task, "--output", weights]) == 0
        arguments = [task, "--weights", weights, "--data", str(path), "--size", "64x48"]
        again = evaluated(capsys, *arguments, "--no-flip")
        assert again["figures"] == pytest.approx(record["figures"], rel=1e-3, abs=2e-4, nan_ok=True)
        flipped = evaluated(capsys, *arguments, "--flip")
        assert flipped["figures"] != pytest.approx(record["figures"], rel=1e-6, nan_ok=True)
        fewer = evaluated(capsys, *arguments, "--limit", "1", "--split", "train", "--mean", "1")
        assert fewer["pictures"] == 1
        if task == "normal":  # of the one picture that it knows, with the mean of all places mixed in
            assert fewer["mean_predictor"]["mean_deg"] < fewer["figures"]["mean_deg"]


def refused(capsys: Captured, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["evaluate", *arguments, "--quiet"]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    return found.err


def test_what_cannot_be_measured_is_said_in_one_line(tmp_path: Path, capsys: Captured) -> None:
    missing = str(tmp_path / "none.safetensors")
    path = recipe(tmp_path / "run", "normal")
    assert "give --data" in refused(capsys, "normal", "--weights", missing)
    assert "none.safetensors" in refused(capsys, "normal", "--weights", missing, "--data", str(path))
    assert "--detected needs a detector" in refused(capsys, "pose", "--weights", missing, "--detected")
    empty = tmp_path / "empty.yaml"
    empty.write_text("output: somewhere\npretrain: {}\n")
    assert "no section finetune" in refused(capsys, "seg", "--weights", missing, "--data", str(empty))
