"""Drawn frames are functions of their key, stay within their ranges, and happen as often as asked."""

from __future__ import annotations

import numpy as np
import pytest

from training.tasks.frames import Frame, crop_around, letterbox, stretch
from training.tasks.keypoint_sets import keypoint_set
from training.tasks.random_frames import (
    PARTS_FRAMES,
    DenseFrameConfig,
    PoseFrameConfig,
    draw_dense_frame,
    draw_pose_frame,
)

SOURCE, SIZE = (90, 120), (64, 48)
BOX = (30, 20, 80, 70)
COCO = keypoint_set("coco17")
HALVES = (COCO.upper, COCO.lower)
STILL = PoseFrameConfig(
    flip_probability=0, half_body_probability=0, shift_probability=0, scale_probability=0, rotation_probability=0
)
PLAIN = DenseFrameConfig(crop_probability=0, flip_probability=0)


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def people(labelled: int = 17) -> np.ndarray:
    """Keypoints [17, 3]: upper body above, lower below."""
    keypoints = np.zeros((17, 3))
    keypoints[:11] = np.random.default_rng(0).uniform((40, 25, 2), (70, 40, 2), (11, 3))
    keypoints[11:] = np.random.default_rng(1).uniform((40, 50, 2), (70, 68, 2), (6, 3))
    keypoints[labelled:, 2] = 0
    return keypoints


def pose_frames(config: PoseFrameConfig, count: int = 300, labelled: int = 17) -> list[Frame]:
    return [draw_pose_frame(rng(key), BOX, people(labelled), HALVES, SIZE, SOURCE, config) for key in range(count)]


def test_the_same_key_gives_the_same_frame() -> None:
    for config in (DenseFrameConfig(), PARTS_FRAMES):
        first, again, other = (draw_dense_frame(rng(key), SOURCE, SIZE, config).frame.matrix for key in (3, 3, 4))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
    frames = pose_frames(PoseFrameConfig(), 4)
    np.testing.assert_array_equal(frames[3].matrix, pose_frames(PoseFrameConfig(), 4)[3].matrix)


def test_nothing_asked_for_is_the_plain_frame() -> None:
    np.testing.assert_allclose(
        draw_dense_frame(rng(0), SOURCE, SIZE, PLAIN).frame.matrix, letterbox(SOURCE, SIZE).matrix
    )
    config = PLAIN.model_copy(update={"fit": "stretch"})
    np.testing.assert_allclose(
        draw_dense_frame(rng(0), SOURCE, SIZE, config).frame.matrix, stretch(SOURCE, SIZE).matrix
    )
    np.testing.assert_allclose(pose_frames(STILL, 1)[0].matrix, crop_around(BOX, SIZE, SOURCE).matrix)


def test_crops_keep_their_share_and_aspect_of_the_picture() -> None:
    config = PLAIN.model_copy(update={"crop_probability": 1.0, "fit": "stretch", "crop_tries": 100})
    shares, aspects = [], []
    for key in range(200):
        frame = draw_dense_frame(rng(key), SOURCE, SIZE, config).frame
        x0, y0, x1, y1 = frame.inverse().boxes((0, 0, SIZE[1], SIZE[0]))
        assert min(x0, y0) > -0.01
        assert (x1, y1) < (120.01, 90.01)
        shares.append((x1 - x0) * (y1 - y0) / (90 * 120))
        aspects.append((x1 - x0) / (y1 - y0))
    assert 0.38 < min(shares) < 0.5
    assert 0.8 < max(shares) <= 1.001
    assert 0.48 < min(aspects) < 0.7
    assert 1.4 < max(aspects) < 2.05


def test_flips_and_rotations_come_as_often_as_asked() -> None:
    frames = [draw_dense_frame(rng(key), SOURCE, SIZE, PARTS_FRAMES).frame for key in range(400)]
    assert 0.42 < np.mean([frame.flipped for frame in frames]) < 0.58
    assert 0.42 < np.mean([not frame.axis_aligned for frame in frames]) < 0.58
    posed = pose_frames(PoseFrameConfig(), 400)
    assert 0.42 < np.mean([frame.flipped for frame in posed]) < 0.58
    assert 0.52 < np.mean([not frame.axis_aligned for frame in posed]) < 0.68


