"""Pictures of dense predictions: colours where they belong, and nothing where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest

from training.tasks import dense_pictures as pictures
from training.tasks.parts import PartClasses

IMAGE = np.full((2, 3, 3), 40, np.uint8)


def test_every_class_has_its_own_colour() -> None:
    colours = pictures.palette(PartClasses())
    assert colours.shape == (29, 3)
    assert colours[0].tolist() == [0, 0, 0]
    distances = np.abs(colours[:, None].astype(int) - colours[None]).sum(-1) + 999 * np.eye(29, dtype=int)
    assert distances.min() > 15
    assert (colours[14].max(), colours[5].max()) == (153, 255)  # the right foot is the darker of the pair
    assert pictures.palette(PartClasses(names=("a", "b"), background=None)).any(axis=1).all()


def test_parts_keep_the_image_on_the_background() -> None:
    labels = np.array([[0, 5, 255], [0, 0, 14]], np.uint8)
    picture = pictures.parts_picture(IMAGE, labels, PartClasses())
    assert picture.dtype == np.uint8
    assert (picture[labels == 0] == 40).all()
    np.testing.assert_allclose(picture[0, 1], 20 + pictures.palette(PartClasses())[5] / 2, atol=1)
    assert picture[0, 2].tolist() == [148, 148, 148]
    with pytest.raises(ValueError, match="sizes differ"):
        pictures.parts_picture(IMAGE, labels[:1], PartClasses())


def test_normals_as_colours() -> None:
    normals = np.zeros((1, 3, 3), np.float32)
    normals[0, :2] = ((1, 0, 0), (0, 0, -1))
    mask = np.array([[True, True, False]])
    assert pictures.normals_picture(normals, mask).tolist() == [[[255, 128, 128], [128, 128, 0], [0, 0, 0]]]
    assert pictures.normals_picture(normals, mask, np.full((1, 3, 3), 9, np.uint8))[0, 2].tolist() == [9, 9, 9]


def test_near_is_red_and_far_is_blue_between_shared_bounds() -> None:
    depth = np.array([[1.0, 2.0, 4.0, 0.0, np.nan]], np.float32)
    picture = pictures.depth_picture(depth, bounds=(1.0, 4.0)).astype(int)
    assert picture[0, 0, 0] > picture[0, 0, 2]
    assert picture[0, 2, 2] > picture[0, 2, 0]
    assert (picture[0, 3:] == 0).all()
    beyond = pictures.depth_picture(np.array([[0.5, 9.0]], np.float32), bounds=(1.0, 4.0))
    assert beyond.tolist() == [[picture[0, 0].tolist(), picture[0, 2].tolist()]]
    with pytest.raises(ValueError, match="near <= far"):
        pictures.depth_picture(depth, bounds=(4.0, 1.0))


def test_bounds_are_percentiles_within_limits() -> None:
    depth = np.linspace(1, 2, 101, dtype=np.float32)[None]
    assert pictures.depth_bounds(depth) == pytest.approx((1.01, 1.99))
    assert pictures.depth_bounds(np.array([[0.01] * 50 + [900.0] * 50], np.float32)) == pytest.approx((0.1, 250.0))
    assert pictures.depth_bounds(np.zeros((2, 2), np.float32)) == (0.1, 250.0)


def test_albedo_beside_the_image() -> None:
    albedo = np.array([[[0.0, 0.5, 1.0], [2.0, -1.0, np.nan]]], np.float32)
    image = IMAGE[:1, :2]
    plain = pictures.albedo_picture(image, albedo, linear=False)
    assert plain.tolist() == [[[40] * 3, [40] * 3, [0, 128, 255], [255, 0, 0]]]
    assert pictures.albedo_picture(image, albedo)[0, 2].tolist() == [0, 188, 255]  # sRGB of 0.5 is 188
    masked = pictures.albedo_picture(image, albedo, np.array([[True, False]]))
    assert masked[0, 3].tolist() == [100] * 3
