import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.labelled_sets.check import check_labelled, check_source, mirrored_faces
from training.data.labelled_sets.coco import read_coco
from training.data.labelled_sets.config import (
    CocoConfig,
    DenseFoldersConfig,
    LabelledConfig,
    PartFoldersConfig,
    ShardsConfig,
)
from training.data.labelled_sets.folders import FolderPictures
from training.data.labelled_sets.pack import pack
from training.tasks.keypoint_sets import keypoint_set


def coco(file, images):
    return CocoConfig(kind="coco", annotations=str(file), images=str(images), source_set="sapiens308")


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_nothing_is_said_of_good_data(people, write_dense, write_parts, write_coco, tmp_path):
    dense = DenseFoldersConfig(kind="dense", root=str(write_dense(people)), mask_values="person")
    pack(FolderPictures(dense), tmp_path / "out")
    for config in (
        dense,
        PartFoldersConfig(kind="parts", root=str(write_parts(people))),
        coco(*write_coco(people)),
        ShardsConfig(kind="shards", folder=str(tmp_path / "out")),
    ):
        assert check_source(config, 10) == []


def test_every_problem_of_a_folder_is_named_at_once(people, write_dense, png):
    root = write_dense(people)
    first, second, third, fourth = (picture.id for picture in people)
    (root / "masks" / f"{first}.png").unlink()
    (root / "images" / f"{second}.png").write_bytes(b"<html>")
    np.save(root / "depth" / f"{third}.npy", people[2].depth * 1000)
    (root / "parts" / f"{fourth}.png").write_bytes(png(np.full((64, 48), 77, np.uint8)))
    found = check_source(DenseFoldersConfig(kind="dense", root=str(root), mask_values="person"), 10)
    named = {problem.file.removeprefix(f"{root}/"): problem for problem in found}
    assert set(named) == {f"images/{first}.png", f"images/{second}.png", f"depth/{third}.npy", f"parts/{fourth}.png"}
    assert "has no file masks/" in named[f"images/{first}.png"].what
    assert "depth_unit" in named[f"depth/{third}.npy"].fix
    assert [problem.fatal for problem in named.values()].count(False) == 1


def test_the_sample_bounds_what_is_read(people, write_parts):
    root = write_parts(people)
    for picture in people:
        (root / "images" / f"{picture.id}.png").write_bytes(b"")
    config = PartFoldersConfig(kind="parts", root=str(root))
    assert len(check_source(config, 2)) == 2
    assert check_source(config, 2) == check_source(config, 2)
    assert len(check_source(config, 100)) == len(people)


def test_problems_of_a_coco_file(people, write_coco):
    file, images = write_coco(people)
    (images / "000004.png").unlink()

    def change(content):
        content["annotations"][0]["keypoints"][:3] = [-20, 5, 2]
        content["annotations"][1]["keypoints"] = [1, 2, 3]
        content["annotations"][2]["bbox"] = [40, 50, 45, 60]  # two corners

    edit(file, change)
    found = check_source(coco(file, images), 10)
    texts = [f"{problem}" for problem in found]
    for part in (
        "annotation 101: keypoints has 1 keypoints",
        "annotation 100 has 1 labelled keypoints outside",
        "annotation 102 has a box far beyond",
        "000004.png: image 4 is not there",
    ):
        assert any(part in text for text in texts), part


def test_shares_of_the_picture_are_not_pixels(people, write_coco):
    file, images = write_coco(people[:1])

    def change(content):
        for annotation in content["annotations"]:
            annotation["keypoints"] = [
                value / 100 if i % 3 < 2 else value for i, value in enumerate(annotation["keypoints"])
            ]

    edit(file, change)
    (problem,) = check_source(coco(file, images))
    assert problem.what == "all keypoints are in 0..1"