def test_a_window_that_is_not_accepted_is_drawn_again_at_the_same_zoom() -> None:
    seen: list[Frame] = []
    zoomed = PLAIN.model_copy(update={"zoom_probability": 1.0, "zoom": (2.0, 2.0), "fit": "stretch"})

    def accept(frame: Frame) -> bool:
        seen.append(frame)
        return len(seen) == 3

    frame, window = draw_dense_frame(rng(1), SOURCE, SIZE, zoomed, accept)
    assert window is seen[2]
    assert len(seen) == 3
    assert len({found.scale for found in seen}) == 1
    assert len({tuple(found.matrix[:, 2]) for found in seen}) == 3
    np.testing.assert_allclose(frame.matrix, window.matrix)
    draw_dense_frame(rng(1), SOURCE, SIZE, zoomed, lambda frame: bool(seen.append(frame)))
    assert len(seen) == 3 + 10
    # What is not zoomed is taken whole, whatever it shows.
    draw_dense_frame(rng(1), SOURCE, SIZE, PLAIN, lambda frame: bool(seen.append(frame)))
    assert len(seen) == 13


def test_scales_shifts_and_rotations_stay_within_their_ranges_and_use_them() -> None:
    plain = crop_around(BOX, SIZE, SOURCE)
    scaled = pose_frames(STILL.model_copy(update={"scale_probability": 1.0}))
    factors = [plain.scale / frame.scale for frame in scaled]
    assert 0.5 <= min(factors) < 0.6
    assert 1.4 < max(factors) <= 1.5
    turned = pose_frames(STILL.model_copy(update={"rotation_probability": 1.0}))
    angles = [np.rad2deg(np.arctan2(frame.matrix[1, 0], frame.matrix[0, 0])) for frame in turned]
    assert -80.5 <= min(angles) < -60
    assert 60 < max(angles) <= 80.5
    shifted = pose_frames(STILL.model_copy(update={"shift_probability": 1.0}))
    centres = np.array([frame.points_back((23.5, 31.5)) for frame in shifted]) - (54.5, 44.5)
    reach = 0.16 * 1.25 * 50
    assert (np.abs(centres) <= reach + 1e-9).all()
    assert (centres.max(0) > 0.8 * reach).all()
    assert (centres.min(0) < -0.8 * reach).all()


def test_half_a_body_is_the_upper_one_more_often_and_holds_its_keypoints() -> None:
    frames = pose_frames(STILL.model_copy(update={"half_body_probability": 1.0}))
    keypoints = people()
    heights = [frame.points_back((23.5, 31.5))[1] for frame in frames]
    np.testing.assert_allclose(sorted(set(np.round(heights, 6))), [keypoints[:11, 1].mean(), keypoints[11:, 1].mean()])
    assert 0.62 < np.mean(np.array(heights) < 45) < 0.78
    upper = frames[int(np.argmin(heights))]
    assert upper.contains(upper.points(keypoints[:11, :2])).all()


def test_too_few_keypoints_for_half_a_body_leave_the_box() -> None:
    frames = pose_frames(STILL.model_copy(update={"half_body_probability": 1.0}), 20, labelled=8)
    for frame in frames:
        np.testing.assert_allclose(frame.matrix, crop_around(BOX, SIZE, SOURCE).matrix)


def test_only_the_half_that_is_labelled_is_chosen() -> None:
    frames = pose_frames(STILL.model_copy(update={"half_body_probability": 1.0}), 60, labelled=11)
    for frame in frames:
        np.testing.assert_allclose(frame.points_back((23.5, 31.5))[1], people()[:11, 1].mean())


@pytest.mark.parametrize("values", [{"crop_area": (0.5, 1.5)}, {"zoom": (2, 1)}, {"crop_aspect": (0, 1)}])
def test_ranges_are_checked(values: dict[str, tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        DenseFrameConfig(**values)  # type: ignore[arg-type]
