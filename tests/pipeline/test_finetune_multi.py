"""Several tasks in one run: its folder, its figures, and each head's weights in the names of released models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from pipeline.cli import main
from pipeline.export_weights import export_weights
from pipeline.storage import Storage
from tests.fixtures import finetuning
from training.engine.checkpoint import complete_checkpoints, load_whole
from training.models import create, load_weights

Captured = pytest.CaptureFixture[str]
SIZES = {"width": 48, "depth": 3, "heads": 3, "ffn_width": 64, "image_size": (64, 48)}
STEPS = 3


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that has finished in `run` beside it. Not to be changed."""
    folder = tmp_path_factory.mktemp("multi")
    settings = finetuning.settings("normal+seg", steps=STEPS, data={"held_out": 2})
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"output": str(folder / "run"), "finetune": settings}))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert main(["finetune", str(path), "--quiet"]) == 0
    torch.set_num_threads(before)
    return path


def test_figures_of_all_tasks_are_in_the_records_and_in_the_table(recipe: Path, capsys: Captured) -> None:
    assert main(["finetune", str(recipe), "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["metrics"] == ["normal/mean_deg", "seg/miou"]
    last = outcome["measured"]["last"]
    assert last["score"] == -last["figures"]["normal/mean_deg"]  # the first task's
    assert main(["finetune", str(recipe), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "Fine-tuning multi" in shown
    assert all(name in shown for name in ("normal/mean_deg", "seg/miou", "seg/mdice", "normal/median_deg"))
    folder = recipe.parent / "run/finetune-multi"
    assert f"populace export-weights {folder} --task normal" in shown
    assert str(folder / "pictures" / f"step-{STEPS:08d}.png") in shown
    lineage = json.loads((recipe.parent / "run/lineage.json").read_bytes())
    assert lineage["finetune"]["multi"]["steps"] == STEPS


@pytest.mark.parametrize("task", ["normal", "seg"])
@pytest.mark.parametrize("where", ["run", "run/finetune-multi"])
def test_a_head_is_exported_as_a_model_of_its_task(recipe: Path, tmp_path: Path, task: str, where: str) -> None:
    target = tmp_path / "weights.safetensors"
    assert main(["export-weights", str(recipe.parent / where), "--task", task, "--output", str(target)]) == 0
    model = create(f"tiny_{task}", **SIZES)
    load_weights(model, target, strict=True)
    storage = Storage(recipe.parent / "run/finetune-multi")
    stored = load_whole(storage, complete_checkpoints(storage)[-1], "student/")
    for name, value in model.named_parameters():
        assert torch.equal(value, stored[name.replace("decode_head.", f"decode_head.{task}.")])


def test_a_head_has_the_name_of_its_task_by_default(recipe: Path) -> None:
    made = export_weights(str(recipe.parent / "run"), task="seg")
    assert made.path.name == f"seg-step-{STEPS:09d}-sapiens2-float32.safetensors"


@pytest.mark.parametrize(
    ("where", "arguments", "message"),
    [
        ("run", [], "it has fine-tuned normal, seg: give --task normal"),
        ("run/finetune-multi", [], "is of several tasks, and released names have room for one head: give --task"),
        ("run", ["--task", "pose"], "holds no checkpoint of the task pose"),
        ("run/finetune-multi", ["--task", "pose"], "is no run of the task pose, but of normal, seg"),
    ],
)
def test_a_head_that_is_not_there_is_refused(
    recipe: Path, where: str, arguments: list[str], message: str, capsys: Captured
) -> None:
    assert main(["export-weights", str(recipe.parent / where), *arguments]) == 2
    assert message in capsys.readouterr().err
