"""Back to the picture: against torch's and OpenCV's resizing, exact crops of padding, and a linear function."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.tasks import frames, warp
from training.tasks.resample import strips, to_picture


def maps(channels: int, height: int, width: int, key: int = 1) -> Tensor:
    rng = np.random.Generator(np.random.Philox(key=key))
    return torch.from_numpy(rng.normal(size=(channels, height, width))).float()


@settings(max_examples=40, deadline=None)
@given(
    source=st.tuples(st.integers(3, 40), st.integers(3, 40)),
    size=st.tuples(st.integers(4, 32), st.integers(4, 32)),
    rounding=st.sampled_from(["round", "truncate"]),
)
def test_a_letterbox_is_cropped_then_resized(source: frames.Size, size: frames.Size, rounding: str) -> None:
    frame = frames.letterbox(source, size, rounding)  # type: ignore[arg-type]
    left, top, right, bottom = (round(float(v)) for v in frame.boxes((0, 0, source[1], source[0])))
    values = maps(3, *size)
    expected = F.interpolate(values[None, :, top:bottom, left:right], source, mode="bilinear", align_corners=False)[0]
    torch.testing.assert_close(to_picture(values, frame), expected, rtol=0, atol=2e-5)


def test_padding_never_mixes_in() -> None:
    frame = frames.letterbox((37, 91), (32, 24))
    values = torch.full((1, 32, 24), 1e9)
    left, top, right, bottom = (round(float(v)) for v in frame.boxes((0, 0, 91, 37)))
    values[:, top:bottom, left:right] = 1.0
    assert bool((to_picture(values, frame) == 1).all())


def test_agrees_with_the_opencv_way_back() -> None:
    for frame in (frames.stretch((30, 22), (16, 12)), frames.letterbox((30, 50), (16, 12)).mirrored()):
        values = maps(2, 16, 12)
        other = warp.restore(values.permute(1, 2, 0).numpy(), frame)
        # OpenCV's warps round positions to 1/32 of a pixel.
        np.testing.assert_allclose(to_picture(values, frame).permute(1, 2, 0).numpy(), other, atol=0.12)


@pytest.mark.parametrize(
    "frame",
    [
        frames.stretch((40, 30), (16, 12)),
        frames.stretch((40, 30), (16, 12)).mirrored(),
        frames.crop_around((5, 8, 20, 36), (32, 24), (40, 30)),
        frames.crop_around((5, 8, 20, 36), (32, 24), (40, 30), rotation=30.0, flip=True),
    ],
)
def test_a_linear_function_comes_back_where_it_was(frame: frames.Frame) -> None:
    # In frame pixels the map holds the picture's own coordinates.
    rows, columns = np.indices(frame.size)
    values = torch.from_numpy(frame.points_back(np.stack([columns, rows], -1)).transpose(2, 0, 1)).double()
    found = to_picture(values, frame, fill=-7.0)
    rows, columns = np.indices(frame.source)
    inside = frame.points(np.stack([columns, rows], -1))
    deep = (inside > 0.01).all(-1) & (inside < np.array(frame.size[::-1]) - 1.01).all(-1)
    # Off the picture's border, whose neighbours in the frame are padding.
    deep &= (columns > 0) & (columns < 29) & (rows > 0) & (rows < 39)
    assert deep.sum() > 50
    np.testing.assert_allclose(found.numpy()[:, deep], np.stack([columns, rows])[:, deep], atol=1e-6)
    assert (found.numpy()[:, ~frame.contains(inside)] == -7).all()


def test_maps_of_another_size_span_the_frame() -> None:
    frame = frames.letterbox((64, 96), (32, 32))
    coarse = maps(1, 8, 8)
    fine = F.interpolate(coarse[None], (32, 32), mode="nearest")[0]
    assert to_picture(coarse, frame).shape == to_picture(fine, frame).shape == (1, 64, 96)
    flat = torch.full((1, 8, 8), 3.0)
    torch.testing.assert_close(to_picture(flat, frame), torch.full((1, 64, 96), 3.0))


@pytest.mark.parametrize("rotation", [0.0, 20.0])
def test_strips_join_to_the_whole(rotation: float) -> None:
    frame = frames.crop_around((2, 3, 17, 25), (16, 12), (29, 21), rotation=rotation)
    values = maps(3, 16, 12)
    whole = to_picture(values, frame)
    parts = list(strips(values, frame, max_bytes=3 * 21 * 4 * 4))  # four rows
    assert [rows.stop - rows.start for rows, _, _ in parts] == [4] * 7 + [1]
    joined = torch.cat([torch.where(shown, part, 0.0) for _, part, shown in parts], dim=1)
    torch.testing.assert_close(joined, whole, rtol=0, atol=1e-6)
