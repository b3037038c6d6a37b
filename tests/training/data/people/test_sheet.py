from pathlib import Path

import cv2
import numpy as np
import pytest

from training.data.labelled import Picture
from training.data.people import PeopleConfig, render
from training.data.people.sheet import contact_sheet, index_colours, panels

SMALL = PeopleConfig(size=(48, 32), people=(1, 1))


def test_a_sheet_shows_every_picture_with_its_labels(tmp_path: Path) -> None:
    pictures = [render(key, SMALL) for key in range(3)]
    file = tmp_path / "sheet.png"
    contact_sheet(pictures, file, columns=2, scale=2)
    sheet = np.asarray(cv2.imread(str(file)))[::2, ::2, ::-1]
    assert sheet.shape == (2 * 48, 2 * 6 * 32, 3)
    np.testing.assert_array_equal(sheet[:48, :32], pictures[0].image)
    np.testing.assert_array_equal(sheet[48:, :32], pictures[2].image)
    contact_sheet(pictures, file, columns=3, images_only=True)
    np.testing.assert_array_equal(
        np.asarray(cv2.imread(str(file)))[..., ::-1], np.concatenate([p.image for p in pictures], axis=1)
    )


def test_labels_that_a_picture_lacks_have_no_panel() -> None:
    plain = Picture(np.zeros((4, 5, 3), np.uint8), np.zeros((4, 5), np.bool_), np.full((4, 5), -1, np.int16))
    assert len(panels(plain)) == 1
    assert len(panels(render(0, PeopleConfig(size=(32, 32), people=(0, 0))))) == 6


def test_classes_have_different_colours() -> None:
    colours = index_colours(np.arange(29, dtype=np.uint8)[None])[0]
    assert len({tuple(colour) for colour in colours.tolist()}) == 29
    assert (colours[0] == 0).all()


def test_a_sheet_of_nothing_or_into_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no pictures"):
        contact_sheet([], tmp_path / "sheet.png")
    with pytest.raises((OSError, cv2.error)):
        contact_sheet([render(0, SMALL)], tmp_path / "missing" / "sheet.png")
