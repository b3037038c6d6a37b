"""Frames of a video by steps, and what cannot be read of one."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from curation.codecs.base import Problem
from training.prediction.videos import frame_count, frames


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    for number in range(5):
        writer.write(np.full((48, 64, 3), 40 * number, np.uint8))
    writer.release()
    return path


def test_frames_by_steps_and_sizes(clip: Path) -> None:
    assert frame_count(clip) == 5
    found = [(number, load()) for number, load in frames(clip, 2, 32)]
    assert [number for number, _ in found] == [0, 2, 4]
    for number, image in found:
        assert isinstance(image, np.ndarray)
        assert number is not None
        assert image.shape == (24, 32, 3)
        assert abs(int(image.mean()) - 40 * number) < 6


@pytest.mark.parametrize(
    ("size", "reason"), [(None, "missing"), (0, "unsupported_format"), (100, "unsupported_format")]
)
def test_a_video_that_cannot_be_read_is_one_problem(size: int | None, reason: str, clip: Path) -> None:
    path = clip.with_name("broken.avi")
    if size is not None:
        path.write_bytes(clip.read_bytes()[:size])
    assert frame_count(path) == 0
    ((number, load),) = frames(path, 1)
    problem = load()
    assert number is None
    assert isinstance(problem, Problem)
    assert problem.reason == reason
    assert str(path) in problem.detail
