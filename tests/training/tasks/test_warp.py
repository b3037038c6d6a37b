"""Pixels move as points do, labels stay labels, and predictions come back to where they were."""

from __future__ import annotations

import numpy as np
import pytest

from training.data.labelled import Picture, pointmap
from training.tasks.frames import Frame, crop, crop_around, identity, letterbox, mirror, rotate, stretch
from training.tasks.warp import move, restore, warp, warp_labels, warp_normals, warp_points

SOURCE = (90, 120)
FRAMES = {
    "crop": crop_around((30, 20, 80, 70), (96, 72), SOURCE, rotation=25, flip=True),
    "turned": crop_around((30, 20, 80, 70), (96, 96), SOURCE, rotation=-140),
    "letterbox": letterbox(SOURCE, (100, 160)),
    "small": letterbox(SOURCE, (64, 48)),
    "stretch": stretch(SOURCE, (130, 60)),
    "mirror": mirror(SOURCE),
    "rotate": rotate(SOURCE, 45),
}


def centroid(image: np.ndarray) -> np.ndarray:
    """Centre of mass (x, y)."""
    y, x = np.indices(image.shape)
    return np.array(((image * x).sum(), (image * y).sum())) / image.sum()


def spot(x: float, y: float, sigma: float = 4.0) -> np.ndarray:
    """A smooth dot on a picture, float32."""
    rows, columns = np.indices(SOURCE)
    return np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * sigma**2)).astype(np.float32)


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("interpolation", ["linear", "cubic", "area", "auto", "warp"])
def test_a_dot_is_found_where_its_keypoint_went(name: str, interpolation: str) -> None:
    frame, point = FRAMES[name], (57.3, 43.8)
    found = centroid(warp(spot(*point), frame, interpolation))
    np.testing.assert_allclose(found, frame.points(point), atol=0.06)


def slow_nearest(array: np.ndarray, frame: Frame, border: float) -> np.ndarray:
    """Pixel by pixel."""
    result = np.full((*frame.size, *array.shape[2:]), border, array.dtype)
    matrix = frame.inverse().matrix
    for v in range(frame.size[0]):
        for u in range(frame.size[1]):
            x, y = (int(np.rint(row @ (u, v, 1))) for row in matrix)
            if 0 <= x < array.shape[1] and 0 <= y < array.shape[0]:
                result[v, u] = array[y, x]
    return result


@pytest.mark.parametrize("name", ["crop", "small", "mirror"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, bool])
def test_labels_are_those_of_the_nearest_pixel(name: str, dtype: type) -> None:
    frame = FRAMES[name]
    array = np.random.default_rng(0).integers(0, 2 if dtype is bool else 200, SOURCE).astype(dtype)
    moved, expected = warp(array, frame, "nearest", 0), slow_nearest(array, frame, 0)
    assert moved.dtype == dtype
    # Halves between two pixels may go either way.
    assert (moved == expected).mean() > 0.99


def test_shrinking_by_area_is_the_mean_of_the_pixels_under_each() -> None:
    image = np.random.default_rng(1).integers(0, 256, (*SOURCE, 3), dtype=np.uint8)
    small = warp(image, stretch(SOURCE, (30, 40)), "area")
    blocks = image.reshape(30, 3, 40, 3, 3).mean((1, 3))
    assert np.abs(small - blocks).max() <= 0.51
    # A crop that shrinks a checkerboard 3 to 1 is grey, without a pattern.
    board = ((np.indices(SOURCE).sum(0) % 2) * 200).astype(np.uint8)
    frame = crop_around((24, 18, 96, 72), (18, 24), SOURCE)
    assert np.ptp(warp(board, frame, "area").astype(int)) < 40
    assert np.ptp(warp(board, frame, "linear").astype(int)) > 60


def test_many_channels_and_borders() -> None:
    array = np.random.default_rng(2).random((*SOURCE, 29)).astype(np.float32)
    frame = letterbox(SOURCE, (64, 48))
    moved = warp(array, frame, "linear", border=-7)
    assert moved.shape == (64, 48, 29)
    assert (moved[0] == -7).all()
    np.testing.assert_allclose(moved[..., 17], warp(array[..., 17], frame, "linear", border=-7), rtol=1e-6)
    repeated = warp(array, frame, "linear", border=None)
    np.testing.assert_allclose(repeated[0], repeated[9], rtol=1e-5)


def test_mirrored_labels_exchange_classes_and_keep_ignore() -> None:
    labels = np.zeros(SOURCE, np.uint8)
    labels[:, :40], labels[:, 100:] = 1, 255
    moved = warp_labels(labels, mirror(SOURCE), flip=[0, 2, 1])
    np.testing.assert_array_equal(np.unique(moved[:, 80:]), 2)
    np.testing.assert_array_equal(np.unique(moved[:, :20]), 255)
    assert not moved[:, 20:80].any()
    np.testing.assert_array_equal(warp_labels(moved, mirror(SOURCE), flip=[0, 2, 1]), labels)
    with pytest.raises(ValueError, match="left <-> right"):
        warp_labels(labels, mirror(SOURCE))


