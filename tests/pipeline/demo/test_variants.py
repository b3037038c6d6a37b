from __future__ import annotations

import io
import random

import cv2
import imagehash
import numpy as np
import pytest
from PIL import Image, ImageStat

from pipeline.demo import variants
from pipeline.demo.scenes import Scene, person_scene

NUMBERS = range(6)


@pytest.fixture(params=NUMBERS)
def rng(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


@pytest.fixture
def scene(rng: random.Random) -> Scene:
    return person_scene(rng)


def bits(first: Image.Image, second: Image.Image) -> int:
    return int(imagehash.phash(first) - imagehash.phash(second))


def brightness(image: Image.Image) -> float:
    return ImageStat.Stat(image.convert("L")).mean[0] / 255


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_encodings_decode_to_the_picture(scene: Scene, kind: str) -> None:
    with Image.open(io.BytesIO(variants.encode(scene.image, kind, 80))) as image:
        assert image.format == kind.upper()
        assert image.size == scene.image.size
        assert bits(image, scene.image) <= 4


def test_near_duplicates_are_near_and_new_pictures_are_not(scene: Scene, rng: random.Random) -> None:
    image = scene.image
    assert bits(variants.resized(rng, image, scene.faces)[0], image) <= 2
    assert bits(variants.recoloured(rng, image)[0], image) <= 6
    assert bits(variants.slightly_cropped(rng, image)[0], image) <= 10
    assert bits(variants.mirrored(rng, image)[0], image) > 10


def test_a_strong_crop_keeps_the_faces(scene: Scene, rng: random.Random) -> None:
    cropped, _ = variants.strongly_cropped(rng, scene.image, scene.faces)
    assert min(cropped.size) >= 300
    assert cropped.width < scene.image.width or cropped.height < scene.image.height
    for face in scene.faces:
        match = cv2.matchTemplate(np.asarray(cropped), np.asarray(scene.image.crop(face)), cv2.TM_SQDIFF)
        assert match.min() < 1  # a pixel that is off by one level would give 1


def test_exposure_changes_reach_their_range(scene: Scene, rng: random.Random) -> None:
    assert 0.025 <= brightness(variants.darkened(rng, scene.image)[0]) <= 0.055
    assert 0.945 <= brightness(variants.brightened(rng, scene.image)[0]) <= 0.975


def test_blur_takes_all_detail(scene: Scene, rng: random.Random) -> None:
    blurred, _ = variants.blurred(rng, scene.image)
    once_more, _ = variants.blurred(rng, scene.image)
    edges = [ImageStat.Stat(image.convert("L").resize((200, 200))).stddev[0] for image in (blurred, once_more)]
    assert all(edge > 0 for edge in edges)
    sharp, soft = (len(variants.encode(image, "jpeg", 90)) for image in (scene.image, blurred))
    assert soft < sharp / 2


@pytest.mark.parametrize(("small", "low", "high"), [(False, 0.2, 0.4), (True, 0.002, 0.03)])
def test_text_covers_its_share_and_spares_the_faces(
    scene: Scene, rng: random.Random, small: bool, low: float, high: float
) -> None:
    image, text = variants.overlaid(rng, scene.image, scene.faces, small)
    share = float(text.split()[-2]) / 100
    assert low <= share <= high
    assert image.tobytes() != scene.image.tobytes()
    for face in scene.faces:
        assert image.crop(face).tobytes() == scene.image.crop(face).tobytes()


def test_screenshots_and_comics_change_the_picture_much(scene: Scene, rng: random.Random) -> None:
    page, _ = variants.in_interface(rng, scene.image)
    assert min(page.size) >= 700
    comic, _ = variants.as_comic(rng, scene.image)
    assert comic.size == (scene.image.width + 52, scene.image.height + 52)
    assert comic.getpixel((2, 2)) == (255, 255, 255)
    assert comic.getpixel((20, 20)) == (0, 0, 0)
    flat = comic.crop((30, 30, comic.width - 30, comic.height - 30))
    assert len(set(flat.getdata())) <= 64
