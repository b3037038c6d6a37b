"""Drawn people: a function of number and seed, with every part where it is said to be."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from eval.studies.people import PARTS, draw, jpeg, labelled_people


def test_a_picture_is_a_function_of_number_and_seed() -> None:
    picture, labels = draw(3, (64, 48), 1)
    again, same = draw(3, (64, 48), 1)
    assert np.array_equal(picture, again)
    assert np.array_equal(labels, same)
    for other in (draw(4, (64, 48), 1), draw(3, (64, 48), 2)):
        assert not np.array_equal(picture, other[0])
    assert picture.shape == (64, 48, 3)
    assert labels.shape == (64, 48)


def test_labels_do_not_depend_on_the_size_of_the_picture() -> None:
    _, large = draw(5, (256, 192), 1)
    _, small = draw(5, (128, 96), 1)
    assert (large[1::2, 1::2] == small).mean() > 0.95


def test_parts_are_where_the_person_is() -> None:
    people = labelled_people(range(60), (64, 48), 7)
    assert people.classes == PARTS
    labels = people.labels.numpy()
    shares = np.bincount(labels.ravel(), minlength=len(PARTS)) / labels.size
    assert 0.4 < shares[0] < 0.85
    assert (shares[1:] > 0.01).all()
    rows = np.arange(64)[:, None] * np.ones((1, 48))
    heights = [np.mean([rows[one == part].mean() for one in labels if (one == part).any()]) for part in (1, 2, 4)]
    assert heights == sorted(heights)  # head above torso above legs
    # The edge of a torso shows: pixels inside differ from those of the background.
    images = people.images.float().mean(1).numpy()
    difference = [
        abs(i[t == 2].mean() - i[t == 0].mean()) for i, t in zip(images, labels, strict=True) if (t == 2).any()
    ]
    assert np.median(difference) > 10


def test_jpeg_is_the_picture() -> None:
    picture, _ = draw(1, (64, 48), 1)
    decoded = np.asarray(Image.open(BytesIO(jpeg(picture))).convert("RGB"))
    assert np.abs(decoded.astype(int) - picture).mean() < 6
