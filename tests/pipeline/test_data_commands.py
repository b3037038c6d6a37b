"""`populace check-data` names what is wrong with pictures of one's own, and `populace pack` puts them into shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipeline.cli import main
from tests.fixtures import labelled
from tests.fixtures.finetuning import settings
from training.data.labelled_sets import LabelledConfig
from training.finetuning.pictures import open_pictures

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    return labelled.write_parts(labelled.rendered(), tmp_path / "parts")


def recipe(tmp_path: Path, kind: str, /, data: dict[str, Any] | None = None, **changes: Any) -> str:
    section = settings(kind, **changes) if data is None else labelled.with_data(kind, data, **changes)
    path = tmp_path / f"{kind}.yaml"
    path.write_text(yaml.safe_dump({"output": str(tmp_path / "run"), "finetune": section}))
    return str(path)


def check(capsys: Captured, path: str, *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["check-data", path, *arguments])
    return code, capsys.readouterr().out


def test_good_pictures_are_counted(tmp_path: Path, parts: Path, capsys: Captured) -> None:
    path = recipe(tmp_path, "seg", labelled.own({"kind": "parts", "root": str(parts)}, seed=1))
    code, out = check(capsys, path)
    assert code == 0
    assert "to train on" in out
    assert "labels: mask, parts (29 classes)\n" in out
    code, out = check(capsys, path, "--json")
    record = json.loads(out)
    assert record["train"] + record["held_out"] == 4
    assert record["problems"] == []


def test_a_mask_of_another_size_and_a_mask_in_colours_are_named(tmp_path: Path, parts: Path, capsys: Captured) -> None:
    first, second, *_ = sorted((parts / "parts").iterdir())
    first.write_bytes(labelled.png_bytes(np.zeros((10, 10), np.uint8)))
    second.write_bytes(labelled.png_bytes(np.random.default_rng(0).integers(0, 9, (64, 48, 3)).astype(np.uint8)))
    (parts / "parts" / "stray.png").write_bytes(labelled.png_bytes(np.zeros((64, 48), np.uint8)))
    path = recipe(tmp_path, "seg", labelled.own({"kind": "parts", "root": str(parts)}))
    code, out = check(capsys, path)
    assert code == 1
    assert f"problem  {first}: is 10 x 10 pixels, its image 48 x 64" in out
    assert f"problem  {second}: has colours where ids are expected. Save one id per pixel, as an 8-bit grey PNG" in out
    assert "unlikely  " in out
    assert "2 problems have to be mended, 1 are unlikely to be meant so" in out
    assert "to train on" not in out
    code, out = check(capsys, path, "--limit", "1")
    assert out.splitlines()[0].startswith("problem")
    assert out.splitlines()[1] == "and 2 more; --limit 0 prints all"
    code, out = check(capsys, path, "--json", "--limit", "1")
    assert (code, json.loads(out)["fatal"], len(json.loads(out)["problems"])) == (1, 2, 3)


def test_labels_that_the_task_lacks_and_an_image_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    source = labelled.coco_source(tmp_path)
    Path(source["images"], "000003.png").unlink()
    code, out = check(capsys, recipe(tmp_path, "normal", labelled.own(source)))
    assert code == 1
    assert "pictures have no normals and no mask, which task normal needs" in out
    assert "000003.png: image 3 is not there" in out


def test_a_coco_file_of_which_nobody_is_kept_fails_as_its_run_does(tmp_path: Path, capsys: Captured) -> None:
    source = labelled.coco_source(tmp_path)
    file = Path(source["annotations"])
    content = json.loads(file.read_text())
    for annotation in content["annotations"]:
        annotation |= {"keypoints": [], "bbox": [0, 0, 0, 0]}
    content["annotations"].append({**content["annotations"][0], "image_id": 77})
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps(content))
    nobody = {**source, "annotations": str(empty)}
    for data in (labelled.own(nobody), {"kind": "labelled", "train": source, "held_out": nobody}):
        path = recipe(tmp_path, "pose", data)
        code, out = check(capsys, path)
        assert code == 1
        assert f"problem  {empty}: has nobody that is kept on any of its 4 images: of " in out
        assert main(["finetune", path, "--quiet"]) == 2
        assert "has nobody that is kept" in capsys.readouterr().err


def test_masks_of_0_and_255_fail_as_all_pictures_are_useless(tmp_path: Path, parts: Path, capsys: Captured) -> None:
    for file, picture in zip(sorted((parts / "parts").iterdir()), labelled.rendered(), strict=True):
        file.write_bytes(labelled.png_bytes(picture.mask.astype(np.uint8) * 255))
    path = recipe(tmp_path, "seg", labelled.own({"kind": "parts", "root": str(parts)}, seed=1))
    code, out = check(capsys, path)
    assert code == 1
    assert "4 have no part but 255, which means ignore. Save class ids (1, 2, ...)" in out
    assert "1 problems have to be mended, 4 are unlikely to be meant so" in out
    assert main(["finetune", path, "--quiet"]) == 2
    assert "which means ignore" in capsys.readouterr().err


def test_depth_in_millimetres_is_unlikely_and_no_failure(tmp_path: Path, capsys: Captured) -> None:
    root = labelled.write_dense(labelled.rendered(), tmp_path / "dense")
    for path in (root / "depth").iterdir():
        np.save(path, np.load(path) * 1000)
    code, out = check(capsys, recipe(tmp_path, "pointmap", labelled.own({"kind": "dense", "root": str(root)}, seed=1)))
    assert code == 0
    assert "Set `depth_unit`, the metres per unit" in out
    assert "held out" in out


def test_rendered_people_need_no_check(tmp_path: Path, capsys: Captured) -> None:
    code, out = check(capsys, recipe(tmp_path, "seg"))
    assert code == 0
    assert out.startswith("people are rendered: there are no files to check\n12 pictures to train on, 5 held out\n")
    five = {"task": {"seg": {"classes": {"names": list("abcde")}}}}
    code, out = check(capsys, recipe(tmp_path, "seg", **five))
    assert code == 1
    assert "29 part classes, but task seg has 5" in out


def test_a_file_without_the_section_is_an_error(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text(yaml.safe_dump({"output": "o", "pretrain": {}}))
    for command in (["check-data", str(path)], ["pack", str(path), str(tmp_path / "o")]):
        assert main(command) == 2
        assert "finetune: missing" in capsys.readouterr().err


def test_packed_pictures_are_split_as_they_were(tmp_path: Path, parts: Path, capsys: Captured) -> None:
    data = labelled.own({"kind": "parts", "root": str(parts)}, seed=1)
    path, target = recipe(tmp_path, "seg", data), tmp_path / "shards"
    assert main(["pack", path, str(target), "--shard-samples", "3"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert sorted(item.name for item in target.glob("*.tar")) == ["shard-000000.tar", "shard-000001.tar"]
    before = open_pictures(LabelledConfig.model_validate(data))
    after = open_pictures(LabelledConfig.model_validate({**data, **shown["finetune"]["data"]}))
    for one, other in zip(before, after, strict=True):
        assert [one.id(index) for index in range(len(one))] == [other.id(index) for index in range(len(other))]
    assert main(["pack", path, str(target)]) == 2
    assert "is not an empty folder" in capsys.readouterr().err
    assert main(["pack", path, str(tmp_path / "other"), "--held-out"]) == 2
    assert "Pack without --held-out" in capsys.readouterr().err


def test_people_are_rendered_once(tmp_path: Path, capsys: Captured) -> None:
    path = recipe(tmp_path, "seg", data={**settings()["data"], "train": 3, "held_out": 2})
    sides = {}
    for name, more in (("train", []), ("held_out", ["--held-out"])):
        assert main(["pack", path, str(tmp_path / name), "--quiet", *more]) == 0
        sides |= yaml.safe_load(capsys.readouterr().out)["finetune"]["data"]
    code, out = check(capsys, recipe(tmp_path, "seg", sides))
    assert code == 0
    assert out.startswith(
        "3 pictures to train on, 2 held out\nlabels: mask, parts (29 classes), normals, depth, albedo"
    )
