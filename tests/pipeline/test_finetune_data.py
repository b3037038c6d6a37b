"""`populace finetune` on pictures of one's own: what is wrong is said before anything starts, or changes a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.doctor import Finding, diagnose
from pipeline.lineage import LINEAGE
from tests.fixtures import labelled

pytestmark = pytest.mark.usefixtures("one_thread")

Captured = pytest.CaptureFixture[str]


def recipe(tmp_path: Path, task: str, data: dict[str, Any], **changes: Any) -> str:
    path = tmp_path / f"{task}.yaml"
    section = labelled.with_data(task, data, steps=2, optimiser={"warmup": 1}, **changes)
    path.write_text(yaml.safe_dump({"output": str(tmp_path / "run"), "finetune": section}))
    return str(path)


@pytest.fixture
def dense(tmp_path: Path) -> dict[str, Any]:
    root = labelled.write_dense(labelled.rendered(), tmp_path / "dense")
    return labelled.own({"kind": "dense", "root": str(root)}, seed=1)


def test_what_is_wrong_is_said_before_anything_starts(tmp_path: Path, dense: dict[str, Any], capsys: Captured) -> None:
    for command in ("finetune", "run"):
        assert main([command, recipe(tmp_path, "pose", dense), "--quiet"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: finetune.data: ")
        assert "pictures have no keypoints, which task pose needs. Give a source of kind coco" in error
        assert not (tmp_path / "run").exists()
    dense["train"]["root"] = str(tmp_path / "nowhere")
    assert main(["finetune", recipe(tmp_path, "normal", dense), "--quiet"]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_a_run_knows_its_pictures(tmp_path: Path, dense: dict[str, Any], capsys: Captured) -> None:
    """Folders may be moved; other pictures are refused by name."""
    path = recipe(tmp_path, "normal", dense)
    assert main(["finetune", path]) == 0
    shown = capsys.readouterr().err
    record = json.loads((tmp_path / "run/finetune-normal" / LINEAGE).read_bytes())
    count = record["data"]["train"]["pictures"]
    assert count + record["data"]["held_out"]["pictures"] == 4
    assert f"64x48, {count} images, 4 a step" in shown.replace("\n", " ")
    moved = shutil.move(dense["train"]["root"], tmp_path / "moved")
    dense["train"]["root"] = str(moved)
    path = recipe(tmp_path, "normal", dense)
    assert main(["finetune", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trained"] == 0
    for file in (Path(moved) / "images").iterdir():
        file.write_bytes(file.read_bytes() + b"\0")
    assert main(["finetune", path, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "pictures.train.fingerprint: the run has" in error
    assert "pictures.held_out.fingerprint" in error


def test_the_doctor_looks_at_pictures_weights_and_disk(tmp_path: Path, dense: dict[str, Any]) -> None:
    def findings(task: str, data: dict[str, Any], **changes: Any) -> dict[str, Finding]:
        found = diagnose(recipe(tmp_path, task, data, **changes))
        return {finding.check: finding for finding in found if finding.check.startswith("finetune")}

    good = findings("normal", dense)
    assert list(good) == [f"finetune {name}" for name in ("engine", "data", "weights", "batches", "disk")]
    assert all(finding.ok for finding in good.values())
    assert good["finetune data"].found.startswith("your own pictures: ")
    bad = findings("pose", dense, model={"initial_weights": "gone.safetensors"}, checkpoint={"keep_last": 10**9})
    assert {name for name, finding in bad.items() if not finding.ok} == {
        "finetune data", "finetune weights", "finetune disk"
    }  # fmt: skip
    assert "no keypoints" in bad["finetune data"].found
    assert "populace check-data" in bad["finetune data"].fix
    assert "gone.safetensors" in bad["finetune weights"].found
    pretrained = findings("normal", dense, model={"from_pretrain": True})["finetune weights"]
    assert not pretrained.ok
    assert "holds no finished pretraining" in pretrained.found


def test_annotations_that_are_left_out_are_told_before_a_run(tmp_path: Path, capsys: Captured) -> None:
    source = labelled.coco_source(tmp_path)
    file = Path(source["annotations"])
    content = json.loads(file.read_text())
    dog = {**content["annotations"][0], "id": 9, "category_id": 18}
    ball = {**dog, "id": 10, "category_id": 37, "keypoints": [1, 1, 2] * 4}
    content["annotations"] += [dog, ball]
    content["categories"] = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}, {"id": 37, "name": "ball"}]
    file.write_text(json.dumps(content))
    assert main(["finetune", recipe(tmp_path, "pose", labelled.own(source, seed=1))]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "annotations left out: 2 of other categories: 18 dog (1), 37 ball (1)" in shown