def plane_picture() -> Picture:
    """A slanted plane: depth, normals and points agree with each other."""
    camera = np.array(((130.0, 0, 57), (0, 130, 46), (0, 0, 1)))
    normal = np.array((0.3, -0.4, -1.0)) / np.linalg.norm((0.3, -0.4, -1.0))
    rows, columns = np.indices(SOURCE, dtype=np.float64)
    rays = np.stack(((columns - 57) / 130, (rows - 46) / 130, np.ones(SOURCE)), -1)
    depth = (-2.0 / (rays @ normal)).astype(np.float32)  # normal . x = -2
    return Picture(
        image=np.random.default_rng(3).integers(0, 256, (*SOURCE, 3), dtype=np.uint8),
        mask=np.ones(SOURCE, bool),
        person=np.zeros(SOURCE, np.int16),
        parts=np.ones(SOURCE, np.uint8),
        normals=np.broadcast_to(normal, (*SOURCE, 3)).astype(np.float32),
        depth=depth,
        albedo=np.full((*SOURCE, 3), 0.5, np.float32),
        intrinsics=camera,
        keypoints=np.array([[[40, 30, 2], [70, 50, 1]]], np.float32),
        boxes=np.array([[30, 20, 80, 70]], np.float32),
        areas=np.array([2500], np.float32),
        id="plane",
    )


@pytest.mark.parametrize("name", FRAMES)
def test_a_moved_picture_agrees_with_itself(name: str) -> None:
    picture, frame = plane_picture(), FRAMES[name]
    moved = move(picture, frame, flip_keypoints=[1, 0], flip_parts=[0, 2, 1])
    assert moved.size == frame.size
    assert moved.normals is not None
    assert moved.depth is not None
    assert moved.intrinsics is not None
    assert moved.keypoints is not None
    # Unprojected by the moved camera, the moved depth is the plane with the moved normal. The nearest pixel is up to
    # 0.7 picture pixels away, where the depth differs by less than 2 %.
    mask = moved.mask
    rows, columns = np.indices(frame.size)
    pixels = np.stack((columns, rows, np.ones(frame.size)), -1)
    points = (pixels @ np.linalg.inv(moved.intrinsics).T * moved.depth[..., None])[mask]
    np.testing.assert_allclose((points * moved.normals[mask]).sum(-1), -2, rtol=0.02)
    np.testing.assert_allclose(np.linalg.norm(moved.normals[mask], axis=-1), 1, atol=1e-6)
    # The pointmap turned with the frame is the same as unprojecting there, up to the nearest pixel.
    assert picture.depth is not None
    assert picture.intrinsics is not None
    turned = warp_points(pointmap(picture.depth, picture.intrinsics), frame, picture.intrinsics)[mask]
    np.testing.assert_allclose(turned, points, atol=0.05)
    np.testing.assert_array_equal(turned[:, 2], moved.depth[mask])
    expected = 2 if frame.flipped else 1
    np.testing.assert_array_equal(np.unique(moved.parts[mask]), expected)  # type: ignore[index]
    assert (moved.parts[~mask] == 255).all()  # type: ignore[index]
    order = [1, 0] if frame.flipped else [0, 1]
    np.testing.assert_allclose(moved.keypoints[0, :, :2], frame.points([[40, 30], [70, 50]])[order], rtol=1e-5)
    assert not moved.depth[~mask].any()


def test_normals_are_negated_in_a_mirror_and_turn_with_the_picture() -> None:
    normals = np.zeros((9, 9, 3), np.float32)
    normals[4, 4] = (0.6, 0, -0.8)
    np.testing.assert_allclose(warp_normals(normals, mirror((9, 9)))[4, 4], (-0.6, 0, -0.8))
    np.testing.assert_allclose(warp_normals(normals, rotate((9, 9), 90))[4, 4], (0, 0.6, -0.8), atol=1e-6)
    np.testing.assert_array_equal(warp_normals(normals, stretch((9, 9), (9, 9))), normals)


@pytest.mark.parametrize("name", ["letterbox", "stretch", "mirror", "small"])
def test_a_prediction_comes_back_to_its_place(name: str) -> None:
    frame = FRAMES[name]
    rows, columns = np.indices(SOURCE)
    smooth = np.stack((columns, rows), -1).astype(np.float32)
    back = restore(warp(smooth, frame, "linear", border=None), frame)
    assert back.shape == smooth.shape
    inner = (slice(4, -4), slice(4, -4))
    np.testing.assert_allclose(back[inner], smooth[inner], atol=0.1)


def test_padding_is_mixed_into_no_pixel_of_the_picture() -> None:
    frame = letterbox(SOURCE, (64, 48))
    prediction = warp(np.ones(SOURCE, np.float32), frame, "nearest", border=-1000)
    np.testing.assert_array_equal(restore(prediction, frame), 1)


def test_bad_input_says_what_is_allowed() -> None:
    frame = identity(SOURCE)
    with pytest.raises(ValueError, match=r"the frame is for pictures of \(90, 120\)"):
        warp(np.zeros((5, 5)), frame)
    with pytest.raises(ValueError, match="use one of nearest"):
        warp(np.zeros(SOURCE), frame, "lanczos")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bool mask"):
        warp(np.zeros(SOURCE, bool), frame, "linear")
    with pytest.raises(ValueError, match="too large"):
        warp(np.zeros(SOURCE, np.uint8), crop(SOURCE, (0, 0, 40_000, 1)))
    with pytest.raises(ValueError, match="the prediction is"):
        restore(np.zeros((5, 5)), frame)
