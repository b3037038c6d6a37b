"""Files are read back by other programs as what was written."""

from __future__ import annotations

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image as PillowImage

from training.prediction import formats


def read_ply(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """A reader of its own: text header, then 15 bytes a vertex."""
    head, body = data.split(b"end_header\n", 1)
    lines = head.decode().splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    count = int(next(line for line in lines if line.startswith("element vertex")).split()[-1])
    kinds = [line.split()[1] for line in lines if line.startswith("property")]
    assert kinds == ["float"] * 3 + ["uchar"] * 3
    assert len(body) == 15 * count
    rows = np.frombuffer(body, np.uint8).reshape(count, 15)
    return np.ascontiguousarray(rows[:, :12]).view("<f4"), rows[:, 12:]


def test_a_point_cloud_has_the_foreground_before_the_camera_in_its_colours() -> None:
    rng = np.random.Generator(np.random.Philox(key=1))
    points = rng.uniform(-1, 1, (5, 7, 3)).astype(np.float32)
    points[..., 2] += 2
    points[0, 0], points[1, 1, 2], points[2, 2, 0] = 0, -1, np.nan
    image = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    mask = rng.uniform(size=(5, 7)) < 0.8
    mask[0, 0] = mask[1, 1] = mask[2, 2] = True
    wanted = [
        (row, column)
        for row in range(5)
        for column in range(7)
        if mask[row, column] and (row, column) not in ((0, 0), (1, 1), (2, 2))
    ]
    xyz, rgb = read_ply(formats.ply(points, image, mask))
    np.testing.assert_array_equal(xyz, [points[place] for place in wanted])
    np.testing.assert_array_equal(rgb, [image[place] for place in wanted])
    assert len(read_ply(formats.ply(points, image))[0]) == 32
    assert len(read_ply(formats.ply(points, image, np.zeros((5, 7), bool)))[0]) == 0


def test_an_index_png_holds_classes_and_shows_colours() -> None:
    labels = np.array([[0, 1, 2], [2, 28, 255]], np.uint8)
    palette = np.arange(29 * 3, dtype=np.uint8).reshape(29, 3)
    picture = PillowImage.open(io.BytesIO(formats.index_png(labels, palette)))
    assert picture.mode == "P"
    np.testing.assert_array_equal(np.asarray(picture), labels)
    colours = np.asarray(picture.convert("RGB"))
    np.testing.assert_array_equal(colours[1, 1], palette[28])
    assert colours[1, 2].tolist() == [255, 255, 255]


def test_coded_normals_and_depth_read_back_to_their_precision() -> None:
    rng = np.random.Generator(np.random.Philox(key=2))
    normals = rng.normal(size=(6, 4, 3))
    normals = (normals / np.linalg.norm(normals, axis=-1, keepdims=True)).astype(np.float32)
    normals[0, 0] = 0
    png = cv2.imdecode(np.frombuffer(formats.rgb_png(formats.coded_normals(normals)), np.uint8), cv2.IMREAD_UNCHANGED)
    assert png.dtype == np.uint16
    back = formats.decoded_normals(png[..., ::-1])
    assert np.abs(back - normals).max() < 1.7e-5
    assert back[0, 0].tolist() == [0, 0, 0]
    depth = np.array([[0.0, 1.2345, 65.535, 70.0, -3.0, np.nan]], np.float32)
    coded = cv2.imdecode(np.frombuffer(formats.rgb_png(formats.coded_depth(depth)), np.uint8), cv2.IMREAD_UNCHANGED)
    assert coded.tolist() == [[0, 1234, 65535, 65535, 0, 0]] or coded.tolist() == [[0, 1235, 65535, 65535, 0, 0]]


def test_exr_keeps_every_bit_under_the_names_that_viewers_know(tmp_path: Path) -> None:
    openexr = pytest.importorskip("OpenEXR")
    rng = np.random.Generator(np.random.Philox(key=3))
    normals = rng.normal(size=(5, 7, 3)).astype(np.float32)[:, ::-1]
    path = tmp_path / "file.exr"
    path.write_bytes(formats.exr({"RGB": normals}))
    with openexr.File(str(path), separate_channels=True) as file:
        for name, axis in zip("RGB", range(3), strict=True):
            np.testing.assert_array_equal(file.channels()[name].pixels, normals[..., axis])
    path.write_bytes(formats.exr({"Z": normals[..., 0]}))
    with openexr.File(str(path)) as file:
        assert list(file.channels()) == ["Z"]
        np.testing.assert_array_equal(file.channels()["Z"].pixels, normals[..., 0])


def test_without_its_package_exr_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'populace\[exr\]'"):
        formats.exr({"Z": np.zeros((2, 2), np.float32)})


def test_npy_and_jpeg() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 4, 3)[:, ::2]
    np.testing.assert_array_equal(np.load(io.BytesIO(formats.npy(values))), values)
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 200
    back = np.asarray(PillowImage.open(io.BytesIO(formats.jpeg(red, 95))))
    np.testing.assert_allclose(back.mean((0, 1)), (200, 0, 0), atol=4)
