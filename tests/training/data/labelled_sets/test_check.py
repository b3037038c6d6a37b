import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

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


def test_masks_of_0_and_255_hold_nothing_but_ignore(people, write_parts, png):
    root = write_parts(people)
    for picture in people:
        (root / "parts" / f"{picture.id}.png").write_bytes(png(picture.mask.astype(np.uint8) * 255))
    config = PartFoldersConfig(kind="parts", root=str(root))
    for sample in (2, 10):  # as before a run, and whole
        read = min(sample, len(people))
        found = check_source(config, sample)
        assert [problem.fatal for problem in found] == [False] * read + [True]
        assert found[0].what == "has no part but 255, which means ignore: nothing can be learnt from it"
        assert found[-1].what == (
            f"is one of {read} pictures, all that were read, on which nobody is labelled; {read} have no part but 255, "
            "which means ignore"
        )
        assert found[-1].fix == "Save class ids (1, 2, ...) where 255 stands for people or parts"
    (root / "parts" / f"{people[0].id}.png").write_bytes(png(people[0].parts))
    assert [problem.fatal for problem in check_source(config, 10)] == [False] * 3


def test_empty_masks_are_fatal_where_all_of_many_or_all_there_are_show_nobody(people, write_parts, png):
    root = write_parts(people)
    for picture in people:
        (root / "parts" / f"{picture.id}.png").write_bytes(png(np.zeros((64, 48), np.uint8)))
    config = PartFoldersConfig(kind="parts", root=str(root))
    assert [problem.what for problem in check_source(config, 2)] == ["shows no person"] * 2, "may be chance"
    *_, last = check_source(config, 4)
    assert last.fatal
    assert "is one of 4 pictures, all that were read, on which nobody is labelled" in last.what


def test_parts_that_are_all_ignored_matter_to_the_task_that_learns_them(people, write_dense, png):
    root = write_dense(people)
    for picture in people:
        (root / "parts" / f"{picture.id}.png").write_bytes(png(picture.mask.astype(np.uint8) * 255))
    config = DenseFoldersConfig(kind="dense", root=str(root), mask_values="person")
    found = check_source(config, 10)
    assert [problem.what for problem in found] == ["has no part but 255, which means ignore on people"] * 4
    assert not any(problem.fatal for problem in found)
    assert check_source(config, 10, parts=True)[-1].fatal


def turned_image(root, picture, orientation, labels):
    """A square part of a picture with an EXIF orientation, and its parts of the upright or the stored image."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    square, parts = picture.image[:48], picture.parts[:48]
    stored = {6: np.rot90, 3: lambda array: np.rot90(array, 2)}[orientation]
    Image.fromarray(np.ascontiguousarray(stored(square))).save(root / "images" / f"{picture.id}.png", exif=exif)
    parts = np.ascontiguousarray(parts if labels == "upright" else stored(parts))
    Image.fromarray(parts).save(root / "parts" / f"{picture.id}.png")


@pytest.mark.parametrize("orientation", [3, 6])
def test_labels_of_the_stored_image_are_named_where_the_size_does_not_tell(people, write_parts, orientation):
    root = write_parts(people)
    name = people[0].id
    config = PartFoldersConfig(kind="parts", root=str(root))
    turned_image(root, people[0], orientation, "upright")
    assert check_source(config, 10) == []
    turned_image(root, people[0], orientation, "stored")
    (problem,) = check_source(config, 10)
    assert problem.file == str(root / "parts" / f"{name}.png")
    assert problem.what == f"is of the image before its EXIF orientation ({orientation}), as its edges tell"
    assert not problem.fatal
    (root / "parts" / f"{name}.png").write_bytes((root / "parts" / f"{name}.png").read_bytes())
    Image.fromarray(np.full((48, 48), 3, np.uint8)).save(root / "parts" / f"{name}.png")  # without an edge
    (problem,) = check_source(config, 10)
    assert problem.file == str(root / "images" / f"{name}.png")
    assert "its size of 48 x 48 does not tell whether its labels are of the upright image" in problem.what


def test_keypoints_of_an_image_whose_size_does_not_tell_are_named(people, write_coco):
    file, images = write_coco(people[:1])
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(np.rot90(people[0].image, 2).copy()).save(images / "000001.png", exif=exif)
    (problem,) = check_source(coco(file, images))
    assert problem.what.startswith("has the EXIF orientation 3, and its size of 48 x 64 does not tell")


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
