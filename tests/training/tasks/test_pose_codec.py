"""Keypoints survive heatmaps to a fraction of a pixel, and mirror images of heatmaps are undone exactly."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.tasks.keypoint_sets import keypoint_set
from training.tasks.pose_codec import (
    average_flipped,
    decode,
    default_kernel,
    default_sigma,
    encode,
    flip_heatmaps,
    to_frame,
    to_heatmap,
)

SIZE = (64, 48)


def test_the_released_numbers_and_their_proportion() -> None:
    assert (default_sigma((256, 192)), default_kernel((256, 192))) == (6.0, 11)
    assert (default_sigma((64, 48)), default_kernel((64, 48))) == (1.5, 3)


def slow_heatmap(x: float, y: float, size: tuple[int, int], sigma: float) -> tuple[np.ndarray, float]:
    """The definition, pixel by pixel."""
    height, width = size
    middle_x, middle_y, radius = math.floor(x + 0.5), math.floor(y + 0.5), 3 * sigma
    result, touched = np.zeros(size), 0.0
    for row in range(height):
        for column in range(width):
            if abs(column - middle_x) <= radius and abs(row - middle_y) <= radius:
                touched = 1.0
                result[row, column] = math.exp(-((column - x) ** 2 + (row - y) ** 2) / (2 * sigma**2))
    return result, touched


@settings(max_examples=25, deadline=None)
@given(st.floats(-12, 30), st.floats(-12, 40), st.sampled_from([1.0, 1.5, 3.0]))
def test_heatmaps_are_the_definition(x: float, y: float, sigma: float) -> None:
    size = (28, 20)
    heatmap, weight = encode(torch.tensor([[x, y]], dtype=torch.float64), torch.ones(1), size, sigma)
    expected, touched = slow_heatmap(x, y, size, sigma)
    np.testing.assert_allclose(heatmap[0].numpy(), expected, atol=1e-12)
    assert weight.item() == touched


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(64, 48), (48, 64), (32, 24), (40, 40)]),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_encode_then_decode_is_within_a_tenth_of_a_pixel_up_to_the_border(
    size: tuple[int, int], x: float, y: float
) -> None:
    point = torch.tensor([[x * (size[1] - 1), y * (size[0] - 1)]])
    found, score = decode(encode(point, torch.ones(1), size)[0])
    assert (found - point).abs().max() < 0.1
    assert 0.6 < score.item() <= 1


def test_the_released_size_is_decoded_as_exactly_by_both_decoders() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(40, 2, generator=generator) * torch.tensor([191.0, 255.0])
    heatmaps, _ = encode(points, torch.ones(40), (256, 192))
    assert (decode(heatmaps, "fit")[0] - points).abs().max() < 0.01
    # The released decoder's blur takes what is beyond the border as 0.
    inner = ((points > 14) & (points < torch.tensor([177.0, 241.0]))).all(-1)
    assert inner.sum() > 20
    assert (decode(heatmaps, "dark")[0] - points)[inner].abs().max() < 0.01
    edge, _ = encode(torch.tensor([[0.3, 100.0]]), torch.ones(1), (256, 192))
    assert (decode(edge, "dark")[0][0, 0] - 0.3).abs() > 0.5


def slow_dark(heatmap: np.ndarray, kernel: int) -> np.ndarray:
    """The released decoding in float64, with OpenCV's blur."""
    height, width = heatmap.shape
    y, x = np.unravel_index(heatmap.argmax(), heatmap.shape)
    border = (kernel - 1) // 2
    padded = np.zeros((height + 2 * border, width + 2 * border))
    padded[border:-border, border:-border] = heatmap
    blurred = cv2.GaussianBlur(padded, (kernel, kernel), 0)[border:-border, border:-border]
    blurred = blurred * heatmap.max() / blurred.max()
    log = np.pad(np.log(np.clip(blurred, 1e-3, 50)), 1, mode="edge")

    def at(dx: int, dy: int) -> float:
        return float(log[y + 1 + dy, x + 1 + dx])

    gradient = np.array((at(1, 0) - at(-1, 0), at(0, 1) - at(0, -1))) / 2
    xx, yy = at(1, 0) - 2 * at(0, 0) + at(-1, 0), at(0, 1) - 2 * at(0, 0) + at(0, -1)
    xy = (at(1, 1) - at(1, 0) - at(0, 1) + 2 * at(0, 0) - at(-1, 0) - at(0, -1) + at(-1, -1)) / 2
    hessian = np.array(((xx, xy), (xy, yy))) + np.finfo(np.float32).eps * np.eye(2)
    return np.array((x, y)) - np.linalg.solve(hessian, gradient)


def test_dark_is_the_released_decoding() -> None:
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(30, 2, generator=generator) * torch.tensor([47.0, 63.0])
    heatmaps = encode(points, torch.ones(30), SIZE, sigma=3.0)[0]
    heatmaps = heatmaps * 0.7 + 0.02 * torch.rand(heatmaps.shape, generator=generator)
    found, scores = decode(heatmaps, "dark", kernel=11)
    expected = np.stack([slow_dark(heatmap.double().numpy(), 11) for heatmap in heatmaps])
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)
    np.testing.assert_allclose(scores.numpy(), heatmaps.amax((1, 2)).numpy())


