"""Labels that a task lacks are said before a run, with the way out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fixtures import labelled
from tests.fixtures.finetuning import settings
from training.data.errors import DataError
from training.data.labelled_sets import pack
from training.finetuning.config import FinetuneConfig
from training.finetuning.fit import check_data, checked_pictures, summary
from training.finetuning.pictures import unsplit

FIVE = {"seg": {"classes": {"names": ["background", "a", "b", "c", "d"]}}}


def refused(task: str, data: dict[str, Any], /, **changes: Any) -> str:
    made = FinetuneConfig.model_validate(labelled.with_data(task, data, **changes))
    with pytest.raises(DataError) as error:
        made.check()
    return str(error.value)


@pytest.fixture
def coco(tmp_path: Path) -> dict[str, Any]:
    return labelled.own(labelled.coco_source(tmp_path))


def test_a_source_without_the_labels_is_refused(coco: dict[str, Any], tmp_path: Path) -> None:
    text = refused("normal", coco)
    assert text.startswith(f"{coco['train']['annotations']}: pictures have no normals and no mask, which task normal")
    assert "COCO files give keypoints only: train task pose" in text
    root = labelled.write_dense(labelled.rendered(), tmp_path / "dense")
    dense = labelled.own({"kind": "dense", "root": str(root)})
    assert "no keypoints, which task pose needs. Give a source of kind coco" in refused("pose", dense)
    for path in (root / "intrinsics").iterdir():
        path.unlink()
    (root / "intrinsics").rmdir()
    assert "no intrinsics, which task pointmap needs. Add intrinsics/" in refused("pointmap", dense)
    parts = labelled.own({"kind": "parts", "root": str(labelled.write_parts(labelled.rendered(), tmp_path / "parts"))})
    assert "Folders of parts give parts only: train task seg" in refused("albedo", parts)


def test_another_keypoint_set_is_refused(coco: dict[str, Any], tmp_path: Path) -> None:
    text = refused("pose", coco, task={"pose": {"keypoints": "wholebody133"}})
    assert "pictures have 17 keypoints (coco17), but task pose is of 133 (wholebody133)" in text
    assert "Set task.pose.keypoints to coco17, or wanted_set of the data to wholebody133" in text
    moved = {**coco, "train": {**coco["train"], "wanted_set": "wholebody133"}}
    changes = {"task": {"pose": {"keypoints": "wholebody133"}}}
    FinetuneConfig.model_validate(labelled.with_data("pose", moved, **changes)).check()
    # Shards know the set of their keypoints.
    made = FinetuneConfig.model_validate(labelled.with_data("pose", coco))
    pack(unsplit(made.data), tmp_path / "shards")
    shards = labelled.own({"kind": "shards", "folder": str(tmp_path / "shards")})
    FinetuneConfig.model_validate(labelled.with_data("pose", shards)).check()
    assert "pack the source again with wanted_set wholebody133" in refused("pose", shards, **changes)


def test_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    root = labelled.write_parts(labelled.rendered(), tmp_path / "parts", classes=5)
    text = refused("seg", labelled.own({"kind": "parts", "root": str(root)}), task=FIVE)
    assert "pictures have 29 part classes, but task seg has 5" in text
    assert "or set `classes` of the data to 5" in text
    assert "5 part classes, but task seg has 29" in refused(
        "seg", labelled.own({"kind": "parts", "root": str(root), "classes": 5})
    )


def test_rendered_people_have_29_classes_and_308_keypoints(tmp_path: Path) -> None:
    for task in ("pose", "seg", "pointmap"):
        FinetuneConfig.model_validate(settings(task)).check()
    text = refused("seg", settings()["data"], task=FIVE)
    assert "people that are rendered have 29 part classes, but task seg has 5" in text
    own = tmp_path / "own.yaml"
    own.write_text("name: tools\nnames: [handle, blade]\nsigmas: 0.05\n")
    text = refused("pose", settings()["data"], task={"pose": {"keypoints": str(own)}})
    assert "none of tools is among them" in text


def test_only_some_pictures_without_a_label_are_named(tmp_path: Path) -> None:
    """Shards may be of pictures that are labelled unlike."""
    first, *others = labelled.rendered()

    class Mixed:
        fingerprint = "mixed"

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return replace(first, depth=None) if index == 0 else others[index - 1]

    pack(Mixed(), tmp_path / "shards")
    shards = {"kind": "shards", "folder": str(tmp_path / "shards")}
    text = refused("pointmap", labelled.own(shards, held_out=shards))
    assert f"1 of 4 pictures (as {first.id!r}) have no depth, which task pointmap needs" in text


def test_bad_files_are_refused_before_a_run(coco: dict[str, Any], tmp_path: Path) -> None:
    Path(coco["train"]["images"], "000002.png").unlink()
    assert "000002.png: image 2 is not there. Put it there" in refused("pose", coco)
    assert "no such set" in refused("pose", {**coco, "train": {**coco["train"], "source_set": "coco18"}})
    root = labelled.write_dense(labelled.rendered(2), tmp_path / "dense")
    for path in (root / "normals").iterdir():
        np.save(path, np.load(path)[:40])
    dense = labelled.own({"kind": "dense", "root": str(root)}, held_out={"kind": "dense", "root": str(root)})
    assert "Make both the same size" in refused("normal", dense)


def test_all_problems_are_listed_fatal_ones_first(tmp_path: Path) -> None:
    root = labelled.write_dense(labelled.rendered(), tmp_path / "dense")
    for path in (root / "normals").iterdir():
        np.save(path, np.load(path) * 3)
    (root / "depth" / f"{labelled.rendered()[0].id}.npy").write_bytes(b"")
    made = FinetuneConfig.model_validate(labelled.with_data("pose", labelled.own({"kind": "dense", "root": str(root)})))
    assert not isinstance(made.data, type(None))
    problems = check_data(made.setup(), made.data, 10)  # type: ignore[arg-type]
    fatal = [problem.fatal for problem in problems]
    assert fatal == sorted(fatal, reverse=True)
    assert fatal.count(True) == 2
    assert "no keypoints" in problems[0].what
    assert "no unit vectors" in problems[-1].what


def test_what_there_is_is_counted(coco: dict[str, Any]) -> None:
    made = FinetuneConfig.model_validate(labelled.with_data("pose", coco))
    train, held_out = checked_pictures(made.setup(), made.data)
    assert summary(made.data) == {"train": len(train), "held_out": len(held_out), "labels": "keypoints (17, coco17)"}
    people = FinetuneConfig.model_validate(settings()).data
    assert summary(people)["labels"].startswith("mask, parts (29 classes), normals, depth, albedo, intrinsics, keypoi")


def test_the_labels_are_those_of_the_first_picture_that_can_be_read(tmp_path: Path) -> None:
    root = labelled.write_parts(labelled.rendered(), tmp_path / "parts")
    data = labelled.own({"kind": "parts", "root": str(root)}, seed=1)
    pack(unsplit(FinetuneConfig.model_validate(labelled.with_data("seg", data)).data), tmp_path / "shards")
    shards = labelled.own({"kind": "shards", "folder": str(tmp_path / "shards")}, seed=1)
    config = FinetuneConfig.model_validate(labelled.with_data("seg", shards)).data
    whole = summary(config)
    tar = tmp_path / "shards" / "shard-000000.tar"
    data_of_tar = tar.read_bytes()
    tar.write_bytes(data_of_tar.replace(b'"background"', b'{background"'))  # the JSON of every sample
    assert summary(config) == {**whole, "labels": ""}
    place = data_of_tar.index(b'"background"')
    tar.write_bytes(data_of_tar[:place] + b"{" + data_of_tar[place + 1 :])
    assert summary(config) == whole
