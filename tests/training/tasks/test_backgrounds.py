"""Backgrounds: drawn by key, of the size asked for; the person takes their colors; damaged files are passed over."""

from __future__ import annotations

import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest

from training.tasks.backgrounds import Backgrounds, composite


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def save(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (40, 60)) -> None:
    cv2.imwrite(str(path), np.full((*size, 3), color[::-1], np.uint8))


def test_every_image_is_drawn_and_the_same_key_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    save(tmp_path / "a.png", (255, 0, 0))
    save(tmp_path / "deep" / "b.png", (0, 255, 0), (90, 20))
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    backgrounds = pickle.loads(pickle.dumps(Backgrounds(str(tmp_path))))
    assert len(backgrounds) == 3
    colors = set()
    for key in range(20):
        drawn = backgrounds.draw(rng(key), (30, 22))
        assert drawn.shape == (30, 22, 3)
        assert np.array_equal(drawn, backgrounds.draw(rng(key), (30, 22)))
        colors.add(tuple(drawn[0, 0].tolist()))
    assert colors == {(255, 0, 0), (0, 255, 0)}


def test_a_crop_has_the_aspect_that_is_asked_for(tmp_path: Path) -> None:
    """A wide image of vertical stripes in a tall frame: stripes are as wide as high ones would be, not squeezed."""
    stripes = np.zeros((100, 400, 3), np.uint8)
    stripes[:, ::20] = stripes[:, 1::20] = 255
    cv2.imwrite(str(tmp_path / "stripes.png"), stripes)
    drawn = Backgrounds(str(tmp_path)).draw(rng(2), (100, 50))
    bright = np.flatnonzero(drawn[50, :, 0] > 128)
    assert np.diff(bright[bright % 20 == bright[0] % 20]).tolist() in ([20], [20, 20])


def test_folders_without_a_usable_image_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no images"):
        len(Backgrounds(str(tmp_path)))
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"8 images of .* in a row cannot be used.*\d\.jpg"):
        Backgrounds(str(tmp_path)).draw(rng(0), (10, 10))


def test_a_person_takes_mean_and_spread_of_the_background() -> None:
    noise = rng(1).normal(size=(60, 40, 3))
    image = (150 + 10 * noise).clip(0, 255).astype(np.uint8)
    background = (90 + np.array([30, 0, -20]) + 25 * rng(2).normal(size=(60, 40, 1))).clip(0, 255).astype(np.uint8)
    person = np.zeros((60, 40), bool)
    person[10:50, 10:30] = True
    made = composite(image, person, background)
    assert np.array_equal(made[~person], background[~person])
    np.testing.assert_allclose(made[person].mean(0), background.mean((0, 1)), atol=6)
    lab = [cv2.cvtColor(part.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) for part in (made, background)]
    assert lab[0][person][:, 0].std() == pytest.approx(float(lab[1][..., 0].std()), rel=0.15)
    assert (image == (150 + 10 * noise).clip(0, 255).astype(np.uint8)).all()


def test_a_person_of_one_color_and_no_person_at_all() -> None:
    image, background = np.full((8, 8, 3), 50, np.uint8), rng(3).integers(0, 255, (8, 8, 3), np.uint8)
    person = np.zeros((8, 8), bool)
    assert np.array_equal(composite(image, person, background), background)
    person[2:4] = True
    assert len(np.unique(composite(image, person, background)[person], axis=0)) == 1
