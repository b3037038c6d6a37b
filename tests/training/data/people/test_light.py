import numpy as np
import pytest

from training.data.keys import generator
from training.data.people.light import Lights, develop, sample_lights, srgb
from training.data.people.shapes import Array

UP = np.array([0.0, -1.0, 0.0])


def lights(place: tuple[float, float, float], reach: float, sky: float = 0.0) -> Lights:
    return Lights(np.full(3, 0.2), UP, sky, np.array([[1.0, 0.5, 0.25]]), np.array([place]), np.array([reach]))


def one(light: Lights, point: tuple[float, float, float], normal: tuple[float, float, float]) -> Array:
    return np.asarray(light.shading(np.array([point], float), np.array([normal], float))[0])


def test_directional_light_follows_lamberts_law() -> None:
    sun = lights((0, 0, -1), 0)
    colour = np.array([1.0, 0.5, 0.25])
    np.testing.assert_allclose(one(sun, (0, 0, 3), (0, 0, -1)), 0.2 + colour)
    tilted = (np.sin(1.0), 0.0, -np.cos(1.0))
    np.testing.assert_allclose(one(sun, (5, 1, 3), tilted), 0.2 + colour * np.cos(1.0))
    np.testing.assert_allclose(one(sun, (0, 0, 3), (0, 0, 1)), 0.2)  # from behind: ambient light only


def test_point_light_falls_with_the_square_of_the_distance() -> None:
    lamp = lights((0, 0, 1), 2)
    colour = np.array([1.0, 0.5, 0.25])
    np.testing.assert_allclose(one(lamp, (0, 0, 3), (0, 0, -1)), 0.2 + colour)
    np.testing.assert_allclose(one(lamp, (0, 0, 5), (0, 0, -1)), 0.2 + colour / 4)


def test_what_faces_down_gets_less_of_the_sky() -> None:
    sky = lights((0, 0, -1), 0, sky=0.5)
    np.testing.assert_allclose(one(sky, (0, 0, 1), (0, -1, 0)), 0.2)
    np.testing.assert_allclose(one(sky, (0, 0, 1), (0, 1, 0)), 0.1)


def test_sampled_lights_are_few_and_bounded() -> None:
    counts = set()
    for key in range(40):
        drawn = sample_lights(generator(key), UP, np.array([0.0, 0.0, 3.0]))
        counts.add(len(drawn.colours))
        assert 0.5 <= drawn.colours.mean(axis=1).sum() <= 1.0 + 1e-9
        assert 0.15 <= drawn.ambient.mean() <= 0.5 + 1e-9
    assert counts == {1, 2, 3}


@pytest.mark.parametrize(("linear", "encoded"), [(0.0, 0.0), (1.0, 1.0), (0.002, 0.02584), (0.2140, 0.5), (3.0, 1.0)])
def test_srgb_is_the_standards_curve(linear: float, encoded: float) -> None:
    assert srgb(np.full((1, 1, 3), linear, np.float32))[0, 0, 0] == pytest.approx(encoded, abs=1e-4)


def test_the_sensor_adds_noise_of_the_strength_asked_for() -> None:
    grey = np.full((200, 200, 3), 0.2, np.float32)
    clean = develop(grey, generator(1), 0.0, 0.0)
    assert (clean == clean[0, 0]).all()
    noisy = develop(grey, generator(1), 0.0, 0.05).astype(float) / 255
    assert 0.004 < noisy.std() < 0.051
    edge = grey.copy()
    edge[:, 100:] = 0.8
    blurred = develop(edge, generator(1), 2.0, 0.0)
    assert len(np.unique(blurred[0, 90:110, 0])) > 4
    assert (blurred[:, :80] == blurred[0, 0]).all()


def test_one_normal_may_serve_all_points() -> None:
    points = generator(3).normal(0, 1, (6, 3))
    normal = np.array([[0.6, 0.0, -0.8]])
    for light in (lights((0, 0, -1), 0), lights((0, 1, -3), 2, sky=0.4)):
        np.testing.assert_allclose(light.shading(points, normal), light.shading(points, np.repeat(normal, 6, axis=0)))
        single = light.shading(points.astype(np.float32), normal)
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, light.shading(points, normal), rtol=1e-5)
