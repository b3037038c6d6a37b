from __future__ import annotations

import random

import pytest
from PIL import Image

from pipeline.demo import drawings

ALL = [
    *drawings.DRAWINGS,
    ("flat", drawings.flat),
    ("nearly_flat", drawings.nearly_flat),
    ("gradient", drawings.gradient),
]


@pytest.mark.parametrize(("name", "draw"), ALL, ids=[name for name, _ in ALL])
def test_drawings_have_the_size_asked_for_and_depend_on_the_generator_alone(name: str, draw: drawings.Draw) -> None:
    image = draw(random.Random(1), (500, 400))
    assert (image.size, image.mode) == ((500, 400), "RGB")
    assert image.tobytes() == draw(random.Random(1), (500, 400)).tobytes()
    assert image.tobytes() != draw(random.Random(2), (500, 400)).tobytes()


@pytest.mark.parametrize("number", range(20))
def test_flat_pictures_have_little_entropy(number: int) -> None:
    assert drawings.flat(random.Random(number), (300, 300)).convert("L").entropy() == 0
    assert drawings.nearly_flat(random.Random(number), (300, 300)).convert("L").entropy() < 1.8


def test_an_interface_leaves_room_for_a_picture() -> None:
    size = (900, 720)
    x0, y0, x1, y1 = drawings.inset_box(size)
    assert 0 < x0 < x1 < size[0]
    assert 0 < y0 < y1 < size[1]
    inset = drawings.interface(random.Random(0), size).crop((x0, y0, x1, y1))
    assert isinstance(inset, Image.Image)
    assert inset.getextrema() == tuple((value, value) for value in (245, 246, 248))
