import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from training.data.labelled_sets import members
from training.data.labelled_sets.problem import LabelError
from training.data.people.light import srgb


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def colour_png(array):
    """With OpenCV, which takes BGR."""
    return cv2.imencode(".png", array[..., ::-1] if array.ndim == 3 else array)[1].tobytes()


IDS = np.arange(12, dtype=np.uint8).reshape(3, 4)


def saved(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_index_masks_of_every_form_keep_their_ids(png):
    palette = Image.fromarray(IDS).convert("P")
    palette = Image.frombytes("P", (4, 3), IDS.tobytes())
    palette.putpalette([value for index in range(256) for value in (255 - index, 7, index)])
    for data in (png(IDS), saved(palette), png(np.repeat(IDS[..., None], 3, axis=2)), png(IDS.astype(np.uint16))):
        np.testing.assert_array_equal(members.indices(data, "a.png"), IDS)
    bits = IDS > 5
    np.testing.assert_array_equal(members.indices(png(bits), "a.png"), bits)


def test_colours_are_no_ids(png):
    with pytest.raises(LabelError, match=r"a\.png: has colours where ids are expected\. Save one id per pixel"):
        members.indices(png(np.arange(36, dtype=np.uint8).reshape(3, 4, 3)), "a.png")
    with pytest.raises(LabelError, match="no readable PNG"):
        members.indices(b"nonsense", "a.png")


@pytest.mark.parametrize("channels", [1, 3])
def test_transparency_is_no_id(png, channels):
    """A cut-out has its person in alpha, and anything in its grey."""
    grey, alpha = IDS[..., None].repeat(channels, 2), np.where(IDS > 5, 255, 0).astype(np.uint8)[..., None]
    with pytest.raises(LabelError, match=r"a\.png: has transparency where ids are expected\. Save one id per pixel"):
        members.indices(png(np.concatenate([grey, alpha], 2)), "a.png")
    opaque = png(np.concatenate([grey, np.full_like(alpha, 255)], 2))
    np.testing.assert_array_equal(members.indices(opaque, "a.png"), IDS)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_png_normals_are_within_half_a_step(dtype):
    rng = np.random.Generator(np.random.Philox(key=1))
    vectors = rng.normal(size=(5, 6, 3))
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    top = np.iinfo(dtype).max
    data = colour_png(np.round((vectors + 1) / 2 * top).astype(dtype))
    found = members.normals(data, "n.png", "opencv")
    assert found.dtype == np.float32
    assert np.abs(found - vectors).max() <= 1 / top + 1e-6
    np.testing.assert_array_equal(members.normals(data, "n.png", "opengl"), found * np.array((1, -1, -1)))


def test_npy_normals_are_taken_as_they_are():
    vectors = np.array([[[0.6, 0, -0.8], [np.nan, 0, 0]]], np.float32)
    np.testing.assert_array_equal(members.normals(npy(vectors), "n.npy", "opencv"), vectors)
    np.testing.assert_array_equal(members.normals(npy(vectors), "N.NPY", "opencv"), vectors)


def test_depth_in_millimetres_and_metres(png):
    millimetres = np.array([[0, 1500], [65535, 1]], np.uint16)
    expected = millimetres.astype(np.float64) / 1000
    np.testing.assert_allclose(members.depth(png(millimetres), "d.png", None), expected, rtol=1e-6)
    np.testing.assert_allclose(members.depth(png(millimetres), "d.png", 0.01), expected * 10, rtol=1e-6)
    metres = np.array([[1.25, np.nan]], np.float32)
    np.testing.assert_array_equal(members.depth(npy(metres), "d.npy", None), metres)
    np.testing.assert_allclose(members.depth(npy(metres[..., None] * 100), "d.npy", 0.01), metres, rtol=1e-6)
    with pytest.raises(LabelError, match="8 bits"):
        members.depth(png(IDS), "d.png", None)


@given(st.floats(0, 1))
def test_linear_inverts_srgb(value):
    assert members.linear(srgb(np.float32([value])).astype(np.float64))[0] == pytest.approx(value, abs=2e-6)


def test_albedo_encodings():
    pixels = np.array([[[0, 128, 255], [10, 20, 30]]], np.uint8)
    coded = pixels / 255
    slow = [
        [[v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb] for rgb in row] for row in coded
    ]
    np.testing.assert_allclose(members.albedo(colour_png(pixels), "a.png", None), slow, rtol=1e-6)
    np.testing.assert_allclose(members.albedo(colour_png(pixels), "a.png", "linear"), coded, rtol=1e-6)
    np.testing.assert_allclose(members.albedo(npy(coded), "a.npy", "srgb"), slow, rtol=1e-6)
    exact = coded.astype(np.float32)
    np.testing.assert_array_equal(members.albedo(npy(exact), "a.npy", None), exact)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4, 5), np.float32), r"\[3, 4, 5\] instead of \[H, W, 3\]"),
        (np.zeros((4, 5), np.float32), r"instead of \[H, W, 3\]"),
        (np.zeros((4, 5, 3), np.complex64), "no real numbers"),
    ],
)
def test_shapes_and_types_of_maps(array, message):
    with pytest.raises(LabelError, match=message):
        members.normals(npy(array), "n.npy", "opencv")


def test_pickles_are_not_loaded():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(LabelError, match=r"n\.npy: is no readable \.npy"):
        members.normals(buffer.getvalue(), "n.npy", "opencv")


CAMERA = [[500.0, 0, 31.5], [0, 510.0, 20], [0, 0, 1]]


@pytest.mark.parametrize(
    "value",
    [
        CAMERA,
        {"K": CAMERA},
        {"intrinsics": CAMERA, "width": 64, "height": 40},
        {"fx": 500, "fy": 510, "cx": 31.5, "cy": 20},
    ],
)
def test_forms_of_cameras(value):
    assert members.is_camera(value)
    assert members.camera(value, "c.json", (40, 64), "centre").tolist() == CAMERA
    corner = members.camera(value, "c.json", (40, 64), "corner")
    assert corner[:, 2].tolist() == [31, 19.5, 1]
    assert not members.is_camera({"a/0001": value})


def test_cameras_of_text_files():
    assert members.camera_file(b"500 0 31.5\n0 510 20\n0 0 1\n", "c.txt") == CAMERA


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"fx": 1}, "holds no camera"),
        ([[1, 2], [3, 4]], "instead of a finite 3 x 3"),
        ([[-1, 0, 0], [0, 1, 0], [0, 0, 1]], "focal lengths must be positive"),
        ([[1, 0.1, 0], [0, 1, 0], [0, 0, 1]], "skew 0"),
        ({"K": CAMERA, "width": 128, "height": 80}, "is of a picture of 128 x 80, the upright image has 64 x 40"),
        ({"K": None}, "3 x 3|no camera"),
    ],
)
def test_wrong_cameras(value, message):
    with pytest.raises(LabelError, match=message):
        members.camera(value, "c.json", (40, 64), "centre")


def test_an_unreadable_image_is_named(png):
    with pytest.raises(LabelError, match=r"i\.jpg: cannot be read: not_an_image"):
        members.image(b"<html>", "i.jpg")
    with pytest.raises(LabelError, match=r"i\.png: cannot be decoded: truncated.*Replace or remove"):
        members.image(png(np.zeros((50, 50, 3), np.uint8))[:-30], "i.png")
