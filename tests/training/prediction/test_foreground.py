"""Masks of people from files of any of the accepted kinds."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from training.prediction.foreground import folder_masks
from training.prediction.formats import index_png
from training.prediction.inputs import InputPicture


def picture(name: str, height: int = 8, width: int = 6) -> InputPicture:
    return InputPicture(name, f"{name}.jpg", np.zeros((height, width, 3), np.uint8))


def test_every_kind_of_file(tmp_path: Path) -> None:
    mask = np.zeros((8, 6), bool)
    mask[2:5, 1:4] = True
    palette = np.zeros((4, 3), np.uint8)  # colours of classes above 0 may be black: the values count
    (tmp_path / "index.png").write_bytes(index_png(mask * np.uint8(3), palette))
    cv2.imwrite(str(tmp_path / "rgb.png"), np.repeat(mask[..., None] * np.uint8(255), 3, axis=2))
    np.save(tmp_path / "bool.npy", mask)
    np.save(tmp_path / "labels_seg.npy", mask * 17)
    masks = folder_masks(tmp_path)
    for name in ("index", "rgb", "bool", "labels"):
        found = masks(picture(name))
        assert found is not None
        np.testing.assert_array_equal(found, mask, err_msg=name)
    assert masks(picture("other")) is None
    doubled = masks(picture("bool", 16, 12))
    np.testing.assert_array_equal(doubled, mask.repeat(2, 0).repeat(2, 1))
    with pytest.raises(ValueError, match="same shape"):
        masks(picture("bool", 8, 8))
    with pytest.raises(ValueError, match="no such folder"):
        folder_masks(tmp_path / "gone")
