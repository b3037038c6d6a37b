"""The data sets of `tests/fixtures/labelled.py`, in a test's own folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures import labelled
from training.data.labelled import Picture


@pytest.fixture(scope="session")
def people() -> list[Picture]:
    """Four pictures of 64 x 48 with one or two people each."""
    return list(labelled.rendered())


@pytest.fixture(scope="session")
def png() -> Callable[[np.ndarray], bytes]:
    return labelled.png_bytes


@pytest.fixture
def write_dense(tmp_path: Path) -> Callable[..., Path]:
    """Write images, masks of person indices and exact maps of pictures; returns the root."""
    return lambda pictures: labelled.write_dense(pictures, tmp_path / "dense")


@pytest.fixture
def write_parts(tmp_path: Path) -> Callable[..., Path]:
    """Write images and part masks; returns the root."""
    return lambda pictures: labelled.write_parts(pictures, tmp_path / "parts-root")


@pytest.fixture
def write_coco(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Write images and a COCO file with all keypoints of pictures, flat; returns the file and the image folder."""

    def write(pictures: Sequence[Picture], field: str = "keypoints", shift: float = 0.0) -> tuple[Path, Path]:
        return labelled.write_coco(pictures, tmp_path, field=field, shift=shift)

    return write


@pytest.fixture(scope="session")
def same() -> Callable[[Picture, Picture], None]:
    """Assert that two pictures are equal in every bit and dtype."""

    def check(first: Picture, second: Picture) -> None:
        for name in Picture.__dataclass_fields__:
            one, other = getattr(first, name), getattr(second, name)
            if isinstance(one, np.ndarray):
                assert isinstance(other, np.ndarray), name
                assert one.dtype == other.dtype, name
                np.testing.assert_array_equal(one, other, err_msg=name)
            else:
                assert one == other, name

    return check
