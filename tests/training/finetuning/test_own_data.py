"""Pictures of one's own train and are measured, whatever form they have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.fixtures import labelled
from tests.fixtures.finetuning import run
from training.data.labelled_sets import pack
from training.finetuning.config import FinetuneConfig
from training.finetuning.fit import checked_pictures
from training.finetuning.pictures import open_pictures, unsplit
from training.finetuning.trainer import MEASURED

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {"steps": 2, "optimiser": {"warmup": 1}, "model": {"overrides": {"depth": 1}}}
FIVE = {"names": ["background", "a", "b", "c", "d"]}


def config(task: str, data: dict[str, Any], /, **changes: Any) -> FinetuneConfig:
    return FinetuneConfig.model_validate(labelled.with_data(task, data, **{**SMALL, **changes}))


def figures(folder: Path) -> dict[str, float]:
    record: dict[str, Any] = json.loads((folder / MEASURED / "step-000000002.json").read_bytes())
    assert record["pictures"] == 1
    return record["figures"]


def held_out_one(source: dict[str, Any]) -> dict[str, Any]:
    """A split of four pictures into three and one."""
    for seed in range(50):
        data = labelled.own(source, 0.25, seed=seed)
        train, held_out = open_pictures(config("normal", data).data)
        if (len(train), len(held_out)) == (3, 1):
            return data
    raise AssertionError


def test_coco_keypoints_train_a_pose_model(tmp_path: Path) -> None:
    data = held_out_one(labelled.coco_source(tmp_path))
    assert run(config("pose", data, task={"pose": {"min_keypoints": 2}}), tmp_path / "run").ended == "finished"
    found = figures(tmp_path / "run")
    assert {"ap", "pck_box@0.2"} <= found.keys()


def test_parts_of_own_classes_train_a_segmentation(tmp_path: Path) -> None:
    root = labelled.write_parts(labelled.rendered(), tmp_path / "parts", classes=5)
    data = held_out_one({"kind": "parts", "root": str(root), "classes": 5})
    task = {"seg": {"classes": FIVE}}
    assert run(config("seg", data, task=task), tmp_path / "run").ended == "finished"
    assert 0 <= figures(tmp_path / "run")["miou"] <= 1


def test_dense_maps_train_and_so_do_shards_of_them(tmp_path: Path) -> None:
    """Shards give the same run, bit by bit."""
    root = labelled.write_dense(labelled.rendered(), tmp_path / "dense")
    data = held_out_one({"kind": "dense", "root": str(root), "mask_values": "person"})
    how = {"task": {"pointmap": {"min_canonical_depth": 0.0}}, "size": [144, 112]}
    base = config("pointmap", data, **how)
    assert run(base, tmp_path / "folders").ended == "finished"
    pack(unsplit(base.data), tmp_path / "shards", 3)
    packed = {**data, "train": {"kind": "shards", "folder": str(tmp_path / "shards")}}
    shards = config("pointmap", packed, **how)
    assert run(shards, tmp_path / "packed").ended == "finished"
    assert figures(tmp_path / "packed") == figures(tmp_path / "folders")
    assert figures(tmp_path / "folders")["l2"] > 0


@pytest.mark.parametrize(("task", "figure"), [("normal", "mean_deg"), ("albedo", "mae"), ("seg", "miou")])
def test_dense_maps_serve_the_other_tasks(task: str, figure: str, tmp_path: Path) -> None:
    """A sample has targets, and truth itself measures as perfect or a constant as worse."""
    root = labelled.write_dense(labelled.rendered(2), tmp_path / "dense")
    made = config(task, labelled.own({"kind": "dense", "root": str(root), "mask_values": "person"}))
    setup: Any = made.setup()
    (picture, *_) = [unsplit(made.data)[index] for index in range(2)]
    sample = setup.sample(picture, np.random.default_rng(0))
    assert sample is not None
    assert sample[0].shape == (64, 48, 3)
    assert all(torch.isfinite(value.float()).all() for value in sample[1].values())
    name = {"normal": "normals", "albedo": "albedo", "seg": "parts"}[task]
    true = torch.from_numpy(np.ascontiguousarray(getattr(picture, name)))
    best, worst = setup.new_metric(), setup.new_metric()
    if task == "seg":
        output = torch.nn.functional.one_hot(true.long(), 29).permute(2, 0, 1).float()[None]
    else:
        output = true.permute(2, 0, 1)[None]
    frames = [frame for frame, _ in setup.crops(picture)]
    setup.add(best, picture, frames, output)
    setup.add(worst, picture, frames, torch.roll(output, 1, 1))
    if task == "seg":
        assert best.compute()[figure] == pytest.approx(1.0)
        assert worst.compute()[figure] < 0.5
    else:
        assert best.compute()[figure] == pytest.approx(0.0, abs=1e-2)
        assert worst.compute()[figure] > 0.01


def test_people_that_are_packed_are_those_that_are_rendered(tmp_path: Path) -> None:
    """With every label: a run on the shards is the run on the renderer."""
    people = {"kind": "people", "train": 3, "held_out": 2, "people": {"size": [64, 48], "seed": 3}}
    rendered = config("pose", people)
    packed: dict[str, Any] = {"kind": "labelled"}
    for name, held_out in (("train", False), ("held_out", True)):
        pack(unsplit(rendered.data, held_out), tmp_path / name)
        packed[name] = {"kind": "shards", "folder": str(tmp_path / name)}
    sides = zip(
        open_pictures(rendered.data), checked_pictures(rendered.setup(), config("pose", packed).data), strict=True
    )
    for original, stored in sides:
        assert len(original) == len(stored)
        for index in range(len(original)):
            one, other = original[index], stored[index]
            assert original.id(index) == stored.id(index) == one.id
            for field in type(one).__dataclass_fields__:
                first, second = getattr(one, field), getattr(other, field)
                assert np.array_equal(first, second), field
                assert getattr(first, "dtype", None) == getattr(second, "dtype", None), field
