import numpy as np
import pytest

from training.data.keys import generator
from training.data.people.materials import EYE, IRIS, PLAIN, PUPIL, STRANDS, Materials

FIRST, SECOND = np.array([0.1, 0.2, 0.9]), np.array([0.8, 0.4, 0.1])


def local(count: int) -> np.ndarray:
    return generator(1).uniform(-0.3, 0.3, (count, 3))


@pytest.mark.parametrize("pattern", range(PLAIN, STRANDS + 1))
def test_a_pattern_blends_its_two_colours(pattern: int) -> None:
    materials = Materials()
    index = materials.add(FIRST, SECOND, pattern, 40.0, generator(2))
    albedo = materials.albedo(np.full(500, index), local(500))
    blend = (albedo - FIRST) / (SECOND - FIRST)
    np.testing.assert_allclose(blend, blend[:, :1].repeat(3, axis=1), atol=1e-9)
    assert blend.min() > -1e-9
    assert blend.max() < 1 + 1e-9
    assert (blend.std() > 0.1) == (pattern != PLAIN)


def test_a_point_keeps_its_colour_whatever_is_asked_with_it() -> None:
    materials = Materials()
    for pattern in range(9):
        materials.add(FIRST * (1 + pattern) / 9, SECOND, pattern, 30.0, generator(pattern))
    places, which = local(90), np.arange(90) % 9
    together = materials.albedo(which, places)
    for row in range(0, 90, 7):
        np.testing.assert_array_equal(materials.albedo(which[row : row + 1], places[row : row + 1])[0], together[row])


def test_eyes_have_pupil_iris_and_white() -> None:
    materials = Materials()
    eye = materials.add(FIRST, SECOND, EYE, 1.0, generator(2))
    angles = np.array([0.0, 0.9 * PUPIL, 1.1 * PUPIL, 0.9 * IRIS, 1.1 * IRIS, 3.0])
    places = 0.0125 * np.stack([np.sin(angles), np.zeros(6), np.cos(angles)], axis=1)
    expected = np.stack([np.full(3, 0.01), np.full(3, 0.01), SECOND, SECOND, FIRST, FIRST])
    np.testing.assert_allclose(materials.albedo(np.full(6, eye), places), expected)
