"""Other backgrounds behind people: an augmentation of body-part segmentation (fact 6.5).

The released recipe puts a random image of BG-20k behind people that were taken in a studio, for 8 of 10 images, and
transfers colors in Lab (Reinhard et al., "Color transfer between images", 2001). Which way colors go is not stated;
here the person takes those of the background, as if it had been photographed there.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from curation.decode import DecodeConfig, Problem, decode, read_header
from curation.records import Locator
from curation.sources import FolderConfig, FolderSource, SourceError

Image = npt.NDArray[np.uint8]

TRIES = 8
"""Backgrounds that are drawn until one can be decoded."""
_LEAST_DEVIATION = 1.0  # of a Lab channel: a person in one color keeps it instead of becoming noise


class Backgrounds:
    """The images of a folder, drawn at random. Picklable; the folder is listed when it is first needed.

    Args:
        folder: of images, searched recursively; a path or an fsspec URL.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}

    @cached_property
    def _source(self) -> FolderSource:
        return FolderSource(FolderConfig(path=self.folder))

    @cached_property
    def _images(self) -> list[Locator]:
        source = self._source
        return [locator for unit in source.units() for locator in source.list_unit(unit)]

    def __len__(self) -> int:
        """How many images there are.

        Raises:
            ValueError: the folder does not exist, or holds no image.
        """
        try:
            return len(self._images)
        except SourceError as error:
            text = str(error).removeprefix("source.path: ")
            raise ValueError(f"backgrounds: {text} Give a folder of images, or null for none.") from None

    def draw(self, rng: np.random.Generator, size: tuple[int, int]) -> Image:
        """A background of `size` (height, width): a random crop of its aspect of a random image, uint8 [H, W, 3] RGB.

        Raises:
            ValueError: `TRIES` images one after the other could not be decoded.
        """
        count = len(self)
        config = DecodeConfig()
        problem = ""
        for _ in range(TRIES):
            locator = self._images[int(rng.integers(count))]
            where = rng.random(2)
            (payload,) = self._source.read([locator])
            if payload.data is None:
                problem = f"{locator.uri}: {payload.detail}"
                continue
            header = read_header(payload.data, config)
            decoded = header if isinstance(header, Problem) else decode(payload.data, header, config, 2 * max(size))
            if isinstance(decoded, Problem):
                problem = f"{locator.uri}: {decoded.detail}"
                continue
            return _crop(decoded.pixels, size, where)
        raise ValueError(
            f"backgrounds: {TRIES} images of {self.folder} in a row cannot be used, the last one {problem}. "
            "Remove damaged files from the folder."
        )


def _crop(pixels: Image, size: tuple[int, int], where: npt.NDArray[np.float64]) -> Image:
    """The largest crop of the aspect of `size`, at `where` (0..1 each way), resized to it."""
    height, width = pixels.shape[:2]
    factor = min(height / size[0], width / size[1])
    high, wide = max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
    top, left = int(where[0] * (height - high + 1)), int(where[1] * (width - wide + 1))
    shrinks = factor > 1
    crop = pixels[top : top + high, left : left + wide]
    return np.asarray(
        cv2.resize(crop, size[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR), np.uint8
    )


def composite(image: Image, foreground: npt.NDArray[np.bool_], background: Image) -> Image:
    """The foreground of an image on another background, in the background's colors.

    Mean and standard deviation of the foreground in each channel of CIE Lab become those of the background.

    Args:
        image: uint8 [H, W, 3] RGB; it is left as it is.
        foreground: bool [H, W].
        background: uint8 [H, W, 3] RGB.

    Returns:
        uint8 [H, W, 3].
    """
    if not foreground.any():
        return background.copy()
    lab, other = (cv2.cvtColor(part.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) for part in (image, background))
    person = lab[foreground]
    mean, deviation = person.mean(0), person.std(0)
    scale = np.where(deviation < _LEAST_DEVIATION, 1.0, other.std((0, 1)) / np.maximum(deviation, _LEAST_DEVIATION))
    lab[foreground] = (person - mean) * scale + other.mean((0, 1))
    colors = np.round(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB).clip(0, 1) * 255).astype(np.uint8)
    return np.where(foreground[..., None], colors, background)
