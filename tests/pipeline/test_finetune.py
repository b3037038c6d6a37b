"""`populace finetune`: from nothing or from the run's own pretraining to a task model, its figures, and its weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from pipeline.cli import main
from pipeline.export_weights import export_weights
from pipeline.finetune import INITIAL
from pipeline.lineage import LINEAGE
from pipeline.storage import Storage
from tests.fixtures import finetuning, pretraining
from training.engine.checkpoint import complete_checkpoints, load_whole
from training.models import create, load_weights

pytestmark = pytest.mark.usefixtures("one_thread")

Captured = pytest.CaptureFixture[str]
SIZES = {"width": 48, "depth": 3, "heads": 3, "ffn_width": 64}


def write_recipe(output: Path, pretrain: bool = False, kind: str = "normal", **changes: Any) -> str:
    data: dict[str, Any] = {"output": str(output), "finetune": finetuning.settings(kind, **changes)}
    if pretrain:
        data["pretrain"] = pretraining.settings(None, steps=3)
    path = output.parent / f"{output.name}.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that pretrained, and fine-tuned what it pretrained. Not to be changed."""
    output = tmp_path_factory.mktemp("whole") / "run"
    pretraining.make_corpus(output / "shards")
    recipe = write_recipe(output, True, model={"from_pretrain": True})
    assert main(["run", recipe, "--quiet"]) == 0
    return output


def test_run_goes_on_from_pretraining_to_the_task(whole: Path) -> None:
    """It begins with the teacher of the run, bit by bit."""
    exported = export_weights(str(whole), output=str(whole.parent / "teacher.safetensors")).path
    assert load_file(whole / "finetune-normal" / INITIAL).keys() == load_file(exported).keys()
    record = json.loads((whole / LINEAGE).read_bytes())
    part = record["finetune"]["normal"]
    assert part == json.loads((whole / "finetune-normal" / LINEAGE).read_bytes())
    assert part["pretrained"] == record["pretrain"]["checkpoint"]
    assert part["steps"] == 6
    for name, value in load_file(exported).items():
        assert torch.equal(load_file(whole / "finetune-normal" / INITIAL)[name], value)


def test_a_second_call_does_nothing_and_says_so(whole: Path, tmp_path: Path, capsys: Captured) -> None:
    before = (whole / LINEAGE).read_bytes()
    recipe = write_recipe(whole, True, model={"from_pretrain": True})
    assert main(["finetune", recipe, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["ended"], outcome["steps"], outcome["trained"]) == ("finished", 6, 0)
    assert outcome["metric"] == "mean_deg"
    assert outcome["measured"]["first"]["step"] == 0
    assert outcome["measured"]["last"]["step"] == 6
    best = outcome["measured"]["best"]
    assert best["figures"]["mean_deg"] <= outcome["measured"]["last"]["figures"]["mean_deg"]
    assert (whole / LINEAGE).read_bytes() == before
    assert main(["finetune", recipe, "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "already finished" in shown
    assert "mean_deg" in shown
    assert outcome["best_checkpoint"] in shown


def test_the_weights_of_the_best_checkpoint_are_exported_in_released_names(
    whole: Path, tmp_path: Path, capsys: Captured
) -> None:
    target = tmp_path / "normal.safetensors"
    assert main(["export-weights", str(whole), "--task", "normal", "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    model = create("tiny_normal", **SIZES, image_size=(64, 48))
    load_weights(model, target, strict=True)
    storage = Storage(whole / "finetune-normal")
    scores = {
        item.step: json.loads((whole / "finetune-normal" / item.name / "probe.json").read_bytes())["score"]
        for item in complete_checkpoints(storage)
    }
    best = max(scores, key=lambda step: scores[step])
    (checkpoint,) = (item for item in complete_checkpoints(storage) if item.step == best)
    stored = load_whole(storage, checkpoint, "student/")
    for name, value in model.named_parameters():
        assert torch.equal(value, stored[name])
    # The folder itself will do, another checkpoint by its step.
    other = next(step for step in scores if step != best)
    assert export_weights(str(whole / "finetune-normal"), output=str(tmp_path / "a.safetensors")).checkpoint.endswith(
        f"{best}"
    )
    made = export_weights(str(whole), step=other, task="normal", output=str(tmp_path / "b.safetensors"))
    assert made.checkpoint.endswith(f"{other}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "seg"], "holds no checkpoint of the task seg"),
        (["--task", "normal", "--which", "teacher"], "a task model has no teacher"),
    ],
)
def test_weights_that_are_not_there_are_refused(
    whole: Path, arguments: list[str], message: str, capsys: Captured
) -> None:
    assert main(["export-weights", str(whole), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_two_tasks_lie_beside_each_other_and_other_settings_are_refused(
    whole: Path, tmp_path: Path, capsys: Captured
) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "run"))
    assert main(["finetune", write_recipe(copy, kind="seg", steps=3), "--quiet"]) == 0
    record = json.loads((copy / LINEAGE).read_bytes())
    assert set(record["finetune"]) == {"normal", "seg"}
    assert record["finetune"]["seg"]["pretrained"] is None
    assert main(["finetune", write_recipe(copy, kind="seg", steps=4), "--quiet"]) == 2
    assert "steps: the run has 3, now given 4" in capsys.readouterr().err
    assert main(["finetune", write_recipe(copy, kind="seg", steps=4), "--quiet", "--new"]) == 0
    assert {"finetune-seg", "finetune-seg.old-1", "finetune-normal", "pretrain"} <= {p.name for p in copy.iterdir()}


def test_what_it_begins_with_has_to_be_there(whole: Path, tmp_path: Path, capsys: Captured) -> None:
    def refused(recipe: str) -> str:
        assert main(["finetune", recipe, "--quiet"]) == 2
        return capsys.readouterr().err

    alone = tmp_path / "alone"
    assert "holds no finished pretraining: run `populace pretrain`" in refused(
        write_recipe(alone, model={"from_pretrain": True})
    )
    assert "finetune.model.initial_weights" in refused(
        write_recipe(alone, model={"initial_weights": "gone.safetensors"})
    )
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    changed = {"model": {"from_pretrain": True, "overrides": {"depth": 2}}}
    assert "give the same" in refused(write_recipe(copy, **changed))
    (tmp_path / "empty.yaml").write_text(yaml.safe_dump({"output": "o", "pretrain": {}}))
    assert "finetune: missing" in refused(str(tmp_path / "empty.yaml"))
    assert "finetune.task.kind: 'sge' is not known: did you mean seg?" in refused(
        write_recipe(alone, task={"kind": "sge"})
    )


def test_without_pretraining_it_begins_at_random_and_continues(tmp_path: Path, capsys: Captured) -> None:
    recipe = write_recipe(tmp_path / "run", kind="pose", steps=3)
    assert main(["run", recipe, "--json", "--quiet"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["curate"] is None
    assert outcome["finetune"]["measured"]["first"]["metric"] == "ap"
    assert "pretrain" not in outcome
    # A pool may be curated into that folder, and a backbone pretrained, later.
    pretraining.make_corpus(tmp_path / "run/shards")
    assert main(["pretrain", write_recipe(tmp_path / "run", True, kind="pose", steps=3), "--quiet"]) == 0
    record = json.loads((tmp_path / "run" / LINEAGE).read_bytes())
    assert record["pretrain"]["steps"] == record["finetune"]["pose"]["steps"] == 3
