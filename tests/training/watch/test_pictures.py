"""Pictures: panels hold the pixels they claim to, at 1K and at half resolution for 4K."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torch import Tensor

from pipeline.storage import Storage
from training.data.colour import normalise
from training.models import create
from training.models.config import BACKBONES
from training.models.decoder import DecoderConfig, PretrainDecoder
from training.objectives.reconstruction import target_patches
from training.watch.pictures import reconstruction_picture, write_picture

GRID = (3, 2)
GAP = 4
KEEP = torch.tensor([[4, 0], [1, 2]])


def photographs(height: int, width: int) -> Tensor:
    rng = np.random.default_rng(5)
    return torch.from_numpy(rng.integers(0, 256, (2, 3, height, width), dtype=np.uint8))


def panels(picture: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """[2 images, 4 panels, height, width, 3]; what lies between them must be white."""
    assert picture.shape == (2 * height + GAP, 4 * width + 3 * GAP, 3)
    found = np.empty((2, 4, height, width, 3), np.uint8)
    rest = picture.copy()
    for row in range(2):
        for column in range(4):
            top, left = row * (height + GAP), column * (width + GAP)
            found[row, column] = picture[top : top + height, left : left + width]
            rest[top : top + height, left : left + width] = 255
    assert (rest == 255).all()
    return found


def is_hidden(height: int, width: int, pixels: int) -> npt.NDArray[np.bool_]:
    """[2, height, width], by hand."""
    hidden = np.ones((2, height, width), bool)
    for image, row in enumerate(KEEP.tolist()):
        for token in row:
            top, left = token // GRID[1] * pixels, token % GRID[1] * pixels
            hidden[image, top : top + pixels, left : left + pixels] = False
    return hidden


@pytest.mark.parametrize("side", [8, 16])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("masked_only", [True, False])
def test_a_perfect_prediction_gives_the_image_back(side: int, normalised: bool, masked_only: bool) -> None:
    """`side` image pixels a token, decoded to 8: at 16 as with 4K models."""
    height, width = 8 * GRID[0], 8 * GRID[1]
    photos = photographs(side * GRID[0], side * GRID[1])
    images = normalise(photos)
    predicted = target_patches(images, GRID, 8, normalise=normalised)
    hidden = is_hidden(height, width, 8)
    if masked_only:
        masked = [[token for token in range(6) if token not in row] for row in KEEP.tolist()]
        predicted = torch.stack([rows[tokens] for rows, tokens in zip(predicted, masked, strict=True)])
    picture = reconstruction_picture(images, KEEP, predicted, GRID, 8, normalised=normalised)
    found = panels(picture, height, width).astype(int)

    cells = photos.numpy().reshape(2, 3, height, side // 8, width, side // 8)
    original = cells.mean((3, 5)).transpose(0, 2, 3, 1)
    for column in (0, 2):
        assert np.abs(found[:, column] - original).max() <= 1
    assert np.abs(found[:, 1][~hidden] - original[~hidden]).max() <= 1
    assert set(np.unique(found[:, 1][hidden])) <= {127, 128}
    last = found[:, 3]
    assert np.abs(last[hidden] - original[hidden]).max() <= 1
    if masked_only:
        assert set(np.unique(last[~hidden])) <= {127, 128}
    else:
        assert np.abs(last[~hidden] - original[~hidden]).max() <= 1


def test_a_flat_prediction_has_the_mean_of_each_patch() -> None:
    images = normalise(photographs(24, 16))
    picture = reconstruction_picture(images, KEEP, torch.zeros(2, 6, 8 * 8 * 3), GRID, 8)
    last = panels(picture, 24, 16)[:, 3]
    # One colour for each patch, and not the same for all.
    cells = last.reshape(2, 3, 8, 2, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(12, 64, 3)
    assert (cells == cells[:, :1]).all()
    assert len(np.unique(cells[:, 0], axis=0)) > 6


def test_what_is_not_finite_is_black() -> None:
    images = normalise(photographs(24, 16))
    picture = reconstruction_picture(images, KEEP, torch.full((2, 6, 192), torch.nan), GRID, 8)
    assert (panels(picture, 24, 16)[:, 3] == 0).all()


def test_large_panels_are_averaged_down() -> None:
    photos = photographs(24, 16)
    images = normalise(photos)
    predicted = target_patches(images, GRID, 8)
    picture = reconstruction_picture(images, KEEP, predicted, GRID, 8, panel_height=13)
    small = photos.numpy().reshape(2, 3, 12, 2, 8, 2).mean((3, 5)).transpose(0, 2, 3, 1)
    assert np.abs(panels(picture, 12, 8)[:, 0] - small).max() <= 1
    # A fifth does not divide 24 and 16; the next that does is an eighth.
    assert reconstruction_picture(images, KEEP, predicted, GRID, 8, panel_height=5).shape[0] == 2 * 3 + GAP


@pytest.mark.parametrize("name", ["tiny", "tiny_4k"])
def test_pictures_of_a_model(name: str, tmp_path: Path) -> None:
    config = BACKBONES[name]
    decoder_config = DecoderConfig.tiny(config)
    backbone, decoder = create(name).eval(), PretrainDecoder(decoder_config)
    images = normalise(photographs(*config.image_size)[:1])
    keep = torch.arange(config.tokens // 4)[None]
    with torch.no_grad():
        predicted = decoder(backbone(images, keep)[0], keep, config.grid)
    picture = reconstruction_picture(images, keep, predicted.bfloat16(), config.grid, decoder_config.pixels)
    rows, columns = config.grid
    assert picture.shape == (rows * decoder_config.pixels, 4 * columns * decoder_config.pixels + 3 * GAP, 3)
    path = write_picture(Storage(tmp_path), 1000, picture)
    assert path == str(tmp_path / "pictures" / "step-00001000.png")
    with Image.open(path) as opened:
        assert (np.asarray(opened) == picture).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    images = normalise(photographs(24, 16))
    for predicted in (torch.zeros(2, 5, 192), torch.zeros(2, 6, 191), torch.zeros(1, 4, 192), torch.zeros(6, 192)):
        with pytest.raises(ValueError, match="shape"):
            reconstruction_picture(images, KEEP, predicted, GRID, 8)