def faces(tmp_path, swapped):
    """A file of 12 frontal faces, and one that is seen from behind."""
    names = keypoint_set("coco17").names
    images, annotations = [], []
    for index in range(13):
        points = np.zeros((17, 3))
        left, right = (10, 20) if swapped else (20, 10)
        for name, x in (("nose", 15), ("left_eye", left), ("right_eye", right)):
            points[names.index(name)] = x, 15, 2 if index else 1
        images.append({"id": index, "file_name": f"{index}.png", "width": 40, "height": 40})
        box = {"bbox": [5, 5, 20, 20], "image_id": index, "id": index}
        annotations.append({**box, "keypoints": points.ravel().tolist()})
    (tmp_path / "a.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    return CocoConfig(kind="coco", annotations=str(tmp_path / "a.json"), images=str(tmp_path))


@pytest.mark.parametrize("swapped", [False, True])
def test_left_and_right_that_are_swapped_are_suspected(tmp_path, swapped):
    config = faces(tmp_path, swapped)
    assert mirrored_faces(config, read_coco(config)) == (float(swapped), 12)
    suspected = [problem for problem in check_source(config, 0) if "left eye" in problem.what]
    assert len(suspected) == swapped
    if swapped:
        assert "100% of 12 faces" in suspected[0].what
        assert not suspected[0].fatal


def test_rendered_people_are_not_suspected(write_coco):
    from training.data.people import PeopleConfig, render

    crowd = [render(key, PeopleConfig(size=(64, 48), portraits=1, facing=1)) for key in range(30)]
    file, images = write_coco(crowd)
    share, count = mirrored_faces(coco(file, images), read_coco(coco(file, images)))
    assert count >= 10
    assert share < 0.2


def test_damaged_shards(people, write_parts, tmp_path):
    pack(FolderPictures(PartFoldersConfig(kind="parts", root=str(write_parts(people)))), tmp_path / "out", 2)
    config = ShardsConfig(kind="shards", folder=str(tmp_path / "out"))
    tar = tmp_path / "out" / "shard-000001.tar"
    data = bytearray(tar.read_bytes())
    data[512 + 60] ^= 1  # within the first image
    tar.write_bytes(data)
    assert any("the image of people-3-2 is not the one that was packed" in str(one) for one in check_source(config, 10))
    tar.write_bytes(data[:2000])
    found = check_source(config, 10)
    assert "has 2000 bytes instead of" in found[0].what
    assert {problem.file for problem in found} == {str(tar)}
    assert check_source(ShardsConfig(kind="shards", folder=str(tmp_path)))[0].fatal


def test_a_configuration_that_leads_nowhere_is_a_problem_and_no_exception(tmp_path):
    (problem, *_) = check_source(PartFoldersConfig(kind="parts", root=str(tmp_path / "none")))
    assert problem.what == "there is no such folder"
    missing = CocoConfig(kind="coco", annotations=str(tmp_path / "none.json"), images=str(tmp_path))
    (problem,) = check_source(missing)
    assert "cannot be read: No such file" in problem.what
    (tmp_path / "a.json").write_text("{}")
    (problem,) = check_source(missing.model_copy(update={"source_set": "coco18"}))
    assert "keypoint set 'coco18'" in problem.what


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("../x"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FIELDS = ("id", "image_id", "file_name", "width", "height", "bbox", "area", "iscrowd", "keypoints")


@settings(max_examples=60, deadline=None)
@given(value=JSON, where=st.sampled_from(("images", "annotations")), field=st.sampled_from(FIELDS))
def test_no_value_in_a_coco_file_is_an_exception(tmp_path_factory, value, where, field):
    folder = tmp_path_factory.mktemp("coco", numbered=True)
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 8, "height": 8}],
        "annotations": [{"id": 1, "image_id": 1, "bbox": [1, 1, 4, 4], "area": 9, "keypoints": [3, 3, 2] * 17}],
    }
    content[where][0][field] = value
    (folder / "a.json").write_text(json.dumps(content))
    config = CocoConfig(kind="coco", annotations=str(folder / "a.json"), images=str(folder))
    assert check_source(config, 5)  # at least the image is missing


def test_the_split_is_checked(people, write_parts):
    root = str(write_parts(people))
    source = {"kind": "parts", "root": root}
    shared = LabelledConfig.model_validate({"kind": "labelled", "train": source, "held_out": source})
    (problem,) = check_labelled(shared)
    assert problem.what.startswith("4 ids are among the training pictures too (people-3-0")
    assert not problem.fatal
    alone = LabelledConfig.model_validate({"kind": "labelled", "train": source, "held_out_share": 1e-9})
    (problem,) = check_labelled(alone)
    assert problem.fatal
    assert "0 are held out" in problem.what
