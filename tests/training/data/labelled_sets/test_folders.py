import json
import pickle
import shutil
from dataclasses import replace

import cv2
import numpy as np
import pytest

from training.data.errors import DataError
from training.data.labelled_sets.config import DenseFoldersConfig, PartFoldersConfig, ShardsConfig
from training.data.labelled_sets.folders import FolderPictures, list_folders
from training.data.labelled_sets.pack import pack
from training.data.labelled_sets.shards import ShardPictures
from training.data.people.light import srgb


def dense(root, **more):
    return DenseFoldersConfig(kind="dense", root=str(root), mask_values="person", **more)


def parts(root, **more):
    return PartFoldersConfig(kind="parts", root=str(root), **more)


def without_people(picture):
    return replace(picture, keypoints=None, boxes=None, areas=None)


def test_dense_folders_come_back_exactly(people, write_dense, same):
    source = FolderPictures(dense(write_dense(people)))
    by_id = {picture.id: picture for picture in people}
    assert [source.id(index) for index in range(len(source))] == sorted(by_id)
    for index in range(len(source)):
        same(source[index], without_people(by_id[source.id(index)]))


def test_part_folders_come_back_exactly(people, write_parts):
    source = FolderPictures(parts(write_parts(people)))
    for index, original in enumerate(sorted(people, key=lambda picture: picture.id)):
        read = source[index]
        np.testing.assert_array_equal(read.image, original.image)
        np.testing.assert_array_equal(read.parts, original.parts)
        np.testing.assert_array_equal(read.mask, original.mask)
        assert read.normals is None
        assert read.keypoints is None


def test_folders_of_png_come_back_to_their_precision_and_so_do_their_shards(people, write_dense, same, tmp_path):
    original = people[0]
    root = write_dense([original])

    def replaced(name, pixels):
        (root / name / f"{original.id}.npy").unlink(missing_ok=True)
        stored = pixels[..., ::-1] if pixels.ndim == 3 else pixels
        assert cv2.imwrite(str(root / name / f"{original.id}.png"), stored)

    replaced("masks", original.mask.astype(np.uint8) * 255)
    bluish = original.normals * np.array((1, -1, -1))
    replaced("normals", np.round((bluish + 1) / 2 * 65535).astype(np.uint16))
    replaced("depth", np.round(original.depth * 1000).astype(np.uint16))
    replaced("albedo", np.round(srgb(original.albedo) * 65535).astype(np.uint16))
    source = FolderPictures(DenseFoldersConfig(kind="dense", root=str(root), normal_axes="opengl"))
    read = source[0]
    np.testing.assert_array_equal(read.mask, original.mask)
    np.testing.assert_array_equal(read.person, original.mask.astype(int) - 1)
    np.testing.assert_allclose(read.normals, original.normals, atol=5e-5)
    assert not read.normals[~original.mask].any()
    np.testing.assert_allclose(read.depth, original.depth, atol=5.1e-4)
    np.testing.assert_allclose(read.albedo, original.albedo, atol=5e-5)
    pack(source, tmp_path / "out")
    same(ShardPictures(ShardsConfig(kind="shards", folder=str(tmp_path / "out")))[0], read)


def test_only_the_folders_that_are_there_are_read(people, write_dense):
    root = write_dense(people[:1])
    for name in ("normals", "albedo", "intrinsics"):
        shutil.rmtree(root / name)
    read = FolderPictures(dense(root))[0]
    assert read.normals is None
    assert read.albedo is None
    assert read.intrinsics is None
    np.testing.assert_array_equal(read.depth, people[0].depth)


def test_one_file_of_cameras(people, write_dense):
    root = write_dense(people)
    shutil.rmtree(root / "intrinsics")
    table = {picture.id: {"K": picture.intrinsics.tolist()} for picture in people}
    (root / "intrinsics.json").write_text(json.dumps(table))
    source = FolderPictures(dense(root))
    for index, original in enumerate(sorted(people, key=lambda picture: picture.id)):
        np.testing.assert_array_equal(source[index].intrinsics, original.intrinsics)
    (root / "intrinsics.json").write_text(json.dumps({"fx": 90, "fy": 91, "cx": 24, "cy": 32}))
    found = FolderPictures(dense(root, pixel_origin="corner"))[2].intrinsics
    assert found.tolist() == [[90, 0, 23.5], [0, 91, 31.5], [0, 0, 1]]
    (root / "intrinsics.json").write_text(json.dumps({"other": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}))
    with pytest.raises(DataError, match=r"intrinsics\.json: has no camera for 'people-3-0'"):
        FolderPictures(dense(root))[0]


def test_subfolders_are_part_of_the_name(people, write_parts):
    root = write_parts(people[:2])
    for name in ("images", "parts"):
        (root / name / "video").mkdir()
        (root / name / f"{people[0].id}.png").rename(root / name / "video" / "one.png")
    source = FolderPictures(parts(root))
    assert [source.id(index) for index in range(2)] == [people[1].id, "video/one"]
    np.testing.assert_array_equal(source[1].parts, people[0].parts)


def test_names_that_do_not_match_are_listed(people, write_parts):
    root = write_parts(people)
    (root / "parts" / f"{people[1].id}.png").unlink()
    with pytest.raises(DataError, match=r"people-3-1\.png: has no file parts/people-3-1\.png\. Add it"):
        FolderPictures(parts(root))
    assert len(FolderPictures(parts(root, incomplete="skip"))) == len(people) - 1
    (root / "images" / f"{people[0].id}.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"people-3-0\.png: has the name of images/people-3-0\.jpg"):
        FolderPictures(parts(root, incomplete="skip"))


def test_what_is_passed_over_is_said(people, write_parts):
    root = write_parts(people[:1])
    (root / "parts" / "lonely.png").write_bytes(b"")
    (root / "images" / "notes.txt").write_text("x")
    (root / "images" / ".hidden").write_text("x")
    said = {problem.file.rpartition("/")[2]: problem for problem in list_folders(parts(root)).problems}
    assert set(said) == {"lonely.png", "notes.txt"}
    assert not any(problem.fatal for problem in said.values())


def test_missing_folders_are_named_once(tmp_path):
    with pytest.raises(DataError, match=r"(?s)images: there is no such folder.*parts: there is no such folder"):
        FolderPictures(parts(tmp_path))


def test_a_label_file_that_went_away(people, write_parts):
    root = write_parts(people[:1])
    source = FolderPictures(parts(root))
    (root / "parts" / f"{people[0].id}.png").unlink()
    with pytest.raises(DataError, match=r"parts/people-3-0\.png: cannot be read: No such file"):
        source[0]


def test_a_picklable_source_whose_fingerprint_is_of_the_files(people, write_parts, same, tmp_path):
    root = write_parts(people)
    source = FolderPictures(parts(root))
    same(pickle.loads(pickle.dumps(source))[1], source[1])
    moved = root.rename(tmp_path / "moved")
    assert FolderPictures(parts(moved)).fingerprint == source.fingerprint
    assert FolderPictures(parts(moved, background=1)).fingerprint != source.fingerprint
    for name in ("images", "parts"):
        (moved / name / f"{people[0].id}.png").unlink()
    assert FolderPictures(parts(moved)).fingerprint != source.fingerprint
