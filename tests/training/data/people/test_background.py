import numpy as np

from training.data.keys import generator
from training.data.people.background import paint_background
from training.data.people.light import sample_lights
from training.data.people.stage import Camera

SIZE = (48, 36)
CAMERA = Camera(
    np.diag([1.0, -1.0, -1.0]),
    np.array([0.0, 1.2, 4.0]),  # 1.2 m over the floor, 4 m before the origin
    np.array([[50.0, 0, 17.5], [0, 50.0, 23.5], [0, 0, 1]]),
)
UP = np.array([0.0, -1.0, 0.0])


def test_backgrounds_vary_and_keep_to_their_ranges() -> None:
    means = []
    for key in range(30):
        rng = generator(key)
        lights = sample_lights(rng, UP, np.array([0.0, 0.0, 4.0]))
        albedo, shading = paint_background(rng, CAMERA, lights, SIZE, np.array([[0.1, 0.0]]))
        assert albedo.shape == shading.shape == (*SIZE, 3)
        assert albedo.dtype == shading.dtype == np.float32
        assert albedo.min() >= 0
        assert albedo.max() <= 1
        assert shading.min() >= 0
        assert np.isfinite(shading).all()
        assert albedo.max() > 0.01
        means.append(albedo.mean(axis=(0, 1)))
    assert np.std(means, axis=0).min() > 0.08