@pytest.mark.parametrize("decoder", ["fit", "dark"])
def test_noise_and_other_shapes_move_keypoints_little(decoder: str) -> None:
    generator = torch.Generator().manual_seed(2)
    points = torch.rand(60, 2, generator=generator) * torch.tensor([35.0, 51.0]) + 6
    heatmaps = encode(points, torch.ones(60), SIZE)[0]
    noisy = heatmaps + 0.05 * torch.randn(heatmaps.shape, generator=generator)
    assert (decode(noisy, decoder)[0] - points).norm(dim=-1).median() < 0.15
    wide = encode(points, torch.ones(60), SIZE, sigma=2.5)[0] * 0.3
    assert (decode(wide, decoder)[0] - points).abs().max() < 0.1


@pytest.mark.parametrize("decoder", ["fit", "dark"])
def test_maps_without_a_peak_give_no_nonsense(decoder: str) -> None:
    maps = torch.zeros(4, *SIZE)
    maps[1] = -1
    maps[2] = 1
    maps[3, 63, 47] = 1
    points, scores = decode(maps, decoder)
    assert points.isfinite().all()
    np.testing.assert_array_equal(points[:2], -1)
    np.testing.assert_array_equal(scores, [0, -1, 1, 1])
    np.testing.assert_allclose(points[3], (47, 63), atol=1)


def test_batches_and_half_precision_are_decoded_alike() -> None:
    points = torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(3)) * 40
    heatmaps, weights = encode(points, torch.ones(2, 5), SIZE)
    assert heatmaps.shape == (2, 5, *SIZE)
    assert weights.shape == (2, 5)
    found, scores = decode(heatmaps)
    assert found.shape == (2, 5, 2)
    assert scores.shape == (2, 5)
    torch.testing.assert_close(found[1], decode(heatmaps[1])[0])
    assert (decode(heatmaps.bfloat16())[0] - points).abs().max() < 0.1


def test_an_invisible_keypoint_has_no_target() -> None:
    heatmaps, weights = encode(torch.tensor([[5.0, 5.0]] * 3), torch.tensor([1.0, 0.4, 0.0]), SIZE)
    np.testing.assert_array_equal(weights, [1, 0, 0])
    assert heatmaps[0].max() == 1
    assert not heatmaps[1:].any()


def test_frame_and_heatmap_share_their_outermost_pixel_centres() -> None:
    corners = torch.tensor([[0.0, 0.0], [191.0, 255.0]], dtype=torch.float64)
    np.testing.assert_allclose(to_heatmap(corners, (256, 192), SIZE), [[0, 0], [47, 63]])
    points = torch.rand(9, 2, dtype=torch.float64) * 190
    torch.testing.assert_close(to_frame(to_heatmap(points, (256, 192), SIZE), (256, 192), SIZE), points)


@pytest.mark.parametrize("name", ["sapiens308", "coco17"])
def test_the_flip_is_an_involution_and_undoes_a_mirror(name: str) -> None:
    flip = torch.from_numpy(keypoint_set(name).flip)
    count = len(flip)
    generator = torch.Generator().manual_seed(4)
    points = torch.rand(2, count, 2, generator=generator) * torch.tensor([47.0, 63.0])
    heatmaps = torch.rand(2, count, 16, 12, generator=generator)
    torch.testing.assert_close(flip_heatmaps(flip_heatmaps(heatmaps, flip), flip), heatmaps, rtol=0, atol=0)
    # A perfect model sees the mirrored person: every left keypoint is a right one there, at the mirrored place.
    mirrored = points[:, flip] * torch.tensor([-1.0, 1.0]) + torch.tensor([47.0, 0.0])
    straight, of_mirror = (encode(where, torch.ones(2, count), SIZE)[0] for where in (points, mirrored))
    averaged = average_flipped(straight, of_mirror, flip)
    # But for rounding where a window of 3 sigma begins.
    assert (averaged - straight).abs().max() < 0.01
    assert (decode(averaged)[0] - points).abs().max() < 0.1


def test_bad_input_says_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="use 'dark' or 'fit'"):
        decode(torch.zeros(1, *SIZE), "mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="odd number"):
        decode(torch.zeros(1, *SIZE), "dark", kernel=4)
    with pytest.raises(ValueError, match="3 x 3"):
        decode(torch.zeros(1, 2, 9))
    with pytest.raises(ValueError, match=r"give \[\.\.\., 2\]"):
        encode(torch.zeros(3, 2), torch.ones(2), SIZE)
    with pytest.raises(ValueError, match="sigma"):
        encode(torch.zeros(3, 2), torch.ones(3), SIZE, -1)
    with pytest.raises(ValueError, match=r"\[..., 17, h, w\]"):
        flip_heatmaps(torch.zeros(2, 3, 4, 4), torch.arange(17))
