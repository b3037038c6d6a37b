"""Frames move points, boxes and the camera together, exactly, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.tasks.frames import Frame, crop, crop_around, identity, letterbox, mirror, rotate, stretch

SOURCE = (90, 120)
sides = st.integers(20, 200)
sizes = st.tuples(sides, sides)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Any chain of the builders."""
    frame = identity(draw(sizes))
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["crop_around", "letterbox", "stretch", "crop", "rotate", "mirror"]))
        size = frame.size
        if kind == "crop_around":
            left, top = draw(st.floats(-10, 50)), draw(st.floats(-10, 50))
            box = (left, top, left + draw(st.floats(5, 100)), top + draw(st.floats(5, 100)))
            step = crop_around(
                box,
                draw(sizes),
                size,
                rotation=draw(st.floats(-180, 180)),
                scale=draw(st.floats(0.5, 1.5)),
                shift=(draw(st.floats(-0.2, 0.2)), draw(st.floats(-0.2, 0.2))),
                flip=draw(st.booleans()),
            )
        elif kind in ("letterbox", "stretch"):
            step = {"letterbox": letterbox, "stretch": stretch}[kind](size, draw(sizes))
        elif kind == "crop":
            step = crop(size, (draw(st.integers(-5, 15)), draw(st.integers(-5, 15)), draw(sides), draw(sides)))
        elif kind == "rotate":
            step = rotate(size, draw(st.floats(-180, 180)))
        else:
            step = mirror(size)
        frame = frame.then(step)
    return frame


@settings(max_examples=60, deadline=None)
@given(frames(), st.floats(0.6, 2), st.integers(0, 2**31))
def test_a_3d_point_seen_by_the_moved_camera_is_the_moved_keypoint(frame: Frame, aspect: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    camera = np.array(((150.0, 0, 55), (0, 150 * aspect, 40), (0, 0, 1)))
    points = rng.uniform((-1, -1, 2), (1, 1, 6), (20, 3))
    pixels = points @ camera.T
    moved_camera, turn = frame.intrinsics(camera), frame.rotation(camera)
    turned = points @ turn.T
    again = turned @ moved_camera.T
    np.testing.assert_allclose(again[:, :2] / again[:, 2:], frame.points(pixels[:, :2] / pixels[:, 2:]), atol=1e-6)
    np.testing.assert_array_equal(turned[:, 2], points[:, 2])
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)
    assert np.sign(np.linalg.det(turn)) == (-1 if frame.flipped else 1)
    assert moved_camera[0, 0] > 0
    assert moved_camera[1, 1] > 0
    assert moved_camera[1, 0] == 0


@settings(max_examples=60, deadline=None)
@given(frames(), st.integers(0, 2**31))
def test_the_inverse_and_compositions_are_exact(frame: Frame, seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-20, 200, (3, 5, 2))
    there = frame.points(points)
    assert there.shape == points.shape
    np.testing.assert_allclose(frame.points_back(there), points, atol=1e-6)
    np.testing.assert_allclose(frame.inverse().points(there), points, atol=1e-6)
    assert frame.inverse().size == frame.source
    other = stretch(frame.size, (33, 71))
    np.testing.assert_allclose(frame.then(other).points(points), other.points(there), atol=1e-6)
    twice = frame.mirrored().mirrored()
    np.testing.assert_allclose(twice.matrix, frame.matrix, atol=1e-9)
    assert frame.mirrored().flipped != frame.flipped


def test_mirrored_keypoints_exchange_left_and_right_and_come_back() -> None:
    flip = [0, 2, 1]
    keypoints = np.array([[[10, 5, 2], [3, 4, 1], [100, 80, 2]]], np.float32)
    once = mirror(SOURCE).keypoints(keypoints, flip)
    np.testing.assert_array_equal(once, [[[109, 5, 2], [19, 80, 2], [116, 4, 1]]])
    np.testing.assert_array_equal(mirror(SOURCE).keypoints(once, flip), keypoints)
    assert once.dtype == np.float32
    with pytest.raises(ValueError, match="flip permutation is missing"):
        mirror(SOURCE).keypoints(keypoints)


def test_keypoints_that_leave_the_frame_are_not_labelled() -> None:
    keypoints = np.array([[9.6, 20, 2], [9.4, 20, 2], [20, 20, 0], [29.4, 20, 1], [29.6, 20, 2]])
    moved = crop(SOURCE, (10, 10, 20, 20)).keypoints(keypoints)
    np.testing.assert_allclose(moved, [[-0.4, 10, 2], [0, 0, 0], [0, 0, 0], [19.4, 10, 1], [0, 0, 0]])


