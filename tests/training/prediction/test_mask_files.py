"""What is a person in every kind of mask file, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from training.prediction.mask_files import MaskError, read_mask

SIZE = (8, 6)
PERSON = np.zeros(SIZE, bool)
PERSON[2:6, 1:4] = True
INNER = np.zeros(SIZE, bool)
INNER[3:5, 2:3] = True
SOFT = np.where(PERSON, 90, 0) + np.where(INNER, 165, 0)  # 255 inside, 90 round it
COLOURS = np.random.default_rng(0).integers(1, 255, (*SIZE, 3), dtype=np.uint8)


def png(path: Path, array: npt.NDArray[np.generic], mode: str | None = None, **save: object) -> Path:
    image = Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(path, "PNG", **save)
    return path


def alpha(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return np.dstack([COLOURS, values]).astype(np.uint8)


@pytest.mark.parametrize(
    ("values", "threshold", "people"),
    [
        (PERSON, None, PERSON),
        (PERSON * np.uint8(255), None, PERSON),
        (PERSON * np.uint8(7), None, PERSON),
        ((PERSON * 3 + INNER * 20).astype(np.uint8), None, PERSON),  # classes
        (SOFT.astype(np.uint8), None, INNER),
        (SOFT.astype(np.uint8), 0.2, PERSON),
        (SOFT.astype(np.uint8), 0.0, PERSON),
        ((SOFT * 257).astype(np.uint16), None, INNER),
        (np.repeat(SOFT[..., None], 3, 2).astype(np.uint8), None, INNER),
        (alpha(PERSON * 255), None, PERSON),
        (alpha(SOFT), None, INNER),
        (alpha(SOFT), 0.3, PERSON),
        (np.dstack([COLOURS[..., 0], PERSON * np.uint8(255)]).astype(np.uint8), None, PERSON),  # grey and alpha
        (np.dstack([*[SOFT] * 3, np.full(SIZE, 255)]).astype(np.uint8), None, INNER),  # opaque: its greys count
        (alpha(PERSON * 0), None, PERSON & False),
    ],
)
def test_png(values: npt.NDArray[np.generic], threshold: float | None, people: npt.NDArray[np.bool_], tmp_path: Path):
    np.testing.assert_array_equal(read_mask(png(tmp_path / "m.png", values), SIZE, threshold), people)


def test_palettes_count_by_value_and_cut_outs_of_them_by_transparency(tmp_path: Path) -> None:
    image = Image.fromarray((PERSON * 2).astype(np.uint8), "P")
    image.putpalette([9, 9, 9, 8, 8, 8, 7, 7, 7])
    image.save(tmp_path / "p.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "p.png", SIZE), PERSON)
    np.testing.assert_array_equal(read_mask(tmp_path / "p.png", SIZE, 0.5), PERSON)
    image = Image.fromarray(PERSON.astype(np.uint8) * 3 + ~PERSON * np.uint8(1), "P")
    image.putpalette([9, 9, 9, 8, 8, 8, 7, 7, 7, 5, 5, 5])
    image.save(tmp_path / "t.png", transparency=1)
    np.testing.assert_array_equal(read_mask(tmp_path / "t.png", SIZE), PERSON)


@pytest.mark.parametrize(
    ("values", "threshold", "people"),
    [
        (PERSON, None, PERSON),
        (PERSON * 255, None, PERSON),
        (PERSON * 17 + INNER * 90, 0.9, PERSON),  # int64: classes
        (SOFT.astype(np.uint8), None, INNER),
        (SOFT / 255, None, INNER),
        (SOFT / 255, 0.1, PERSON),
        (SOFT / 5.0, None, PERSON),  # whole numbers
        (PERSON[..., None], None, PERSON),
    ],
)
def test_npy(values: npt.NDArray[np.generic], threshold: float | None, people: npt.NDArray[np.bool_], tmp_path: Path):
    np.save(tmp_path / "m.npy", values)
    np.testing.assert_array_equal(read_mask(tmp_path / "m.npy", SIZE, threshold), people)
    doubled = read_mask(tmp_path / "m.npy", (16, 12), threshold)
    np.testing.assert_array_equal(doubled, people.repeat(2, 0).repeat(2, 1))


def test_what_is_no_mask_is_named_with_the_fix(tmp_path: Path) -> None:
    def said(path: Path, size: tuple[int, int] = SIZE) -> str:
        with pytest.raises(MaskError) as caught:
            read_mask(path, size)
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "save people as white on black" in said(png(tmp_path / "rgb.png", COLOURS))
    assert "is in colours" in said(png(tmp_path / "rgba.png", alpha(np.full(SIZE, 255))))
    assert "6 x 8, its picture 8 x 6" in said(png(tmp_path / "m.png", PERSON), (6, 8))
    assert "turned as the picture is by its EXIF" in said(png(tmp_path / "m.png", PERSON), (6, 8))
    assert "give one of the same shape" in said(png(tmp_path / "m.png", PERSON), (8, 8))
    whole = io.BytesIO()
    Image.fromarray(COLOURS).save(whole, "PNG")
    (tmp_path / "cut.png").write_bytes(whole.getvalue()[:100])
    (tmp_path / "text.png").write_text("<html>")
    (tmp_path / "text.npy").write_text("<html>")
    for name in ("cut.png", "text.png", "text.npy", "none.png"):
        assert "cannot be read" in said(tmp_path / name)
    for values, message in (
        (np.where(PERSON, np.nan, 0), "nan"),
        (SOFT / 4, "goes from 0 to 63.75"),
        (np.array(["a"]), "holds <U1"),
        (PERSON[0], "give [height, width]"),
    ):
        np.save(tmp_path / "v.npy", values)
        assert message in said(tmp_path / "v.npy")
