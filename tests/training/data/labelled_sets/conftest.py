"""Small real data sets, written from rendered people by code of its own (not by the code under test)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.data.labelled import Picture
from training.data.people import PeopleConfig, render


@pytest.fixture(scope="session")
def people() -> list[Picture]:
    """Four pictures of 64 x 48 with one or two people each."""
    config = PeopleConfig(size=(64, 48), seed=3, portraits=0)
    return [render(key, config) for key in range(4)]


def png_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def png() -> Callable[[np.ndarray], bytes]:
    return png_bytes


@pytest.fixture
def write_dense(tmp_path: Path) -> Callable[..., Path]:
    """Write images, masks of person indices and exact maps of pictures; returns the root."""

    def write(pictures: Sequence[Picture]) -> Path:
        root = tmp_path / "dense"
        for name in ("images", "masks", "parts", "normals", "depth", "albedo", "intrinsics"):
            (root / name).mkdir(parents=True)
        for picture in pictures:
            (root / "images" / f"{picture.id}.png").write_bytes(png_bytes(picture.image))
            (root / "masks" / f"{picture.id}.png").write_bytes(png_bytes((picture.person + 1).astype(np.uint8)))
            (root / "parts" / f"{picture.id}.png").write_bytes(png_bytes(picture.parts))
            for name in ("normals", "depth", "albedo"):
                np.save(root / name / f"{picture.id}.npy", getattr(picture, name))
            (root / "intrinsics" / f"{picture.id}.json").write_text(json.dumps(picture.intrinsics.tolist()))
        return root

    return write


@pytest.fixture
def write_parts(tmp_path: Path) -> Callable[..., Path]:
    """Write images and part masks; returns the root."""

    def write(pictures: Sequence[Picture]) -> Path:
        root = tmp_path / "parts-root"
        for name in ("images", "parts"):
            (root / name).mkdir(parents=True)
        for picture in pictures:
            (root / "images" / f"{picture.id}.png").write_bytes(png_bytes(picture.image))
            (root / "parts" / f"{picture.id}.png").write_bytes(png_bytes(picture.parts))
        return root

    return write


@pytest.fixture
def write_coco(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Write images and a COCO file with all keypoints of pictures, flat; returns the file and the image folder."""

    def write(pictures: Sequence[Picture], field: str = "keypoints", shift: float = 0.0) -> tuple[Path, Path]:
        folder, file = tmp_path / "coco-images", tmp_path / "people.json"
        folder.mkdir()
        images, annotations = [], []
        for number, picture in enumerate(pictures, 1):
            (folder / f"{number:06d}.png").write_bytes(png_bytes(picture.image))
            height, width = picture.size
            images.append({"id": number, "file_name": f"{number:06d}.png", "width": width, "height": height})
            for points, box, area in zip(picture.keypoints, picture.boxes, picture.areas, strict=True):
                left, top, right, bottom = box.tolist()
                flat = [
                    value
                    for x, y, v in points.tolist()
                    for value in ((x + shift, y + shift, int(v)) if v else (0, 0, 0))
                ]
                annotations.append(
                    {
                        "id": 100 + len(annotations),
                        "image_id": number,
                        "category_id": 1,
                        "iscrowd": 0,
                        "bbox": [left, top, right - left, bottom - top],
                        "area": float(area),
                        field: flat,
                    }
                )
        file.write_text(json.dumps({"images": images, "annotations": annotations}))
        return file, folder

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