def test_boxes_are_edges_of_pixels() -> None:
    whole = (0, 0, 120, 90)
    np.testing.assert_allclose(mirror(SOURCE).boxes(whole), whole, atol=1e-5)
    np.testing.assert_allclose(
        stretch(SOURCE, (45, 30)).boxes([whole, (40, 30, 80, 60)]), [[0, 0, 30, 45], [10, 15, 20, 30]]
    )
    np.testing.assert_allclose(rotate((90, 90), 90).boxes((0, 0, 30, 10)), (80, 0, 90, 30), atol=1e-4)
    np.testing.assert_allclose(crop(SOURCE, (10, 10, 20, 20)).boxes(whole, clip=True), (0, 0, 20, 20))


def test_a_crop_pads_the_box_and_keeps_its_aspect() -> None:
    frame = crop_around((20, 30, 60, 50), (64, 48), SOURCE)
    # 40 x 20 pixels, times 1.25, the height grown to 4 : 3; the centre stays in the middle.
    np.testing.assert_allclose(frame.points((39.5, 39.5)), (23.5, 31.5))
    np.testing.assert_allclose(frame.points_back((0, 0)), (39.5 - 25, 39.5 - 100 / 3), atol=1e-9)
    np.testing.assert_allclose(frame.points_back((47, 63)), (39.5 + 25, 39.5 + 100 / 3), atol=1e-9)
    turned = crop_around((20, 30, 60, 50), (64, 64), SOURCE, rotation=90)
    assert turned.points((49.5, 39.5))[1] > 32, "to the right becomes below: clockwise"
    shifted = crop_around((20, 30, 60, 50), (64, 48), SOURCE, shift=(0.1, 0), scale=2)
    np.testing.assert_allclose(shifted.points_back((23.5, 31.5)), (39.5 + 5, 39.5))
    np.testing.assert_allclose(shifted.points_back((47, 31.5)), (44.5 + 50, 39.5))


def test_a_letterbox_keeps_the_aspect_in_the_middle_and_rounds_as_asked() -> None:
    frame = letterbox((90, 120), (64, 48))
    np.testing.assert_allclose(frame.boxes((0, 0, 120, 90)), (0, 14, 48, 50), atol=1e-5)
    rounded, truncated = (letterbox((101, 60), (64, 48), how) for how in ("round", "truncate"))
    np.testing.assert_allclose(rounded.boxes((0, 0, 60, 101)), (5, 0, 43, 64), atol=1e-5)  # 60 * 64 / 101 = 38.02
    np.testing.assert_allclose(truncated.boxes((0, 0, 60, 101)), (5, 0, 43, 64), atol=1e-5)
    rounded, truncated = (letterbox((100, 59), (64, 48), how) for how in ("round", "truncate"))  # 37.76
    assert rounded.boxes((0, 0, 59, 100))[2] - rounded.boxes((0, 0, 59, 100))[0] == pytest.approx(38)
    assert truncated.boxes((0, 0, 59, 100))[2] - truncated.boxes((0, 0, 59, 100))[0] == pytest.approx(37)
    np.testing.assert_allclose(letterbox((4096, 3072), (1024, 768), "truncate").scale, 0.25)


def test_an_upright_unmirrored_frame_leaves_the_world_alone_and_has_no_skew() -> None:
    camera = np.array(((100.0, 0, 60), (0, 100, 45), (0, 0, 1)))
    frame = letterbox(SOURCE, (200, 150))
    np.testing.assert_array_equal(frame.rotation(camera), np.eye(3))
    moved = frame.intrinsics(camera)
    assert moved[0, 1] == 0
    # Borders of pixels meet: cx + 0.5 scales, not cx.
    np.testing.assert_allclose(moved[0, 2] + 0.5, 60.5 * 150 / 120)
    mirrored = mirror(SOURCE)
    np.testing.assert_array_equal(mirrored.rotation(camera), np.diag((-1.0, 1, 1)))
    np.testing.assert_allclose(mirrored.intrinsics(camera), ((100, 0, 119 - 60), (0, 100, 45), (0, 0, 1)))
    assert rotate(SOURCE, 37).intrinsics(camera)[0, 1] == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Frame(np.zeros((2, 3)), (4, 4), (4, 4)), "needs an inverse"),
        (lambda: Frame(np.full((2, 3), np.nan), (4, 4), (4, 4)), "finite"),
        (lambda: Frame(np.eye(2, 3), (0, 4), (4, 4)), "at least 1"),
        (lambda: crop_around((5, 5, 5, 9), (8, 8), SOURCE), "x0 < x1"),
        (lambda: identity(SOURCE).then(identity((5, 5))), "cannot be followed"),
        (lambda: identity(SOURCE).intrinsics(np.eye(2)), r"give \[\[fx"),
        (lambda: identity(SOURCE).points(np.zeros(3)), r"\[..., 2\]"),
    ],
)
def test_bad_input_says_what_is_allowed(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
