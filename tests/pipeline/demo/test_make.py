from __future__ import annotations

import io
import random

import imagehash
import pytest
from PIL import Image

from pipeline.demo.make import make, perceptual_hash
from pipeline.demo.plan import KINDS, Order
from pipeline.demo.scenes import person_scene


def test_the_hash_is_that_of_the_reference() -> None:
    for number in range(5):
        image = person_scene(random.Random(number)).image
        assert f"{perceptual_hash(image):016x}" == str(imagehash.phash(image))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_made_the_same_way_twice(kind: str) -> None:
    origin = make(Order(0, "person", 0), 1) if KINDS[kind].derived else None
    order = Order(5, kind, 3, 0 if origin else None)
    first, again = make(order, 1, 0, origin), make(order, 1, 0, origin)
    assert first == again
    assert (first.phash is not None) is KINDS[kind].hashed
    if kind not in ("exact_copy", "empty"):
        assert make(order, 2, 0, origin).data != first.data or kind == "reencoded"
    if kind == "exact_copy":
        assert origin is not None
        assert first.data == origin.data


def test_an_attempt_gives_another_picture() -> None:
    assert make(Order(5, "person", 5), 1, 1).data != make(Order(5, "person", 5), 1, 0).data


def test_the_hash_of_a_kept_input_is_that_of_its_upright_picture() -> None:
    made = make(Order(0, "person", 0), 1)
    with Image.open(io.BytesIO(made.data)) as image:
        assert made.phash == perceptual_hash(image)
    turned = make(Order(1, "exif_rotated", 4), 1)
    with Image.open(io.BytesIO(turned.data)) as image:
        assert image.getexif()[0x0112] == 6
        upright = image.transpose(Image.Transpose.ROTATE_270)
    assert turned.phash is not None
    assert (turned.phash ^ perceptual_hash(upright)).bit_count() <= 2
