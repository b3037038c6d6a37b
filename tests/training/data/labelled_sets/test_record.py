from dataclasses import replace

import numpy as np
import pytest

from training.data.labelled import Picture
from training.data.labelled_sets.problem import LabelError
from training.data.labelled_sets.record import Record, npy, picture, png, record_of, unit_normals


def test_any_picture_survives_its_files(people, same):
    for original in people:
        same(picture(record_of(original)), original)


def test_a_picture_without_labels(same):
    image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    bare = Picture(image=image, mask=np.zeros((4, 5), bool), person=np.full((4, 5), -1, np.int16), id="bare")
    same(picture(record_of(bare)), bare)
    empty = replace(bare, keypoints=np.zeros((0, 17, 3), np.float32), boxes=np.zeros((0, 4), np.float32))
    same(picture(record_of(empty)), empty)


def test_a_mask_beyond_the_known_people(people, same):
    original = replace(people[0], mask=np.ones_like(people[0].mask))
    same(picture(record_of(original)), original)


def test_normals_become_unit_vectors_on_the_mask():
    raw = np.array([[[0, 0, -2], [0, 0.6, -0.8], [np.nan, 0, -1], [0.01, 0, 0], [0, 0, -1]]], np.float32)
    mask = np.array([[True, True, True, True, False]])
    expected = np.zeros_like(raw)
    expected[0, 0], expected[0, 1] = (0, 0, -1), raw[0, 1]
    np.testing.assert_array_equal(unit_normals(raw, mask), expected)


def test_depth_and_albedo_are_cleaned():
    image = np.zeros((1, 4, 3), np.uint8)
    files = {
        "image": png(image, "image"),
        "mask": png(np.array([[1, 1, 1, 0]], np.uint8), "mask"),
        "depth": npy(np.array([[2.5, np.nan, -1, 3]], np.float32), "depth"),
        "albedo": npy(np.array([[[np.inf, 0.5, 0]] * 4], np.float32), "albedo"),
    }
    read = picture(Record("a", files, {"mask_from": "mask"}))
    assert read.depth.tolist() == [[2.5, 0, 0, 0]]
    assert read.albedo[0, 0].tolist() == [0, 0.5, 0]
    assert read.person.tolist() == [[0, 0, 0, -1]]


def test_part_masks_say_who_is_a_person():
    parts = np.array([[0, 3, 255, 1]], np.uint8)
    files = {"image": png(np.zeros((1, 4, 3), np.uint8), "image"), "parts": png(parts, "parts")}
    read = picture(Record("a", files, {"mask_from": "parts", "background": 0, "classes": 4}))
    assert read.mask.tolist() == [[False, True, False, True]]
    assert picture(Record("a", files, {"mask_from": "parts"})).mask.tolist() == [[True, True, False, True]]
    with pytest.raises(LabelError, match=r"parts\.png: holds part ids \[3\], but classes are 0\.\.2 and 255"):
        picture(Record("a", files, {"classes": 3}))


def test_sizes_are_compared_and_a_turned_label_is_told():
    files = {"image": png(np.zeros((4, 6, 3), np.uint8), "image"), "mask": png(np.zeros((6, 4), np.uint8), "mask")}
    with pytest.raises(LabelError, match=r"mask\.png: is 4 x 6 pixels, its image 6 x 4 .*EXIF"):
        picture(Record("a", files, {"mask_from": "mask"}))
    files["mask"] = png(np.zeros((4, 5), np.uint8), "mask")
    with pytest.raises(LabelError, match="labels are never resized"):
        picture(Record("a", files, {"mask_from": "mask"}))
